"""Calls of a dead process that reach Slack after the takeover: their effects are removed."""

from __future__ import annotations

import pytest
from chat import HOURGLASS

from local_slack.workspace.messages import Body

FOREVER_S = 3600.0


@pytest.fixture
def process(process):
    """A process that looks for late calls after `calls_late_s`, and ends while its own are in flight."""
    return lambda calls_late_s=0.0: process(calls_late_s=calls_late_s)


async def test_the_earlier_copy_of_an_answer_remains(process):
    async with process() as chat:
        thread = await chat.start_shown()
        post = chat.hold("chat.postMessage")
        await thread.run.answer("the answer", part=1)
        await post.reached.wait()
    lookup, check = chat.hold("conversations.replies"), chat.hold("conversations.replies")
    async with process():
        await lookup.reached.wait()
        lookup.set()
        await check.reached.wait()
        (answer,) = thread.posts
        post.set()
        await chat.slack.until(lambda _: thread.texts == ["the answer"] * 2)
        check.set()
        await chat.slack.until(lambda _: [m.ts for m in thread.posts] == [answer.ts])


async def test_the_earlier_copy_of_a_reply_to_a_stop_word_remains(process):
    async with process() as chat:
        thread = await chat.start_shown()
        await thread.run.answer("the answer", part=1)
        await thread.shows("the answer")
        post = chat.hold("chat.postMessage")
        await thread.say("stop")
        await post.reached.wait()
    lookup, check = chat.hold("conversations.replies"), chat.hold("conversations.replies")
    async with process():
        await lookup.reached.wait()
        lookup.set()
        await check.reached.wait()
        _, reply = thread.posts
        post.set()
        await chat.slack.until(lambda _: len(thread.texts) == 3)
        check.set()
        await chat.slack.until(lambda _: [m.ts for m in thread.posts][1:] == [reply.ts])


async def test_a_late_status_message_is_removed(process, slack):
    async with process() as chat:
        post = chat.hold("chat.postMessage")
        thread = await chat.start()
        await post.reached.wait()
    async with process():
        run = await thread.next_run()
        await run.progress("thinking", iteration=1)
        await thread.status()
        post.set()
        await slack.until(lambda _: len(thread.texts) == 2)
        await run.answer("the answer", part=1)
        await thread.shows("the answer")


async def test_a_late_status_message_of_a_deleted_thread_is_removed(process, slack):
    async with process() as chat:
        post = chat.hold("chat.postMessage")
        thread = await chat.start()
        await post.reached.wait()
    async with process():
        run = await thread.next_run()
        check = chat.hold("conversations.replies")
        await thread.delete(thread.ts)
        await run.until(lambda run: bool(run.stops))
        await run.answer("", status="cancelled")
        await check.reached.wait()
        post.set()
        await slack.until(lambda ws: len(ws.messages(chat.general)) == 1)
        check.set()
        await slack.until(lambda ws: not ws.messages(chat.general))


async def test_a_late_hourglass_is_removed(process):
    async with process() as chat:
        mark = chat.hold("reactions.add")
        thread = await chat.start()
        await mark.reached.wait()
    async with process():
        run = await thread.next_run()
        await thread.marked(thread.ts, HOURGLASS)
        check = chat.hold("conversations.replies")
        await run.answer("the answer", part=1)
        await check.reached.wait()
        await thread.marked(thread.ts, HOURGLASS, gone=True)
        mark.set()
        await thread.marked(thread.ts, HOURGLASS)
        check.set()
        await thread.marked(thread.ts, HOURGLASS, gone=True)


@pytest.mark.parametrize("is_shared_again", [False, True])
async def test_the_earlier_copy_of_a_file_remains(process, slack, is_shared_again):
    def files() -> list[str]:
        return [file.id for m in thread.posts for file in m.body.files if slack.workspace.file(file.id)]

    async with process() as chat:
        thread = await chat.start_shown()
        share = chat.hold("files.completeUploadExternal")
        long = "# Report\n\nIt begins.\n\n## Findings\n\n" + "paragraph " * 3000
        await thread.run.progress("text", text=long, part=1)
        await share.reached.wait()
    async with process():
        run = await thread.next_run()
        (kept,) = await slack.until(lambda _: files())
        if is_shared_again:
            body = Body("see this", files=(slack.workspace.file(kept),))
            slack.workspace.post(chat.general, slack.person("ana"), body, thread_ts=thread.ts)
        await thread.contains("whole answer")
        check = chat.hold("conversations.replies")
        await run.answer("the answer", part=2)
        await check.reached.wait()
        share.set()
        await slack.until(lambda _: len(files()) == 2)
        check.set()
        await slack.until(lambda _: files() == [kept])


async def test_a_process_does_not_wait_for_late_calls_at_its_end_and_the_next_one_removes_their_effects(process):
    async with process() as chat:
        post = chat.hold("chat.postMessage")
        thread = await chat.start()
        await post.reached.wait()
    async with process(FOREVER_S):
        await (await thread.next_run()).answer("the answer", part=1)
        await thread.shows("the answer")
        await thread.say("and now?")
        await (await thread.next_run()).answer("it begins at once")
        await thread.shows("the answer", "it begins at once")
    post.set()
    await chat.slack.until(lambda _: len(thread.texts) == 3)
    async with process():
        await thread.shows("the answer", "it begins at once")
