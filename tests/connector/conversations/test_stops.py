from __future__ import annotations

import pytest


async def by_word(thread, status) -> None:
    await thread.say("stop", who="ben")


async def by_cross_on_the_status(thread, status) -> None:
    await thread.cross(status.ts, who="ben")


async def by_cross_on_the_first_message(thread, status) -> None:
    await thread.cross(who="ben")


async def by_the_button_of_slack(thread, status) -> None:
    await thread.chat.ben.stop_session(thread.channel, thread.ts)


async def by_the_button_of_the_status(thread, status) -> None:
    await thread.chat.ben.click(thread.channel, status.ts, "stop")


WAYS = [
    by_word,
    by_cross_on_the_status,
    by_cross_on_the_first_message,
    by_the_button_of_slack,
    by_the_button_of_the_status,
]


@pytest.mark.parametrize(
    ("first", "second"), [*zip(WAYS, [*WAYS[1:], WAYS[0]], strict=True)], ids=lambda way: way.__name__
)
async def test_the_first_stop_is_graceful_and_the_second_immediate_in_every_way(chat, first, second):
    thread = await chat.start()
    status = await thread.status()
    await first(thread, status)
    await thread.run.stopped(False)
    await second(thread, status)
    await thread.run.stopped(False, True)
    await thread.run.answer("", status="cancelled")
    await thread.shows("🛑 Stopped by Ben.")


@pytest.mark.parametrize("word", ["Stop!", "alpha: stop", "!stop", "! Stop!", "alpha: !halt", "@alpha !cancel."])
async def test_a_stop_word_stops_and_is_not_injected(chat, word):
    thread = await chat.start()
    await thread.say(word)
    await thread.run.until(lambda r: bool(r.stops or r.injections))
    assert (thread.run.stops, thread.run.injections) == ([False], [])


@pytest.mark.parametrize("text", ["stop at the third chapter", "stop\nthen continue"])
async def test_a_sentence_with_the_word_stop_is_injected(chat, text):
    thread = await chat.start()
    await thread.inject(text)
    assert thread.run.stops == []


async def test_a_stop_word_without_a_run_is_answered(chat):
    thread = await chat.start()
    await thread.run.answer("done")
    await thread.shows("done")
    await thread.say("stop")
    await thread.contains("Nothing is running here.")
    assert chat.sessions.idle


async def test_other_reactions_and_crosses_on_other_messages_have_no_effect(chat):
    thread = await chat.start()
    status = await thread.status()
    await chat.ana.react("general", status.ts, "eyes")
    await (await chat.say("not for an agent")).cross()
    await is_not_stopped(thread)


async def is_not_stopped(thread, *stops: bool) -> None:
    """Check that the events before have added no stop."""
    await thread.chat.acknowledged()
    await thread.accept("a steer")
    assert thread.run.stops == [*stops]


def click(thread, status, *, at_s: float = 0, run: str = "") -> dict:
    """Return what Slack sends after a click on the button of a status message."""
    run = run or status.body.metadata["event_payload"]["key"].partition(":status")[0]
    place = {"message_ts": status.ts, "channel_id": thread.chat.general, "thread_ts": thread.ts}
    return {
        "type": "block_actions",
        "team": {"id": thread.chat.slack.team_id},
        "user": {"id": thread.chat.ben.person.id, "team_id": thread.chat.slack.team_id},
        "container": {"type": "message", **place},
        "channel": {"id": thread.chat.general},
        "message": {"user": thread.chat.slack.bot_user_id, "ts": status.ts, "thread_ts": thread.ts},
        "actions": [{"action_id": "stop", "value": run, "action_ts": f"{at_s or float(status.ts) + 60:.6f}"}],
    }


def cross(thread) -> dict:
    """Return the event of a ❌ on the first message."""
    item = {"type": "message", "channel": thread.chat.general, "ts": thread.ts}
    at = f"{float(thread.ts) + 1:.6f}"
    return {"type": "reaction_added", "user": "U0ANA", "reaction": "x", "item": item, "event_ts": at}


@pytest.mark.parametrize("is_click", [True, False])
async def test_a_stop_that_slack_delivers_twice_is_one_stop(chat, is_click):
    thread = await chat.start()
    status = await thread.status()
    for _ in range(2):
        if is_click:
            chat.deliver_payload(click(thread, status), "interactive")
        else:
            chat.deliver(cross(thread))
    await thread.run.stopped()
    await is_not_stopped(thread, False)


@pytest.mark.parametrize("fields", [{"run": "a-run-of-yesterday"}, {"at_s": 1.0}], ids=["another run", "older"])
async def test_a_click_on_the_status_of_an_earlier_run_stops_nothing(chat, fields):
    thread = await chat.start()
    chat.deliver_payload(click(thread, await thread.status(), **fields), "interactive")
    await is_not_stopped(thread)


async def test_a_cross_and_an_earlier_stop_word_in_the_thread_of_a_later_run_stop_nothing(chat):
    thread = await chat.start()
    await thread.run.answer("ok")
    await thread.shows("ok")
    await thread.say("continue")
    await thread.next_run()
    await thread.cross()
    chat.deliver(chat.posted(f"{float(thread.ts) + 0.000001:.6f}", "stop", thread_ts=thread.ts))
    await is_not_stopped(thread)


async def test_the_button_of_slack_in_another_thread_stops_nothing(chat):
    thread, other = await chat.start(), await chat.say("another thread")
    await chat.ana.stop_session("general", other.ts)
    await is_not_stopped(thread)


@pytest.mark.parametrize("has_replies", [False, True])
async def test_a_click_in_a_direct_message_stops_the_run_of_the_channel(chat, has_replies):
    dm = await chat.ana.open_dm("alpha")
    thread = await chat.start("hello", dm)
    status = await chat.slack.until(lambda ws: next((m for m in ws.messages(dm) if m.by_bot and "⚙️" in m.text), None))
    payload = click(thread, status)
    payload["channel"] = {"id": dm}
    payload["container"] = {"type": "message", "message_ts": status.ts, "channel_id": dm}
    payload["message"] = {"ts": status.ts, **({"thread_ts": status.ts} if has_replies else {})}
    chat.deliver_payload(payload, "interactive")
    await thread.run.stopped()
