"""The cleanup after a run waits for Slack without a limit. It removes the effects of calls of a dead process."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field, replace

import pytest
from chat import HOURGLASS
from fake_web_api import FakeWebClient
from virtual_time import in_virtual_time

from connector.conversations.cleanup import Cleanup
from connector.events import SlackMessage, ThreadAddress
from connector.formatting.content import Content
from connector.formatting.inline import escape
from connector.protocols import Claim, InboxEntry, StateChanges
from connector.records import Notice, RunArtifacts, ThreadNotice, parse_run_record
from connector.runs.background_tasks import BackgroundTasks
from connector.slack_api.client import SlackClient
from connector.slack_api.rate_limiter import RateLimiter
from local_slack import DropAfterCall, DropBeforeCall, ErrorResponse
from local_slack.workspace.messages import Body

MESSAGE = SlackMessage("T1", "C1", "1.0", None, "U1", "look", (), direct=False)
ARTIFACTS = RunArtifacts("C1", "1.0", ("2.0",), has_hourglass=True, team="T1", thread_ts="1.0", run_id="run")
NOTICE = Notice(MESSAGE, "T1:C1:1.0:stopped", "🛑 Stopped by Ben.")
STOP = InboxEntry("stop", "stop", {}, 7)
BOTH = (ARTIFACTS, NOTICE)


@dataclass
class Lease:
    """A valid lease, and the changes written under it."""

    claim: Claim = field(default_factory=lambda: Claim(1))
    written: list[StateChanges] = field(default_factory=list)

    async def confirm(self) -> None:
        pass

    async def write(self, changes: StateChanges) -> None:
        self.written.append(changes)


@asynccontextmanager
async def cleaning(slack: FakeWebClient, lease: Lease | None = None):
    async with RateLimiter("T1") as rate_limiter, BackgroundTasks(SlackClient(slack, rate_limiter)) as background:
        yield Cleanup(lease or Lease(), background)


async def all_done(cleanup: Cleanup) -> None:
    await cleanup.done(asyncio.Event())


@in_virtual_time
async def test_the_cleanup_is_stored_in_one_write_with_the_end_of_the_run_and_deleted_when_it_is_done():
    slack, lease = FakeWebClient(), Lease()
    async with cleaning(slack, lease) as cleanup:
        await cleanup.end_run({1: ""}, BOTH, held_seq=4)
        assert cleanup.pending == BOTH
        await cleanup.recent_done()
        assert not cleanup.pending
        await cleanup.keep()
    record = {"cleanup": [asdict(each) for each in BOTH]}
    assert lease.written == [StateChanges(run=record, closed={1: ""}, held_seq=4), StateChanges(run={})]
    assert parse_run_record(json.loads(json.dumps(record))) == BOTH
    assert slack.texts == [NOTICE.text]


@pytest.mark.parametrize("pending", [(NOTICE,), (ARTIFACTS,)])
@in_virtual_time
async def test_the_cleanup_waits_until_slack_is_available(pending):
    slack = FakeWebClient("service_unavailable")
    async with cleaning(slack) as cleanup:
        await cleanup.end_run({}, pending)
        await asyncio.sleep(600)
        assert cleanup.pending == pending
        slack.error = ""
        await all_done(cleanup)
        assert not cleanup.pending
    assert len(slack.texts) == pending.count(NOTICE)


@in_virtual_time
async def test_the_entry_of_a_stop_word_is_open_until_slack_has_the_reply():
    slack, lease = FakeWebClient("service_unavailable"), Lease()
    async with cleaning(slack, lease) as cleanup:
        cleanup.answer(STOP, ThreadNotice(MESSAGE, "Nothing is running."))
        await asyncio.sleep(600)
        assert lease.written == []
        slack.error = ""
        await all_done(cleanup)
    assert slack.texts == ["Nothing is running."]
    assert lease.written == [StateChanges(closed={7: "done"})]


@in_virtual_time
async def test_a_call_that_slack_refuses_is_not_repeated():
    lease = Lease()
    async with cleaning(FakeWebClient("channel_not_found"), lease) as cleanup:
        await cleanup.end_run({}, BOTH)
        cleanup.answer(STOP, ThreadNotice(MESSAGE, "Nothing is running."))
        cleanup.resume((replace(ARTIFACTS, first_ts="0.5"), replace(NOTICE, key="another")))
        await all_done(cleanup)
        assert not cleanup.pending
    assert lease.written[-1] == StateChanges(closed={7: "done"})


async def test_a_long_notice_is_posted_in_several_messages_each_once(slack, client):
    message = replace(MESSAGE, team="T0LOCAL", channel="C0GENERAL", ts=await slack.as_person("ana").say("general", "a"))
    lines = "\n".join(f"{number}: R&D needs <5 days" for number in range(300))
    notice = Notice(message, "T1:C1:1.0:reply", lines)
    slack.faults.next("chat.postMessage", DropAfterCall())
    async with BackgroundTasks(client, calls_late_s=0) as background:
        cleanup = Cleanup(Lease(), background)
        await cleanup.end_run({}, (notice,))
        await all_done(cleanup)
        cleanup.resume((notice,))
        await all_done(cleanup)
    posts = slack.workspace.thread("general", message.ts)[1:]
    assert "\n".join(each.text for each in posts) == escape(lines)
    assert len(posts) > 1


@pytest.mark.parametrize("pending", [(ARTIFACTS,), (NOTICE,), BOTH])
@in_virtual_time
async def test_an_inherited_cleanup_is_checked_when_no_late_call_can_arrive(pending):
    slack, lease = FakeWebClient(), Lease()
    async with cleaning(slack, lease) as cleanup:
        cleanup.resume(pending)
        await asyncio.sleep(14)
        before = len(slack.times_s("conversations.replies"))
        assert cleanup.pending == tuple(replace(each, is_inherited=True) for each in pending)
        assert before == pending.count(NOTICE), "a notice is looked up before it is posted"
        await all_done(cleanup)
        assert slack.times_s("conversations.replies")[before:] == [15.0]
        assert not cleanup.pending
        await cleanup.keep()
    assert lease.written == [StateChanges(run={})]


@in_virtual_time
async def test_an_inherited_run_is_checked_after_its_end_and_delays_nothing():
    slack = FakeWebClient()
    inherited = replace(ARTIFACTS, is_inherited=True)
    async with cleaning(slack) as cleanup:
        await asyncio.sleep(5)
        await cleanup.end_run({}, (inherited,))
        await cleanup.recent_done()
        assert asyncio.get_running_loop().time() == 5.0
        assert cleanup.pending
        await asyncio.sleep(60)
        await cleanup.end_run({}, (inherited,))
        await all_done(cleanup)
    assert slack.times_s("conversations.replies") == [15.0, 65.0]


@in_virtual_time
async def test_the_end_of_the_process_does_not_wait_for_the_check():
    async with cleaning(FakeWebClient()) as cleanup:
        cleanup.resume((ARTIFACTS,))
        await asyncio.sleep(1)
    assert asyncio.get_running_loop().time() == 1.0


@in_virtual_time
async def test_a_stream_that_was_given_up_is_searched_for_only_when_it_can_no_longer_arrive():
    slack, lease = FakeWebClient(), Lease(Claim(2, entries=(STOP,)))
    async with cleaning(slack, lease) as cleanup:
        cleanup.answer(STOP, ThreadNotice(MESSAGE, "Nothing is running."))
        await asyncio.sleep(10)
        cleanup.expect_late_calls()
        await cleanup.end_run({}, (replace(ARTIFACTS, is_inherited=True),))
        await all_done(cleanup)
    assert slack.times_s("conversations.replies")[-1] >= 25.0


@in_virtual_time
async def test_the_entry_of_an_inherited_reply_is_open_until_no_late_call_can_arrive():
    slack, lease = FakeWebClient(), Lease(Claim(2, entries=(STOP,)))
    async with cleaning(slack, lease) as cleanup:
        cleanup.answer(STOP, ThreadNotice(MESSAGE, "Nothing is running."))
        await asyncio.sleep(14)
        assert slack.texts == ["Nothing is running."]
        assert lease.written == []
        await all_done(cleanup)
    assert lease.written == [StateChanges(closed={7: "done"})]


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


@pytest.mark.parametrize("fault", [DropBeforeCall(), ErrorResponse("internal_error")], ids=str)
@pytest.mark.parametrize("late", ["status", "answer", "notice"])
async def test_a_post_whose_failed_attempt_arrives_late_has_one_copy(process, client, late, fault):
    async with process() as chat:
        if late == "status":
            chat.fail("chat.postMessage", fault)
        thread = await chat.start_shown()
        post = await thread.status()
        if late == "notice":
            await thread.run.answer("the answer", part=1)
            await thread.shows("the answer")
        if late != "status":
            chat.fail("chat.postMessage", fault)
            chat.hold("conversations.replies", times=1 + (late == "notice")).set()  # look-ups
        check = chat.hold("conversations.replies")
        await (thread.say("stop") if late == "notice" else thread.run.answer("the answer", part=1))
        await check.reached.wait()
        kept = [m.ts for m in thread.posts]
        post = post if late == "status" else thread.posts[-1]
        place = ThreadAddress(chat.slack.team_id, chat.general, thread.ts)
        copy = await client.post(place, Content(post.text), post.metadata["event_payload"]["key"])
        assert copy not in kept
        check.set()
        await chat.slack.until(lambda _: [m.ts for m in thread.posts] == kept)


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
