"""Trigger ids: they allow the app to open a view for a person, shortly after their action."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING

from local_slack.workspace.errors import SlackRefused

if TYPE_CHECKING:
    from collections.abc import Callable

_VALID_S = 3.0


@dataclass(slots=True)
class _Trigger:
    user: str
    until: float
    taken: bool = False


class Triggers:
    """Own the triggers of a workspace. Each is valid once, for 3 s."""

    def __init__(self, team: str, clock: Callable[[], float]) -> None:
        self._team = team
        self._clock = clock
        self._triggers: dict[str, _Trigger] = {}

    def issue(self, user: str) -> str:
        trigger = f"{int(self._clock() * 1000)}.{self._team}.{secrets.token_hex(16)}"
        self._triggers[trigger] = _Trigger(user, self._clock() + _VALID_S)
        return trigger

    def take(self, trigger_id: str) -> str:
        """Consume a trigger and return the id of its user."""
        trigger = self._triggers.get(trigger_id)
        if trigger is None:
            raise SlackRefused("invalid_trigger_id")
        if trigger.taken:
            raise SlackRefused("trigger_exchanged")
        if self._clock() > trigger.until:
            raise SlackRefused("expired_trigger_id")
        trigger.taken = True
        return trigger.user
