"""The modals and Home tabs that the app shows to people."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any

from local_slack.workspace.errors import SlackRefused


@dataclass(frozen=True, slots=True)
class View:
    """One view of one person; ``content`` is the app's JSON with added ids."""

    id: str
    user: str
    content: dict[str, Any]

    @property
    def type(self) -> str:
        return str(self.content["type"])

    @property
    def hash(self) -> str:
        return hashlib.sha256(json.dumps([self.id, self.content], sort_keys=True).encode()).hexdigest()[:16]


class Views:
    """Own all views of a workspace."""

    def __init__(self) -> None:
        self._views: dict[str, View] = {}
        self._homes: dict[str, str] = {}

    @property
    def all(self) -> tuple[View, ...]:
        return tuple(self._views.values())

    def home(self, user: str) -> View | None:
        """Return the app's Home tab of this person."""
        return self._views.get(self._homes.get(user, ""))

    def publish(self, user: str, content: dict[str, Any], seen_hash: str | None) -> View:
        before = self.home(user)
        view = self._put(before.id if before else self._next_id(), user, content, before, seen_hash)
        self._homes[user] = view.id
        return view

    def open(self, user: str, content: dict[str, Any]) -> View:
        return self._put(self._next_id(), user, content, None, None)

    def update(self, view_id: str, content: dict[str, Any], seen_hash: str | None) -> View:
        before = self._views.get(view_id)
        if before is None:
            raise SlackRefused("not_found")
        return self._put(view_id, before.user, content, before, seen_hash)

    def _put(
        self, view_id: str, user: str, content: dict[str, Any], before: View | None, seen_hash: str | None
    ) -> View:
        if seen_hash and before and seen_hash != before.hash:
            raise SlackRefused("hash_conflict")
        view = View(view_id, user, content)
        self._views[view_id] = view
        return view

    def _next_id(self) -> str:
        return f"V0LOCAL{len(self._views) + 1:04d}"
