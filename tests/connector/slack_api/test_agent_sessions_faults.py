"""What Slack is told of an agent at work while it is away, slow, or does not let us; in virtual time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest
from virtual_time import in_virtual_time

from connector.events import ThreadAddress
from connector.slack_api.agent_sessions import ACTIVE, PROCESSING, AgentSessions
from connector.slack_api.best_effort import best_effort
from connector.slack_api.client import SlackClient
from connector.slack_api.errors import SlackCallFailed

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

SET, RENAME = "agents.sessions.setStatus", "agents.sessions.rename"
ONE, OTHER = ThreadAddress("T1", "C1", "1.0"), ThreadAddress("T1", "C2", "1.0")


class _Wire:
    """A Slack that shows what it is told, unless it fails next."""

    insisting = staticmethod(SlackClient.insisting)

    def __init__(self) -> None:
        self.shown: dict[str, str] = {}
        self.calls: list[str] = []
        self.fails: dict[str, list[str]] = {SET: [], RENAME: []}
        self.held = asyncio.Event()
        self.held.set()

    async def call(self, method: str, arguments: Callable[[], dict[str, str]], _turn: object) -> None:
        told = arguments()
        self.calls.append(method)
        if method == RENAME:
            await self.held.wait()
        if self.fails[method]:
            raise SlackCallFailed(method, self.fails[method].pop(0))
        await asyncio.sleep(0.1)
        self.shown[told["channel_id"]] = told.get("status") or self.shown[told["channel_id"]]


def _sessions(wire: _Wire) -> AgentSessions:
    def spawn(coroutine: Coroutine[Any, Any, object]) -> asyncio.Task[None]:
        return asyncio.create_task(best_effort(coroutine))

    return AgentSessions(cast("SlackClient", wire), spawn)


@in_virtual_time
async def test_the_end_of_a_run_is_told_however_long_slack_is_away():
    wire = _Wire()
    sessions = _sessions(wire)
    await sessions.show(ONE, PROCESSING)
    wire.fails[SET] = ["no_answer"] * 20
    await sessions.show(ONE, ACTIVE)
    assert wire.shown == {"C1": ACTIVE}


@pytest.mark.parametrize("error", ["session_not_found", "unknown_method", "no_answer"])
@in_virtual_time
async def test_a_title_that_is_slow_or_refused_keeps_no_status_from_being_told(error):
    wire = _Wire()
    sessions = _sessions(wire)
    wire.held.clear()
    wire.fails[RENAME] = [error]
    await sessions.show(ONE, PROCESSING, "a title")
    await sessions.show(ONE, ACTIVE)
    assert wire.shown == {"C1": ACTIVE}
    wire.held.set()
    await asyncio.sleep(1)
    await sessions.show(ONE, PROCESSING)
    assert wire.shown == {"C1": PROCESSING}


@pytest.mark.parametrize("error", ["no_permission", "access_denied", "not_authorized", "session_not_found"])
@in_virtual_time
async def test_what_is_refused_in_one_channel_is_asked_for_in_the_others(error):
    wire = _Wire()
    sessions = _sessions(wire)
    wire.fails[SET] = [error]
    sessions.show(ONE, PROCESSING)
    await sessions.show(OTHER, PROCESSING)
    assert wire.shown == {"C2": PROCESSING}


@in_virtual_time
async def test_what_came_while_slack_refused_something_else_is_told():
    wire = _Wire()
    sessions = _sessions(wire)
    wire.fails[SET] = ["no_answer", "no_permission"]
    telling = sessions.show(ONE, PROCESSING)
    await asyncio.sleep(0.5)
    sessions.show(ONE, ACTIVE)
    await telling
    assert wire.shown == {}, "Slack does not want that"
    await sessions.show(ONE, ACTIVE)
    assert wire.shown == {"C1": ACTIVE}
