"""The app's event subscription: select the changes that it receives, and wrap them in envelopes."""

from __future__ import annotations

import itertools
import time
from typing import TYPE_CHECKING

from local_slack.blocks.slack_json import VERIFICATION_TOKEN
from local_slack.delivery.envelope import Envelope
from local_slack.delivery.events import channel_of, event_of, mention_of
from local_slack.workspace.changes import Change, Whispered

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from local_slack.blocks.slack_json import Json
    from local_slack.delivery.delivery import Delivery
    from local_slack.delivery.recorder import Recorder
    from local_slack.workspace.workspace import Workspace


EVENTS = (
    "message",
    "app_mention",
    "reaction_added",
    "reaction_removed",
    "agent_session_stopped",
    "app_home_opened",
    "member_joined_channel",
)


class Subscription:
    """Convert changes in the bot's channels of one workspace to envelopes and deliver them.

    The workspaces of an app share ``numbers``, so event ids are unique.
    """

    def __init__(
        self,
        workspace: Workspace,
        delivery: Delivery,
        record: Recorder,
        events: Collection[str] = EVENTS,
        numbers: Iterator[int] | None = None,
    ) -> None:
        self.workspace = workspace
        self._delivery = delivery
        self._record = record
        self._events = frozenset(events)
        self._numbers = numbers or itertools.count(1)
        self.end: Callable[[], None] = workspace.listen(self._on_change)

    def publish(self, event: Json) -> None:
        """Send an event, if the app is subscribed to it."""
        if event["type"] not in self._events:
            return
        number = next(self._numbers)
        envelope = Envelope(f"envelope-{number:06d}", "events_api", self._payload(event, number))
        team = self.workspace.directory.team.id
        self._record.note("event", envelope=envelope.id, about=envelope.about, team=team, event=_place(event))
        self._delivery.offer(envelope)

    def notify_rate_limited(self) -> None:
        """Send ``app_rate_limited``: more events within the hour than Slack delivers."""
        body = {
            "token": VERIFICATION_TOKEN,
            "type": "app_rate_limited",
            "team_id": self.workspace.directory.team.id,
            "minute_rate_limited": int(time.time()) // 60 * 60,
            "api_app_id": self.workspace.directory.bot.app_id,
        }
        self._delivery.offer(Envelope(f"envelope-{next(self._numbers):06d}", "events_api", body))

    def _on_change(self, change: Change) -> None:
        if not self._concerns_bot(change):
            return
        self.publish(event_of(change, self.workspace))
        if mention := mention_of(change, self.workspace):
            self.publish(mention)

    def _concerns_bot(self, change: Change) -> bool:
        if isinstance(change, Whispered):
            return False
        channel = channel_of(change)
        return channel is None or self.workspace.directory.bot.id in self.workspace.channel(channel).members

    def _payload(self, event: Json, number: int) -> Json:
        team, bot = self.workspace.directory.team, self.workspace.directory.bot
        authorization = {
            "enterprise_id": None,
            "team_id": team.id,
            "user_id": bot.id,
            "is_bot": True,
            "is_enterprise_install": False,
        }
        return {
            "token": VERIFICATION_TOKEN,
            "team_id": team.id,
            "context_team_id": team.id,
            "context_enterprise_id": None,
            "api_app_id": bot.app_id,
            "event": event,
            "type": "event_callback",
            "event_id": f"Ev0LOCAL{number:06d}",
            "event_time": int(time.time()),
            "authorizations": [authorization],
            "is_ext_shared_channel": False,
            "event_context": f"local-{number}",
        }


def _place(event: Json) -> Json:
    """Return the fields that identify an event among those of its type."""
    return {name: event[name] for name in ("subtype", "channel", "user", "ts", "thread_ts") if event.get(name)}
