from __future__ import annotations

import asyncio
from itertools import count

import pytest
from held_sessions import HeldSessions

from connector import Instance, Persona, RunFailed, SlackCredentials, SocketTransport, connected
from local_slack.delivery.delivery import Envelope
from service.runs.runs import StoredRuns

ALPHA = Instance("alpha", Persona("Alpha", ":owl:"))

_numbers = count(1)


def deliver(scene, event: dict, times: int = 1) -> None:
    """Hand the app an event of Slack's, as often as Slack may."""
    number = next(_numbers)
    payload = {"type": "event_callback", "team_id": scene.slack.team_id, "event_id": f"Ev{number}", "event": event}
    for attempt in range(times):
        scene.slack.socket_mode.delivery.offer(Envelope(f"test-{number}-{attempt}", "events_api", payload, attempt))


def posted_event(scene, ts: str, kind: str, **fields) -> dict:
    bot = scene.slack.bot_user_id
    return {
        "type": kind,
        "user": scene.slack.person("ana").id,
        "text": f"<@{bot}> look",
        "ts": ts,
        "event_ts": ts,
        "team": scene.slack.team_id,
        "channel": scene.slack.channel("general").id,
        **fields,
    }


async def all_taken(scene) -> None:
    await scene.slack.until(lambda _: not scene.slack.socket_mode.delivery.outstanding)


async def next_is(scene, prompt: str) -> None:
    """Nothing has started a run before this message did."""
    await all_taken(scene)
    await scene.ana.say("random", f"@alpha {prompt}")
    assert (await scene.sessions.next_run()).prompt == prompt


@pytest.mark.parametrize("order", [("message", "app_mention"), ("app_mention", "message")])
async def test_a_mention_is_one_message_in_whatever_order_and_how_often_its_events_come(scene, order):
    for kind in order:
        deliver(scene, posted_event(scene, "1700000000.000100", kind), times=3)
    assert (await scene.sessions.next_run()).prompt == "look"
    await next_is(scene, "elsewhere")
    assert scene.sessions.prompts == ["look", "elsewhere"]


async def test_a_steer_that_is_delivered_again_after_the_run_starts_no_second_one(scene):
    ts = await scene.ana.say("general", "@alpha look")
    run = await scene.sessions.next_run()
    steer = await scene.ana.say("general", "and that", thread=ts)
    await run.until(lambda r: len(r.steers) == 1)
    await run.read_steers()
    await run.answer("ok")
    await scene.quiet("general", ts)
    deliver(scene, posted_event(scene, steer, "message", text="and that", thread_ts=ts))
    deliver(scene, posted_event(scene, ts, "message"))
    await next_is(scene, "elsewhere")


@pytest.mark.parametrize(
    "fields",
    [
        {"bot_id": "B0OTHER"},
        {"bot_id": "B0OTHER", "subtype": "bot_message"},
        {"subtype": "channel_join"},
        {"subtype": "message_changed", "hidden": True},
        {"subtype": "message_deleted", "hidden": True},
        {"subtype": "tombstone"},
        {"subtype": "channel_topic"},
        {"user": None},
        {"text": ""},
        {"text": None},
    ],
)
async def test_what_no_person_wrote_starts_nothing(scene, fields):
    deliver(scene, posted_event(scene, "1700000000.000200", "message", **fields))
    if "bot_id" in fields:
        deliver(scene, posted_event(scene, "1700000000.000200", "app_mention", bot_id="B0OTHER"))
    await next_is(scene, "elsewhere")


async def test_edits_deletions_and_reactions_are_acknowledged_and_start_nothing(scene):
    ts = await scene.ana.say("general", "good morning")
    await scene.ana.edit("general", ts, "@alpha good morning")
    await scene.ana.react("general", ts, "x")
    await scene.ana.unreact("general", ts, "x")
    await scene.ana.delete("general", ts)
    await scene.ana.call("conversations.create", name="new")
    await next_is(scene, "elsewhere")


async def test_a_reply_that_is_also_sent_to_the_channel_steers_once(scene):
    ts = await scene.ana.say("general", "@alpha look")
    run = await scene.sessions.next_run()
    await scene.ana.say("general", "for all to see", thread=ts, broadcast=True)
    await run.until(lambda r: len(r.steers) == 1)
    await next_is(scene, "elsewhere")
    assert [s.text for s in run.steers] == ["for all to see"]


async def test_a_thread_in_a_direct_message_is_a_conversation_of_its_own_and_answered_there(scene):
    dm = await scene.ana.open_dm("alpha")
    root = await scene.ana.say(dm, "hello")
    run = await scene.sessions.next_run()
    await run.answer("hi")
    await scene.ana.say(dm, "in the thread", thread=root)
    below = await scene.sessions.next_run()
    assert below.conversation != run.conversation
    await below.answer("hi below")
    await scene.posted(dm, root, "hi below")


async def test_a_late_message_that_gets_a_run_of_its_own_shows_that_it_was_read(scene):
    ts = await scene.ana.say("general", "@alpha look")
    first = await scene.sessions.next_run()
    first.listening = False
    late = await scene.ana.say("general", "late", thread=ts)
    await scene.reacted("general", late, "incoming_envelope")
    await first.answer("first answer")
    await (await scene.sessions.next_run()).answer("second answer")
    await scene.posted("general", ts, "second answer")
    await scene.slack.until(lambda _: scene.message("general", late).reacted("eyes"), 3)


async def test_a_message_that_takes_waiting_ones_along_shows_that_it_was_accepted(scene):
    scene.sessions.hold_setup = asyncio.Event()
    scene.sessions.setup_errors = [RunFailed("The files of this conversation cannot be used.")]
    ts = await scene.ana.say("general", "@alpha look")
    await scene.reacted("general", ts, "hourglass_flowing_sand")
    early = await scene.ana.say("general", "and this", thread=ts)
    await scene.reacted("general", early, "incoming_envelope")
    await scene.ana.say("general", "stop", thread=ts)
    await all_taken(scene)
    scene.sessions.hold_setup.set()
    await scene.posted("general", ts, "⚠️")
    await scene.reacted("general", ts, "hourglass_flowing_sand", gone=True)
    trigger = await scene.ana.say("general", "go on", thread=ts)
    run = await scene.sessions.next_run()
    assert (run.prompt, [s.text for s in run.steers]) == ("and this", ["go on"])
    await scene.slack.until(lambda _: scene.message("general", trigger).reacted("incoming_envelope"), 3)
    await run.answer("ok")


async def test_a_set_up_that_fails_is_told_and_what_was_written_meanwhile_gets_a_run(scene):

    scene.sessions.hold_setup = asyncio.Event()
    scene.sessions.setup_errors = [RunFailed("The files of this conversation cannot be used.")]
    ts = await scene.ana.say("general", "@alpha look")
    await scene.reacted("general", ts, "hourglass_flowing_sand")
    early = [await scene.ana.say("general", f"early {n}", thread=ts) for n in range(2)]
    await scene.reacted("general", early[-1], "incoming_envelope")
    scene.sessions.hold_setup.set()
    run = await scene.sessions.next_run()
    assert (run.prompt, [s.text for s in run.steers]) == ("early 0", ["early 1"])
    await run.answer("ok")
    texts = [m.text for m in await scene.quiet("general", ts, posts=2) if m.by_bot]
    assert texts == ["⚠️ The files of this conversation cannot be used.", "ok"]


async def test_messages_while_the_view_closes_get_one_run_together_in_their_order(scene, hold):
    ts = await scene.ana.say("general", "@alpha look")
    first = await scene.sessions.next_run()
    await scene.status("general", ts)
    post = hold("chat.postMessage")
    await first.answer("first answer")
    for number in range(3):
        await scene.slack.as_person("ana" if number % 2 else "ben").say("general", f"late {number}", thread=ts)
    await all_taken(scene)
    post.set()
    second = await scene.sessions.next_run()
    await second.until(lambda r: len(r.steers) == 2)
    assert [second.prompt, *(s.text for s in second.steers)] == ["late 0", "late 1", "late 2"]
    await second.answer("second answer")
    replies = [m.text for m in await scene.quiet("general", ts, posts=2) if m.by_bot]
    assert replies == ["first answer", "second answer"]


async def test_a_mention_without_words_is_asked_back_once_whichever_processes_hear_of_it(slack, store):
    access = SlackCredentials(slack.bot_token, slack.api_url, SocketTransport(slack.app_token))
    async with (
        StoredRuns(store, "one", 10) as one,
        StoredRuns(store, "another", 10) as another,
        connected(access, [ALPHA], HeldSessions(), one, shutdown_grace_s=0.5),
        connected(access, [ALPHA], HeldSessions(), another, shutdown_grace_s=0.5),
    ):
        await slack.until(lambda ws: ws.bot_online)
        roots = [await slack.as_person("ana").say("general", "@alpha") for _ in range(6)]
        await slack.until(lambda _: not slack.socket_mode.delivery.outstanding)
        general = slack.channel("general").id
        for root in roots:
            await slack.until(lambda ws, root=root: len(ws.thread(general, root)) > 1)
    assert [len(slack.workspace.thread(general, root)) for root in roots] == [2] * 6
