"""A run ends though Slack does not answer what decorates it; in virtual time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from virtual_time import in_virtual_time

from connector import Persona
from connector.conversations.cleanup import Cleanup
from connector.events import SlackMessage
from connector.protocols import Claim
from connector.records.inbox import PendingMessage
from connector.records.run_record import RunRecord
from connector.runs.background_tasks import BackgroundTasks
from connector.runs.view import RunView
from connector.slack_api.client import SlackClient
from connector.slack_api.errors import SlackCallFailed

if TYPE_CHECKING:
    from connector.protocols import ConversationLease
    from connector.slack_api.client import Confirm
    from connector.slack_api.rate_limiter import CallSlot

MESSAGE = SlackMessage("T1", "C1", "1.0", None, "U1", "look", (), direct=False)
ANSWERED_AFTER_S = 15.0


class _Wire:
    """A Slack that answers for a mark only after a while, and has no sessions."""

    insisting = staticmethod(SlackClient.insisting)

    def __init__(self) -> None:
        self.done: list[str] = []

    async def react(self, _channel: str, _ts: str, _name: str, _turn: CallSlot, confirm: Confirm) -> None:
        await confirm()
        await asyncio.sleep(ANSWERED_AFTER_S)
        self.done.append("marked")

    async def unreact(self, *_mark: str) -> None:
        self.done.append("unmarked")

    async def post(self, *_: Any, **__: Any) -> str:
        return "2.0"

    async def update(self, *_: Any) -> None:
        pass

    async def delete(self, _channel: str, ts: str, _run: str = "") -> None:
        self.done.append(f"{ts} deleted")

    async def call(self, method: str, *_: Any) -> None:
        raise SlackCallFailed(method, "feature_disabled")


class _Kept:
    """A lease that holds, and whoever is told of the traces."""

    claim = Claim(1)

    async def confirm(self) -> None:
        pass

    async def write(self, _changes: object) -> None:
        pass

    async def keep_status(self, _ts: str) -> None:
        pass

    def on_closed(self, _error: str) -> None:
        pass


@in_virtual_time
async def test_a_mark_that_slack_does_not_answer_for_is_taken_away_later_and_holds_no_run_up():
    wire, kept = _Wire(), _Kept()
    record = RunRecord.begun_with(
        PendingMessage(MESSAGE, "alpha", "look", MESSAGE.id), was_waiting=False, newest_ts="1.0"
    )
    clock = asyncio.get_running_loop()
    async with BackgroundTasks(cast("SlackClient", wire)) as desk:
        lease = cast("ConversationLease", kept)
        view, aftermath = RunView(desk, lease, record, Persona("Alpha", ":owl:"), kept), Cleanup(lease, desk)
        async with view.posting(), view.shown():
            await asyncio.sleep(1)
            ends_at_s = clock.time()
        assert clock.time() - ends_at_s < 3
        await aftermath.end_run({}, artifacts=view.artifacts)
        await aftermath.recent_done()
        assert clock.time() - ends_at_s < 5
        await aftermath.done(asyncio.Event())
    assert wire.done == ["2.0 deleted", "marked", "unmarked"]
