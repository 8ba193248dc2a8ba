"""The app's event subscription: which changes it is told of, and in which wrapping."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from .changes import Change, Whispered
from .delivery import Envelope
from .events import channel_of, event_of, mention_of

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from .delivery import Delivery
    from .wire import Json
    from .workspace import Workspace


EVENTS = ("message", "app_mention", "reaction_added", "reaction_removed")


class Subscription:
    """Wrap what happens in the bot's channels into envelopes and hand them to the delivery."""

    def __init__(self, workspace: Workspace, delivery: Delivery, events: Collection[str] = EVENTS) -> None:
        self._workspace = workspace
        self._delivery = delivery
        self._events = frozenset(events)
        self._number = 0
        self.end: Callable[[], None] = workspace.listen(self._heard)

    def _heard(self, change: Change) -> None:
        if not self._concerns_bot(change):
            return
        self._send(event_of(change, self._workspace))
        if mention := mention_of(change, self._workspace):
            self._send(mention)

    def _concerns_bot(self, change: Change) -> bool:
        if isinstance(change, Whispered):
            return False
        channel = channel_of(change)
        return channel is None or self._workspace.directory.bot.id in self._workspace.channel(channel).members

    def _send(self, event: Json) -> None:
        if event["type"] not in self._events:
            return
        self._number += 1
        envelope = Envelope(f"envelope-{self._number:06d}", "events_api", self._payload(event))
        self._delivery.offer(envelope)

    def _payload(self, event: Json) -> Json:
        team, bot = self._workspace.directory.team, self._workspace.directory.bot
        authorization = {
            "enterprise_id": None,
            "team_id": team.id,
            "user_id": bot.id,
            "is_bot": True,
            "is_enterprise_install": False,
        }
        return {
            "token": "local-verification-token",
            "team_id": team.id,
            "context_team_id": team.id,
            "context_enterprise_id": None,
            "api_app_id": bot.app_id,
            "event": event,
            "type": "event_callback",
            "event_id": f"Ev0LOCAL{self._number:06d}",
            "event_time": int(time.time()),
            "authorizations": [authorization],
            "is_ext_shared_channel": False,
            "event_context": f"local-{self._number}",
        }
