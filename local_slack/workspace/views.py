"""The modals and Home tabs that the app shows to people, and the trigger ids that allow it to open them."""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from local_slack.workspace.errors import SlackRefused

if TYPE_CHECKING:
    from collections.abc import Callable

    from local_slack.json_limits import Json

_TRIGGER_VALID_S = 3.0
_MOST_STACKED = 3


@dataclass(slots=True)
class _Trigger:
    user: str
    until: float
    taken: bool = False


@dataclass(frozen=True, slots=True)
class View:
    """One view of one person; ``content`` is the app's JSON with added ids.

    ``root`` is the id of the first view of a stack of modals, ``previous`` that of the view below this one.
    """

    id: str
    user: str
    content: Json
    root: str = ""
    previous: str | None = None

    @property
    def type(self) -> str:
        return str(self.content["type"])

    @property
    def hash(self) -> str:
        return hashlib.sha256(json.dumps([self.id, self.content], sort_keys=True).encode()).hexdigest()[:16]


class Views:
    """Own all views and triggers of a workspace. Each trigger is valid once, for 3 s.

    ``changed`` is called with the id of the person whose views have changed.
    """

    def __init__(self, team: str, clock: Callable[[], float], changed: Callable[[str], None]) -> None:
        self._team = team
        self._clock = clock
        self._changed = changed
        self._triggers: dict[str, _Trigger] = {}
        self._views: dict[str, View] = {}
        self._homes: dict[str, str] = {}
        self._stacks: dict[str, list[str]] = {}

    def issue_trigger(self, user: str) -> str:
        trigger = f"{int(self._clock() * 1000)}.{self._team}.{secrets.token_hex(16)}"
        self._triggers[trigger] = _Trigger(user, self._clock() + _TRIGGER_VALID_S)
        return trigger

    def take_trigger(self, trigger_id: str) -> str:
        """Consume a trigger and return the id of its user."""
        trigger = self._triggers.get(trigger_id)
        if trigger is None:
            raise SlackRefused("invalid_trigger_id")
        if trigger.taken:
            raise SlackRefused("exchanged_trigger_id")
        if self._clock() > trigger.until:
            raise SlackRefused("expired_trigger_id")
        trigger.taken = True
        return trigger.user

    @property
    def all(self) -> tuple[View, ...]:
        return tuple(self._views.values())

    def home(self, user: str) -> View | None:
        """Return the app's Home tab of this person."""
        return self._views.get(self._homes.get(user, ""))

    def publish(self, user: str, content: Json, seen_hash: str | None) -> View:
        if before := self.home(user):
            return self.update(before.id, content, seen_hash)
        view = self._add(user, content)
        self._homes[user] = view.id
        self._changed(user)
        return view

    def get(self, view_id: str) -> View:
        if view := self._views.get(view_id):
            return view
        raise SlackRefused("not_found")

    def modal(self, user: str) -> View | None:
        """Return the modal that this person sees: the topmost one."""
        stack = self._stacks.get(user)
        return self._views[stack[-1]] if stack else None

    def open(self, user: str, content: Json) -> View:
        """Show a modal; it replaces those that the person sees."""
        view = self._add(user, content)
        self._stacks[user] = [view.id]
        self._changed(user)
        return view

    def push(self, user: str, content: Json) -> View:
        """Show a modal on top of the one that the person sees."""
        stack = self._stacks.get(user)
        if not stack:
            raise SlackRefused("not_found")
        if len(stack) >= _MOST_STACKED:
            raise SlackRefused("push_limit_reached")
        view = self._add(user, content, root=stack[0], previous=stack[-1])
        stack.append(view.id)
        self._changed(user)
        return view

    def close(self, view: View, *, clear: bool = False) -> list[View]:
        """Close a modal, and those on top of it; with ``clear``, the whole stack. Return them, the topmost first."""
        stack = self._stacks.get(view.user, [])
        if view.id not in stack:
            return []
        first = 0 if clear else stack.index(view.id)
        closed = [self._views[each] for each in reversed(stack[first:])]
        del stack[first:]
        self._changed(view.user)
        return closed

    def _add(self, user: str, content: Json, root: str = "", previous: str | None = None) -> View:
        new_id = f"V0LOCAL{len(self._views) + 1:04d}"
        view = self._views[new_id] = View(new_id, user, content, root or new_id, previous)
        return view

    def update(self, view_id: str, content: Json, seen_hash: str | None) -> View:
        before = self.get(view_id)
        if seen_hash and seen_hash != before.hash:
            raise SlackRefused("hash_conflict")
        view = self._views[view_id] = replace(before, content=content)
        self._changed(view.user)
        return view
