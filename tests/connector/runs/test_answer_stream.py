"""People see an answer while it is written. It is complete once, also if its stream fails."""

from __future__ import annotations

import asyncio
import time
from contextlib import asynccontextmanager

import pytest
from fake_web_api import FakeWebClient
from profiled import noting_calls
from virtual_time import in_virtual_time

from connector import Persona, SlackOptions
from connector.events import SlackMessage
from connector.records import PendingMessage, RunRecord
from connector.runs.answer_stream import AnswerStream
from connector.runs.background_tasks import BackgroundTasks
from connector.slack_api.client import SlackClient
from connector.slack_api.rate_limiter import RateLimiter
from local_slack import DropAfterCall, DropBeforeCall, ErrorResponse, LocalSlack, RateLimited, ServerError

START, APPEND, STOP = "chat.startStream", "chat.appendStream", "chat.stopStream"
FIRST = "The first sentence is here. "
WHOLE = f"{FIRST}The second one tells <@U0BEN> more."
SHOWN = WHOLE.replace("<", "&lt;").replace(">", "&gt;")


class MovableClock:
    def __init__(self) -> None:
        self.ahead_s = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead_s


@pytest.fixture
def clock():
    return MovableClock()


@pytest.fixture
async def slack(clock):
    async with LocalSlack(limits=None, clock=clock) as slack:
        yield slack


@pytest.fixture
async def chat(process):
    async with process(options=SlackOptions(stream=True, status_interval_s=0.05)) as chat:
        yield chat
        chat.slack.faults.clear()
        for hold in chat.holds:
            hold.set()


def texts_of(thread):
    """The Markdown of each message of the bot that has some, and the text of the others."""
    return [
        "".join(block["text"] for block in each.blocks if block["type"] == "markdown") or each.text
        for each in thread.posts
    ]


async def shown(thread, *texts, within_s=10):
    """Wait until the bot's messages are these, apart from the status message."""

    def is_so(_):
        return [each for each in texts_of(thread) if not each.startswith("⚙️")] == [*texts]

    await thread.chat.slack.until(is_so, within_s)


async def written(thread, text=FIRST, at=0, part=1):
    await thread.run.progress("writing:text", part=part, at=at, text=text)


async def begun(chat):
    """Start a run whose first sentence is in the thread."""
    thread = await chat.start_shown()
    await written(thread)
    await shown(thread, FIRST.strip())
    return thread


async def completed(thread, *texts):
    await thread.ended()
    assert texts_of(thread) == [*texts]
    assert not any(
        thread.chat.slack.workspace.streams.is_open(thread.posts[0].channel, each.ts) for each in thread.posts
    )


async def test_an_answer_is_shown_while_it_is_written_and_completed_in_its_message(chat):
    thread = await begun(chat)
    (ts,) = [each.ts for each in thread.posts if "⚙️" not in each.text]
    await written(thread, WHOLE[len(FIRST) :], at=len(FIRST))
    await shown(thread, SHOWN)
    await thread.run.answer(WHOLE, part=1)
    await completed(thread, SHOWN)
    assert [each.ts for each in thread.posts] == [ts]
    assert not thread.posts[0].edited
    assert thread.posts[0].metadata["event_payload"]["key"].endswith(":1:native")
    assert thread.posts[0].persona.username == "Alpha"


@pytest.mark.parametrize(
    "fault", [DropBeforeCall(), DropAfterCall(), ServerError(503), ErrorResponse("user_not_found")]
)
@pytest.mark.parametrize("method", [APPEND, STOP, "chat.update"])
async def test_a_streamed_answer_is_complete_once_whatever_slack_does(chat, method, fault):
    thread = await chat.start_shown()
    if method != APPEND:
        await written(thread)
        await shown(thread, FIRST.strip())
    if method == "chat.update":  # it is needed only if the stream cannot be stopped
        chat.fail(STOP, ErrorResponse("fatal_error"))
    chat.fail(method, fault)
    await written(thread)
    await thread.run.answer(WHOLE, part=1)
    await completed(thread, SHOWN)


@pytest.mark.parametrize(
    "fault",
    [DropBeforeCall(), ServerError(503), ErrorResponse("missing_recipient_user_id"), ErrorResponse("fatal_error")],
)
async def test_an_answer_without_a_stream_is_posted(chat, fault):
    thread = await chat.start_shown()
    chat.fail(START, fault)
    await written(thread)
    await chat.slack.until(lambda _: chat.calls(START))
    await thread.run.answer(WHOLE, part=1)
    await thread.ended()
    assert thread.texts == [SHOWN]


async def test_a_stream_whose_start_was_not_answered_is_removed(process):
    async with process(options=SlackOptions(stream=True), calls_late_s=0.3) as chat:
        thread = await chat.start_shown()
        chat.fail(START, DropAfterCall())
        await written(thread)
        await chat.slack.until(lambda _: len(thread.posts) == 2)
        await thread.run.answer(WHOLE, part=1)
        await shown(thread, SHOWN)
        later = await chat.start_shown()
        await written(later)
        await shown(later, FIRST.strip())
        await later.run.answer(WHOLE, part=1)
        await completed(later, SHOWN)


async def test_a_stream_of_a_replaced_text_that_is_reported_late_costs_no_later_run_its_answer(process, sessions):
    options = {"options": SlackOptions(stream=True), "calls_late_s": 0.3}
    async with process(**options) as chat:
        thread = await chat.start_shown()
        start = chat.hold(START)
        await written(thread, "Now I look it up. ")
        await start.reached.wait()
        await written(thread, "Here it is. ", part=2)  # the text before was for the agent only
        await thread.run.answer("Here it is. So.", part=2)
        await thread.ended()
        await thread.say("and now?")
        await thread.next_run()
        await thread.status()
        await thread.run.deliver()
        start.set()
        await chat.acknowledged()
    async with process(**options):
        run = await sessions.next_run()
        await run.answer("Now it is so.")
        await shown(thread, "Here it is. So.", "Now it is so.")


async def test_a_workspace_without_streams_is_asked_once(chat):
    thread = await chat.start_shown()
    chat.fail(START, ErrorResponse("unknown_method"))
    await written(thread)
    await chat.slack.until(lambda _: chat.calls(START))
    await thread.run.answer(WHOLE, part=1)
    await thread.ended()
    other = await chat.start_shown()
    await written(other)
    await other.run.answer(WHOLE, part=1)
    await other.ended()
    assert len(chat.calls(START)) == 1
    assert other.texts == [SHOWN]


async def test_a_rate_limit_delays_what_is_shown_and_no_answer(chat):
    thread = await chat.start_shown()
    chat.fail(APPEND, RateLimited(1), times=2)
    await written(thread)
    await shown(thread, FIRST.strip())
    await thread.run.answer(WHOLE, part=1)
    await completed(thread, SHOWN)


async def test_text_before_a_tool_call_is_replaced_by_the_next(chat):
    thread = await begun(chat)
    await thread.run.progress("tool:start", tool="read", id="a", label="Reading")
    await thread.run.progress("tool:end", tool="read", id="a", label="Reading", outcome="finished", success=True)
    await written(thread, "Now I know it. ")
    await shown(thread, "Now I know it.")
    await thread.run.answer("Now I know it. It is so.", part=1)
    await completed(thread, "Now I know it. It is so.")


async def test_text_before_a_tool_call_is_gone_when_the_answer_is_short(chat):
    thread = await begun(chat)
    await thread.run.answer("Short.", part=1)
    await completed(thread, "Short.")


async def test_the_texts_of_a_run_are_completed_one_by_one(chat):
    thread = await begun(chat)
    await thread.inject("and this?")
    await thread.run.progress("text", text=WHOLE, part=1)
    await shown(thread, SHOWN)
    await thread.run.deliver()
    await written(thread, "To that: yes. ", part=2)
    await shown(thread, SHOWN, "To that: yes.")
    await thread.run.answer("To that: yes. Always.", part=2)
    await completed(thread, SHOWN, "To that: yes. Always.")


async def test_a_text_that_turns_out_otherwise_replaces_what_is_shown(chat):
    thread = await begun(chat)
    await thread.run.answer("Another answer, after a retry.", part=1)
    await completed(thread, "Another answer, after a retry.")


async def test_a_stopped_answer_keeps_its_complete_sentences(chat):
    thread = await begun(chat)
    await thread.stop()
    await thread.run.answer(FIRST, status="cancelled", part=1)
    await thread.ended()
    assert texts_of(thread)[0] == f"{FIRST}…"
    assert texts_of(thread)[1].startswith("🛑")


async def test_a_text_for_which_a_stopped_loop_does_not_wait_is_complete(chat):
    thread = await begun(chat)
    appending = chat.hold(APPEND)
    await written(thread, WHOLE[len(FIRST) :], at=len(FIRST))
    await appending.reached.wait()
    telling = asyncio.create_task(thread.run.progress("text", text=WHOLE, part=1))
    await thread.stop()
    telling.cancel()  # as the loop does soon after a stop
    appending.set()
    await thread.run.answer("", status="cancelled", part=2)
    await completed(thread, SHOWN, "🛑 Stopped by Ana.")


async def test_the_stop_button_of_slack_stops_the_run_of_a_stream(chat):
    thread = await begun(chat)
    await chat.ana.stop_session("general", thread.ts)
    await thread.run.stopped()
    await thread.run.answer(FIRST, status="cancelled", part=1)
    await thread.ended()
    assert texts_of(thread)[0] == f"{FIRST}…"


async def test_a_stop_that_only_the_stream_tells_stops_the_run(chat):
    thread = await begun(chat)
    chat.fail(APPEND, ErrorResponse("stopped_by_user"))
    await written(thread, WHOLE[len(FIRST) :], at=len(FIRST))
    await thread.run.stopped()


async def test_a_stream_that_slack_ends_goes_on_in_another_message(chat, clock):
    code = "See:\n\n```py\na = 1\n"
    thread = await chat.start_shown()
    await written(thread, code)
    await shown(thread, "See:\n\n```py\na = 1")
    clock.ahead_s = 301
    await written(thread, "b = 2\n", at=len(code))
    await shown(thread, "See:\n\n```py\na = 1", "```py\nb = 2", within_s=20)
    await thread.run.answer(f"{code}b = 2\n```\n\nThat is all.", part=1)
    await completed(thread, "See:\n\n```py\na = 1", "```py\nb = 2\n```\n\nThat is all.")


class Lease:
    """A lease that stays valid."""

    async def confirm(self) -> None:
        pass


@asynccontextmanager
async def streaming(slack, kept, stopped):
    message = SlackMessage("T1", "C1", "1.0", None, "U1", "look", (), direct=False)
    record = RunRecord("run", PendingMessage(message, "alpha", "look", message.id), was_waiting=False, newest_ts="1.0")

    async def keep(streams):
        kept.append(streams)

    async with (
        RateLimiter("T1") as rate_limiter,
        BackgroundTasks(SlackClient(slack, rate_limiter), options=SlackOptions(stream=True)) as background,
    ):
        yield AnswerStream(
            background,
            Lease(),
            record,
            Persona("Alpha", ":owl:"),
            keep=keep,
            is_allowed=lambda: True,
            on_stopped=lambda: stopped.append(1),
        )


@in_virtual_time
async def test_before_slack_ends_a_stream_the_text_goes_on_in_another_message():
    slack, kept, stopped = FakeWebClient(), [], []
    async with streaming(slack, kept, stopped) as stream:
        text = "See:\n\n```py\na = 1\n"
        stream.on_text(1, 0, text)
        for line in range(6):
            await asyncio.sleep(50)
            stream.on_text(1, len(text), f"b = {line}\n")
            text += f"b = {line}\n"
        await asyncio.sleep(5)
        native, shown = await stream.hand_over(1, f"{text}```")
    (ended,) = slack.calls_of("chat.stopStream")
    assert [each["markdown_text"] for each in slack.calls_of("chat.appendStream")] == [
        "See:\n\n```py\na = 1",
        "\nb = 0",
        "\nb = 1",
        "\nb = 2",
        "\nb = 3",
        "```py\nb = 4",
        "\nb = 5",
    ]
    assert (ended["ts"], ended["markdown_text"]) == ("2.0", "\n```")
    assert ":1:native.0" in ended["metadata"]
    assert all(240 <= at_s < 300 for at_s in slack.times_s("chat.stopStream"))
    assert kept == [("2.0",), ("2.0", "3.0")]
    assert [(each.ts, each.is_ended) for each in shown] == [("2.0", True), ("3.0", False)]
    assert native[shown[1].at :] == "\nb = 4\nb = 5\n```"
    assert not stopped


@in_virtual_time
async def test_a_text_that_is_too_long_for_a_stream_is_no_longer_converted():
    slack = FakeWebClient()
    async with streaming(slack, [], []) as stream:
        text = "See:\n\n- one\n"
        stream.on_text(1, 0, text)
        await asyncio.sleep(5)
        stream.on_text(1, len(text), more := "- one more item\n" * 1000)
        await asyncio.sleep(5)
        with noting_calls() as called:
            stream.on_text(1, len(text + more), "- two\n")
            await asyncio.sleep(5)
    assert len(slack.calls_of("chat.appendStream")) == 1
    assert "on_text" in called
    assert "parse" not in called


async def test_an_answer_whose_stream_slack_has_ended_is_complete(chat, clock):
    thread = await begun(chat)
    clock.ahead_s = 301
    await thread.run.answer(WHOLE, part=1)
    await completed(thread, SHOWN)


async def test_a_message_that_an_admin_deletes_is_posted_again(chat):
    thread = await begun(chat)
    (streamed,) = [each for each in thread.posts if "⚙️" not in each.text]
    chat.slack.workspace.delete("general", streamed.ts, streamed.bot)
    await thread.run.answer(WHOLE, part=1)
    await thread.ended()
    assert texts_of(thread) == [SHOWN]


async def test_a_long_answer_is_a_file_and_its_stream_is_removed(chat):
    thread = await begun(chat)
    await thread.run.answer(f"{FIRST}\n\n{'words and words ' * 2000}", part=1)
    await thread.ended()
    assert [len(each.body.files) for each in thread.posts] == [1, 0]


async def test_in_a_channel_that_is_shared_with_another_workspace_answers_are_posted(chat):
    ts = await chat.ana.say("general", "look")
    chat.deliver(chat.posted(ts, f"<@{chat.slack.bot_user_id}> look"), is_ext_shared_channel=True)
    run = await chat.sessions.next_run()
    await run.progress("writing:text", part=1, at=0, text=FIRST)
    await run.answer(WHOLE, part=1)
    await chat.slack.until(lambda ws: [each.text for each in ws.thread("general", ts)][1:] == [SHOWN])
    assert not chat.calls(START)
