"""The scenarios. Each acts on a stage; then all answers of the stage are compared with its messages."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from conformance.stage import CHANNEL, POSTING, SETTLE_S, ScenarioFailed, Stage
from local_slack import (
    Delayed,
    DropAfterCall,
    DropBeforeCall,
    Dropped,
    Duplicated,
    RateLimited,
    ServerError,
    SlowResponse,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from conformance.agent import Agent, Stop
    from local_slack import DeliveryFault, Fault

    Act = Callable[[Stage], Awaitable[None]]

# Slack waits as long for an acknowledgement.
ACK_S = 3.0
# Bolt with its default ping interval (10 s) needs about a minute to notice a lost connection and to get the event.
RECONNECT_S = 90.0


@dataclass(frozen=True)
class Scenario:
    """A promise of an agent, and how to try it.

    ``needs_model``: only with an agent that asks a model. ``patience_s``: the longest wait for the answers, unless the
    agent's is longer.
    """

    name: str
    promise: str
    act: Act
    needs_model: bool = True
    stop: Stop | None = None
    compares_answers: bool = True
    patience_s: float = 0

    def can_try(self, agent: Agent) -> bool:
        return (agent.model or not self.needs_model) and (self.stop is None or self.stop in agent.stop)


async def _answer(stage: Stage) -> None:
    await stage.begin()


async def _burst(stage: Stage) -> None:
    await stage.begin()
    await stage.settle()
    for _ in range(5):
        await stage.say()


async def _threads(stage: Stage) -> None:
    for _ in range(10):
        await stage.begin()


async def _acknowledge(stage: Stage) -> None:
    """While the model is silent, ten threads begin; the record has the acknowledgements."""
    stage.model.hold()
    for _ in range(10):
        await stage.begin()
    await asyncio.sleep(ACK_S + SETTLE_S)
    stage.model.release()
    late = [each for each in stage.slack.record if each["what"] == "not_acked"]
    latencies = [each["latency_ms"] / 1000 for each in stage.slack.record if each["what"] == "acked"]
    stage.measured_s["longest acknowledgement"] = max(latencies, default=0.0)
    if late:
        raise ScenarioFailed(f"{len(late)} events were not acknowledged within {ACK_S:g} s")


async def _steer(stage: Stage) -> None:
    await stage.begin_working()
    for _ in range(3):
        await stage.say()
    stage.model.release()


async def _steer_by_another(stage: Stage) -> None:
    await stage.begin_working()
    await stage.say(by="ben")
    await stage.say()
    stage.model.release()


async def _edit(stage: Stage) -> None:
    """The text changes before the model can have read it."""
    await stage.begin_working()
    old = await stage.say()
    new, ts = stage.mark(), stage.expected.pop(old)
    stage.forbidden.add(old)
    mention = "@alpha " if stage.agent.mention == "every" else ""
    await stage.person.edit(CHANNEL, ts, f"{mention}please note {new}")
    stage.expected[new], stage.threads[new] = ts, stage.root
    await _passed_on()
    stage.model.release()


async def _edit_answered(stage: Stage) -> None:
    """The mention is worded anew: it still has its mark, and asks nothing more."""
    mark = await stage.begin()
    await stage.settle()
    await stage.person.edit(CHANNEL, stage.expected[mark], f"@alpha please do note {mark}")
    await _passed_on()


async def _delete(stage: Stage) -> None:
    await stage.begin_working()
    deleted = await stage.say()
    await stage.person.delete(CHANNEL, stage.expected.pop(deleted))
    stage.forbidden.add(deleted)
    await _passed_on()
    stage.model.release()


async def _passed_on() -> None:
    """Give the agent time to learn of a change, the same for all."""
    await asyncio.sleep(SETTLE_S)


def _stop(how: Stop) -> Act:
    async def act(stage: Stage) -> None:
        stopped = await stage.begin_working()
        stage.expected.pop(stopped)
        asked = len(stage.model.requests)
        began = time.monotonic()
        await stage.stop(how)
        await _passed_on()
        stage.model.release()
        await asyncio.sleep(SETTLE_S)
        if stage.has_answered(stopped):
            raise ScenarioFailed("the answer appeared after the stop")
        later = [each for each in stage.model.requests[asked:] if each.at_s > began + SETTLE_S]
        if later:
            raise ScenarioFailed(f"the model was asked {len(later)} more times after the stop")
        await stage.say()  # the thread continues

    return act


def _delivery(fault: Callable[[int], DeliveryFault], *, then: int = 0) -> Act:
    """All events of a message meet a fault, which may depend on their number."""

    async def act(stage: Stage) -> None:
        await stage.begin()
        await stage.settle()
        events = stage.events_of_reply
        stage.slack.deliveries.next(fault(events), times=events)
        for _ in range(then + 1):
            await stage.say()

    return act


async def _connection(stage: Stage) -> None:
    await stage.begin_working()
    stage.slack.socket_mode.drop()
    await stage.say()
    stage.model.release()


def _call(fault: Fault) -> Act:
    """Each call by which the answer may be posted meets the fault once."""

    async def act(stage: Stage) -> None:
        await stage.begin_working()
        for method in POSTING:
            stage.slack.faults.next(method, fault)
        stage.model.release()

    return act


async def _kill_working(stage: Stage) -> None:
    await stage.begin_working()
    await stage.restart()
    stage.model.release()


async def _kill_with_more(stage: Stage) -> None:
    await stage.begin_working()
    for _ in range(2):
        await stage.say()
    await _passed_on()
    await stage.restart()
    stage.model.release()


async def _kill_posting(stage: Stage) -> None:
    """The answer is visible, but the agent does not know it when it is killed."""
    mark = await stage.begin_working()
    for method in POSTING:
        stage.slack.faults.next(method, SlowResponse(1.0), times=100)
    stage.model.release()
    await stage.until(lambda _: stage.has_answered(mark), stage.agent.patience_s, "there was no answer")
    await stage.process.kill()
    stage.slack.faults.clear()
    await stage.restart()


async def _away(stage: Stage) -> None:
    """Messages come while the process is gone; Slack sends their events again."""
    await stage.begin()
    await stage.settle()
    await stage.process.kill()
    for _ in range(3):
        await stage.say()
    await stage.start()


SCENARIOS = (
    Scenario("answer", "a mention gets one answer", _answer, needs_model=False),
    Scenario("threads", "ten threads at once get one answer each", _threads, needs_model=False),
    Scenario(
        "acknowledge",
        "events are acknowledged within 3 seconds while the agent works",
        _acknowledge,
        needs_model=False,
        compares_answers=False,
    ),
    Scenario("burst", "five messages in a row are answered once, in order", _burst),
    Scenario("steer", "messages to a working agent are answered once, in order", _steer),
    Scenario("steer-people", "so are those of two people", _steer_by_another),
    Scenario("edit", "an edit before the message is read counts", _edit),
    Scenario(
        "edit-answered", "new wording of an answered mention brings no second answer", _edit_answered, needs_model=False
    ),
    Scenario("delete", "a message that is deleted before it is read is not read", _delete),
    Scenario("stop-reaction", "❌ stops the run, and the thread continues", _stop("reaction"), stop="reaction"),
    Scenario("stop-word", "the word stop does", _stop("word"), stop="word"),
    Scenario("stop-button", "Slack's Stop button does", _stop("button"), stop="button"),
    Scenario("event-twice", "an event that comes twice is answered once", _delivery(lambda _: Duplicated())),
    Scenario("event-late", "an event that comes late is answered in order", _delivery(Delayed, then=1)),
    Scenario(
        "event-again", "an event that comes at the second attempt is answered once", _delivery(lambda _: Dropped())
    ),
    Scenario("connection", "a lost connection loses and doubles nothing", _connection, patience_s=RECONNECT_S),
    Scenario("call-limited", "a rate-limited call loses and doubles nothing", _call(RateLimited(1))),
    Scenario("call-503", "nor does a server error", _call(ServerError(503))),
    Scenario("call-lost", "nor a connection that breaks before a call", _call(DropBeforeCall())),
    Scenario("call-doubtful", "nor one that breaks after a call took effect", _call(DropAfterCall())),
    Scenario("kill", "kill -9 at work: the answer comes once after the restart", _kill_working),
    Scenario("kill-waiting", "kill -9 with two messages waiting: all are answered once, in order", _kill_with_more),
    Scenario("kill-posting", "kill -9 between the post and its confirmation: the answer is there once", _kill_posting),
    Scenario("away", "messages that came while the process was gone are answered once", _away),
)
