"""What comes to us before what was written earlier, and what it costs to look that up."""

from __future__ import annotations

import asyncio

import pytest
from fake_sessions import FakeSessionManager
from structlog.testing import capture_logs

from connector import Instance, Persona, SlackCredentials, SocketTransport, connected
from connector.events import SlackMessage
from connector.inbound.access_policy import Actor
from connector.inbound.out_of_order import LookUps, LRUSet, NoAnswer, UnroutedReplies
from local_slack import Breaks, LocalSlack, RetrySchedule
from local_slack.delivery.delivery import Envelope
from local_slack.delivery.delivery_faults import Lost

ALPHA = Instance("alpha", Persona("Alpha", ":owl:"))
VISITOR = Actor("U1", "C1")


@pytest.fixture
async def scene(runs, scene_of):
    """What is lost comes again soon."""
    sessions = FakeSessionManager()
    async with LocalSlack(limits=None, retries=RetrySchedule(0.3, (0.05, 0.1, 0.1))) as slack:
        access = SlackCredentials(slack.bot_token, slack.api_url, SocketTransport(slack.app_token))
        async with connected(access, [ALPHA], sessions, runs, shutdown_grace_s=0.1):
            await slack.until(lambda ws: ws.bot_online)
            yield scene_of(slack, sessions)


async def all_taken(scene) -> None:
    await scene.slack.until(lambda _: not scene.slack.socket_mode.delivery.outstanding)


def look_ups(scene) -> int:
    return sum(entry.get("method") == "conversations.replies" for entry in scene.slack.record)


async def lost(scene, who, text: str, **where) -> str:
    """Both events of a mention are lost the first time."""
    scene.slack.deliveries.next(Lost(), times=2)
    ts: str = await who.say("general", text, **where)
    return ts


async def test_replies_that_overtake_a_mention_in_the_middle_of_a_thread_are_read_after_it(scene):
    root = await scene.ana.say("general", "the tests are flaky")
    await scene.ana.say("general", "so they are", thread=root)
    await all_taken(scene)
    await lost(scene, scene.ben, "@alpha look at the code", thread=root)
    await scene.ben.say("general", "but only at the parser", thread=root)
    word = await scene.ana.say("general", "and its tetss", thread=root)
    gone = await scene.ana.say("general", "or not", thread=root)
    await scene.ana.edit("general", word, "and its tests")
    await scene.ana.delete("general", gone)
    run = await scene.sessions.next_run()
    assert run.prompt == "look at the code"
    await run.until(lambda r: len(r.steers) == 2)
    await all_taken(scene)
    assert [steer.text for steer in run.steers] == ["but only at the parser", "and its tests"]
    assert run.steers[1].written_s == float(word)
    await run.read_steers()
    await run.answer("ok")


async def test_of_many_threads_that_cannot_be_read_few_keep_their_lease(runs, store):
    """The others wait in the store, and go on at once with what is written there."""
    sessions = FakeSessionManager()
    async with LocalSlack(limits=None) as slack:
        access, ana = (
            SlackCredentials(slack.bot_token, slack.api_url, SocketTransport(slack.app_token)),
            slack.as_person("ana"),
        )
        async with connected(access, [ALPHA], sessions, runs, shutdown_grace_s=0.1, rate_scale=1_000):
            await slack.until(lambda ws: ws.bot_online)
            slack.faults.next("conversations.replies", Breaks(503), times=10_000)
            roots = [await ana.say("general", f"thread {number}") for number in range(25)]
            for root in roots:
                await ana.say("general", "@alpha look", thread=root)
                await (await sessions.next_run()).answer("ok")
            place = f"{slack.team_id}:{slack.channel('general').id}"
            async with asyncio.timeout(10):
                while all([(await store.record(f"{place}:{root}")).is_owned for root in roots[20:]]):  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            free = [root for root in roots if not (await store.record(f"{place}:{root}")).is_owned][0]  # noqa: RUF015
            await ana.say("general", "and this", thread=free)
            run = await sessions.next_run()
            assert run.prompt == "and this"
            await run.answer("ok")


async def test_a_stop_that_comes_late_holds_back_only_what_is_older_than_it(scene):
    scene.sessions.obedient = True
    root = await scene.ana.say("general", "@alpha look")
    stopped = await scene.sessions.next_run()
    scene.slack.deliveries.next(Lost())
    await scene.ana.say("general", "stop", thread=root)
    await scene.ana.say("general", "and this", thread=root)
    await stopped.until(lambda r: [s.text for s in r.steers] == ["and this"])
    await scene.posted("general", root, "🛑 Stopped by Ana.")
    run = await scene.sessions.next_run()
    assert run.prompt == "and this"
    await run.answer("ok")


async def test_a_cross_that_overtakes_its_message_stops_what_that_begins(scene):
    scene.sessions.obedient = True
    root = await lost(scene, scene.ana, "@alpha look")
    await scene.ben.react("general", root, "x")
    await scene.posted("general", root, "🛑 Stopped by Ben.")
    await all_taken(scene)
    assert scene.sessions.idle
    assert len(scene.sessions.prompts) <= 1


async def test_chatter_is_not_looked_up(scene):
    root = await scene.ana.say("general", "nothing for a machine")
    await all_taken(scene)
    for number in range(5):
        await scene.ben.say("general", f"indeed {number}", thread=root)
    await scene.ben.react("general", root, "x")
    await all_taken(scene)
    assert look_ups(scene) == 0
    await scene.ana.say("general", "@alpha and you?", thread=root)
    assert (await scene.sessions.next_run()).prompt == "and you?"


async def test_a_cross_on_the_first_message_of_a_known_thread_is_not_looked_up(scene):
    root = await scene.ana.say("general", "@alpha look")
    await (await scene.sessions.next_run()).answer("ok")
    await scene.quiet("general", root)
    before = look_ups(scene)
    await scene.ben.react("general", root, "x")
    await all_taken(scene)
    assert look_ups(scene) == before


async def test_a_thread_that_is_not_known_is_looked_up_once(scene):
    scene.slack.deliveries.next(Lost())
    root = await scene.ana.say("general", "nothing for a machine")
    for text in ("indeed", "so it is"):
        await scene.ben.say("general", text, thread=root)
    await all_taken(scene)
    assert look_ups(scene) == 1


class Silent:
    """A Slack that never answers."""

    def __init__(self) -> None:
        self.asked = 0

    async def never(self) -> None:
        self.asked += 1
        await asyncio.Event().wait()


async def test_few_look_ups_are_made_at_once_and_of_many_the_last_are_not_made():
    slack = Silent()
    look_ups = LookUps(slack)  # type: ignore[arg-type]
    asking = [asyncio.create_task(look_ups.answer(slack.never)) for _ in range(40)]
    done, waiting = await asyncio.wait(asking, timeout=0.05)
    assert (slack.asked, len(done), len(waiting)) == (5, 30, 10)
    assert all(isinstance(task.exception(), NoAnswer) for task in done)
    for task in waiting:
        task.cancel()
    await asyncio.wait(waiting)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(look_ups.answer(slack.never), 0.01)
    assert slack.asked == 6, "there is room again"


def reply(ts: str, text: str = "hm", thread_ts: str = "1.0") -> SlackMessage:
    return SlackMessage("T1", "C1", ts, thread_ts, "U1", text, (), direct=False)


def test_what_passed_by_is_given_once_and_in_the_order_in_which_it_was_written():
    passed = UnroutedReplies()
    for each in (reply("4.0"), reply("3.0"), reply("2.0"), reply("5.0", thread_ts="2.5"), reply("6.0")):
        passed.add(each, VISITOR)
    passed.edit(reply("3.0", "aha"), VISITOR, "8.0")
    passed.edit(reply("3.0", "an earlier edit"), VISITOR, "7.0")
    passed.add(reply("3.0"), VISITOR)
    passed.edit(reply("9.0"), VISITOR, "9.1")
    passed.drop("T1:C1:6.0")
    passed.add(reply("6.0"), VISITOR)
    taken = [(each.ts, each.text, edited_ts) for each, _, edited_ts in passed.take_after("T1:C1:1.0", "2.0")]
    assert taken == [("3.0", "aha", "8.0"), ("4.0", "hm", "")]
    assert passed.take_after("T1:C1:1.0", "2.0") == []


def test_of_what_passed_by_the_latest_are_remembered():
    passed, names = UnroutedReplies(), LRUSet()
    for number in range(1, 10_002):
        passed.add(reply(f"{number}.0", thread_ts="0.5"), VISITOR)
        names.add(str(number))
    assert len(passed.take_after("T1:C1:0.5", "0.0")) == 1_000
    assert ("1" in names, "2" in names) == (False, True)


async def test_a_cross_is_acknowledged_while_slack_is_away_and_stops_the_run_when_it_is_back(runs, scene_of):
    sessions = FakeSessionManager()
    sessions.obedient = True
    async with LocalSlack() as slack:
        scene = scene_of(slack, sessions)
        access = SlackCredentials(slack.bot_token, slack.api_url, SocketTransport(slack.app_token))
        async with connected(access, [ALPHA], sessions, runs, shutdown_grace_s=0.1):
            await slack.until(lambda ws: ws.bot_online)
            root = await scene.ana.say("general", "nothing for a machine")
            mention = await lost(scene, scene.ana, "@alpha look", thread=root)
            slack.faults.next("conversations.replies", Breaks(503), times=3)
            await scene.ben.react("general", mention, "x")
            await scene.posted("general", root, "🛑 Stopped by Ben.")
            await all_taken(scene)
            of_the_cross = {e["envelope"] for e in slack.record if e.get("about") == "reaction_added"}
            assert not [e for e in slack.record if e["what"] == "not_acked" and e["envelope"] in of_the_cross]


async def test_an_event_that_is_not_as_slack_writes_them_is_one_line_in_the_log(scene):
    with capture_logs() as logs:
        for event in MALFORMED:
            offer(scene, event)
        await all_taken(scene)
    # What Bolt cannot read either does not come as far as to us.
    assert sum(log["event"] in ("event.unreadable", "slack.unreadable") for log in logs) == len(MALFORMED)
    assert all(log["event"] != "event.failed" for log in logs)
    assert not [entry for entry in scene.slack.record if entry["what"] == "retried"]


MESSAGE = {"type": "message", "channel": "C1", "user": "U1", "text": "hello", "ts": "1.0", "channel_type": "im"}
MALFORMED = [
    {**MESSAGE, "ts": "abc"},
    {**MESSAGE, "ts": "nan"},
    {**MESSAGE, "thread_ts": "zzz"},
    {**MESSAGE, "user": {"id": "U1"}},
    {**MESSAGE, "text": ["hello"]},
    {**MESSAGE, "channel": 5},
    {**MESSAGE, "files": ["F1"]},
    {"type": "message", "user": "U1", "text": "hello"},
    {"type": "message", "subtype": "message_changed", "channel": "C1", "ts": "1.0", "message": "a string"},
    {"type": "message", "subtype": "message_deleted", "channel": "C1", "event_ts": 7, "previous_message": MESSAGE},
    {"type": "reaction_added", "reaction": "x", "item": {"type": "message", "channel": "C1", "ts": "1.0"}},
    {"type": "reaction_added", "reaction": "x", "user": "U1", "item": "a string", "event_ts": "1.0"},
    {"type": "agent_session_stopped", "user": "U1", "channel": "C1", "thread_ts": [], "event_ts": "1.0"},
]


def offer(scene, event: dict) -> None:
    payload = {"type": "event_callback", "team_id": scene.slack.team_id, "event": event}
    delivery = scene.slack.socket_mode.delivery
    delivery.offer(Envelope(f"malformed-{MALFORMED.index(event)}", "events_api", payload))


async def test_half_a_character_is_replaced(scene):
    ts = "1700000000.000100"
    user, dm = scene.slack.person("ana").id, await scene.ana.open_dm("alpha")
    offer_text = {**MESSAGE, "user": user, "channel": dm, "ts": ts, "text": "a \ud800 b"}
    payload = {"type": "event_callback", "team_id": scene.slack.team_id, "event": offer_text}
    scene.slack.socket_mode.delivery.offer(Envelope("half", "events_api", payload))
    assert (await scene.sessions.next_run()).prompt == "a ? b"
