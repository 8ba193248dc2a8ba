from __future__ import annotations

import asyncio
import re
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import aiohttp
import pytest
from fake_web_api import FakeWebClient
from profiled import noting_calls
from virtual_time import in_virtual_time

from connector import Persona, SlackOptions
from connector.events import SlackMessage
from connector.protocols import Claim, LeaseLost
from connector.records import PendingMessage, RunRecord
from connector.runs.outbox import Outbox
from connector.runs.posts import Post, agent_post
from connector.slack_api.canvases import create, show
from connector.slack_api.client import SlackClient
from connector.slack_api.errors import SlackCallFailed
from connector.slack_api.rate_limiter import RateLimiter
from connector.slack_api.streams import Streamed
from connector.slack_api.uploads import file_name
from local_slack import DropAfterCall, DropBeforeCall, ErrorResponse, LocalSlack, RateLimited, ServerError

GET_URL, SHARE = "files.getUploadURLExternal", "files.completeUploadExternal"
CHAPTER = "paragraph " * 500
HEAD = "# Report\n\nIt begins **here**."
LONG = f"{HEAD}\n\n## Findings\n\n{CHAPTER}\n\n## Proof <!channel>\n\n{CHAPTER * 3}\n\n## End\n\nbye"


@pytest.fixture
async def slack():
    async with LocalSlack(limits=None) as slack:
        yield slack


@pytest.mark.parametrize(
    "fault",
    [
        DropBeforeCall(),
        DropAfterCall(),
        ServerError(503),
        ServerError(200),
        RateLimited(0),
        ErrorResponse("fatal_error"),
    ],
)
async def test_an_answer_is_posted_exactly_once_whatever_slack_does(chat, fault):
    thread = await chat.start_shown()
    chat.fail("chat.postMessage", fault)
    await thread.run.answer("the answer")
    await thread.shows("the answer")


@pytest.mark.parametrize("fault", [ServerError(503), DropAfterCall()])
async def test_an_answer_in_doubt_is_posted_once_when_its_look_up_fails_too(chat, fault):
    thread = await chat.start_shown()
    chat.fail("chat.postMessage", fault)
    chat.fail("conversations.replies", ServerError(503), times=4)
    await thread.run.answer("the answer")
    await thread.shows("the answer")


async def test_an_answer_in_doubt_is_found_in_a_direct_message(chat):
    dm = await chat.ana.open_dm("alpha")
    thread = await chat.start("hello", dm)
    await chat.slack.until(lambda ws: [m for m in ws.messages(dm) if m.by_bot])
    chat.fail("chat.postMessage", DropAfterCall())
    await thread.run.answer("hi")
    await chat.slack.until(lambda ws: [m.text for m in ws.messages(dm)] == ["hello", "hi"])


async def test_an_answer_in_doubt_is_found_in_a_thread_of_more_than_a_hundred_replies(chat):
    thread = await chat.say("a long talk")
    for number in range(101):
        await thread.say(f"reply {number}", who="ben")
    await thread.say("@alpha sum this up")
    run = await thread.next_run()
    await thread.status()
    chat.fail("chat.postMessage", DropAfterCall())
    await run.answer("the answer")
    await thread.shows("the answer")


async def test_an_answer_waits_through_several_rate_limits(chat):
    thread = await chat.start_shown()
    chat.fail("chat.postMessage", RateLimited(0), times=5)
    await thread.run.answer("the answer")
    await thread.shows("the answer")


@pytest.mark.parametrize("error", ["msg_too_long", "msg_blocks_too_long", "invalid_arguments"])
async def test_an_answer_that_slack_refuses_is_not_followed_by_silence(chat, error):
    thread = await chat.start_shown()
    chat.fail("chat.postMessage", ErrorResponse(error))
    await thread.run.answer("the answer")
    assert await thread.ended()


@pytest.mark.parametrize("error", ["msg_too_long", "invalid_blocks", "markdown_text_conflict"])
async def test_an_answer_that_slack_refuses_in_shorter_pieces_too_is_reported_once(chat, error):
    thread = await chat.start_shown()
    chat.fail("chat.postMessage", ErrorResponse(error), times=2)
    await thread.run.answer("the answer")
    (text,) = await thread.ended()
    assert error in text


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        ("thread_locked", "the thread is locked"),
        ("is_archived", "the channel is archived"),
        ("not_in_channel", "Invite me"),
    ],
)
async def test_a_conversation_closed_to_the_bot_is_reported_in_a_direct_message(chat, error, reason):
    thread = await chat.start_shown()
    chat.fail("chat.postMessage", ErrorResponse(error))
    chat.fail("chat.postMessage", DropBeforeCall())
    await thread.run.answer("the answer")
    dm = await chat.ana.open_dm("alpha")
    (message,) = await chat.slack.until(lambda ws: ws.messages(dm))
    assert reason in message.text
    assert f"<#{chat.general}>" in message.text


async def test_a_long_answer_is_posted_in_pieces_in_their_order(chat):
    thread = await chat.start()
    answer = "\n\n".join(f"line {n} {'x' * 80}" for n in range(100))
    await thread.run.answer(answer)
    (post,) = agent_post("1", answer)
    assert len(post.texts) > 1
    await thread.shows(*post.texts)


async def test_a_very_long_answer_is_a_file_and_a_message_with_its_headings(chat):
    thread = await chat.start()
    await thread.run.answer(LONG)
    await thread.ended()
    shared, summary = thread.posts
    (file,) = shared.body.files
    assert chat.slack.workspace.file(file.id).content.decode() == LONG
    assert file.title == "Report"
    assert summary.text.startswith("*Report*\n\nIt begins *here*.\n\n• Findings\n• Proof &lt;!channel&gt;\n• End\n\n📎")
    assert summary.persona.username == "Alpha"


@pytest.fixture
async def canvases(process):
    async with process(options=SlackOptions(canvas=True)) as chat:
        yield chat
        chat.slack.faults.clear()


@pytest.mark.parametrize("fault", [DropBeforeCall(), DropAfterCall(), ServerError(503)])
@pytest.mark.parametrize("method", ["canvases.create", "canvases.access.set", "files.info", "chat.postMessage"])
async def test_a_very_long_answer_becomes_a_canvas_and_a_message_with_a_link(canvases, method, fault):
    thread = await canvases.start_shown()
    canvases.fail(method, fault)
    with noting_calls() as called:
        await thread.run.answer(LONG)
        (text,) = await thread.ended()
    assert "native_markdown" not in called  # it would delay all conversations
    address = re.search(r"is in <(\S+)\|this canvas>", text)[1]
    async with aiohttp.ClientSession() as http, http.get(address) as response:
        shown = await response.text()
    assert shown.startswith("Report\n\n# Report\n\nIt begins **here**.")
    assert "## Proof &lt;!channel&gt;" in shown


@pytest.mark.parametrize(
    ("method", "error", "tries"),
    [
        ("canvases.create", "missing_scope", 1),
        ("canvases.create", "unknown_method", 1),
        ("canvases.create", "restricted_action", 1),
        ("canvases.create", "canvas_creation_failed", 2),
        ("canvases.access.set", "restricted_action", 2),
        ("canvases.access.set", "channel_not_found", 2),
    ],
)
async def test_where_slack_makes_no_canvas_a_very_long_answer_is_a_file(canvases, method, error, tries):
    thread = await canvases.start_shown()
    canvases.fail(method, ErrorResponse(error))
    await thread.run.answer(LONG)
    await thread.ended()
    assert [len(post.body.files) for post in thread.posts] == [1, 0]
    other = await canvases.start_shown()
    await other.run.answer(LONG)
    await other.ended()
    assert len(canvases.calls("canvases.create")) == tries


async def test_in_direct_messages_a_very_long_answer_becomes_a_canvas_too(canvases):
    dm = await canvases.ana.open_dm("alpha")
    thread = await canvases.start("hello", dm)
    await thread.run.answer(LONG)
    await canvases.slack.until(lambda ws: "|this canvas>" in ws.messages(dm)[-1].text)
    assert canvases.calls("canvases.access.set")


async def test_a_canvas_that_nobody_may_read_is_a_failure(slack, client):
    dm = await slack.as_person("ana").open_dm("alpha")
    # As direct messages of a group: the connector takes them for a channel.
    first = SlackMessage("T0LOCAL", dm, "1.0", None, "U0ANA", "look", (), direct=False)
    canvas = await create(client, "Report", LONG)
    with pytest.raises(SlackCallFailed, match="not_shown"):
        await show(client, canvas, first, Lease().confirm)


CODE = "".join(f"line_{n} = <{n}>\n" for n in range(100))


@pytest.mark.parametrize("delay_s", [0, 2], ids=["", "late"])
@pytest.mark.parametrize("fault", [DropBeforeCall(), DropAfterCall(), ServerError(503)])
async def test_long_code_is_a_file_below_the_answer(chat, fault, delay_s):
    chat.slack.workspace.rules.share_delay_s = delay_s
    thread = await chat.start_shown()
    chat.fail(SHARE, fault)
    await thread.run.answer(f"Look:\n\n```python\n{CODE}```")
    await thread.ended()
    await chat.slack.until(lambda _: len(thread.posts) > 1)
    answer, shared = sorted(thread.posts, key=lambda post: len(post.body.files))
    assert answer.text == "Look:\n\n📎 File 1 below: `code.py`, 100 lines."
    (file,) = shared.body.files
    assert (file.title, file.snippet_type, file.content.decode()) == ("code.py", "python", CODE)


async def test_long_code_that_cannot_be_a_file_is_in_messages(chat):
    thread = await chat.start_shown()
    chat.fail(GET_URL, ErrorResponse("missing_scope"))
    await thread.run.answer(f"Look:\n\n```python\n{CODE}```")
    await thread.ended()
    assert "line_99 = &lt;99&gt;" in thread.texts[1]


RICH = "# Plan\n\n| step | for |\n|---|---|\n| build | <@U0BEN> |"
NATIVE = {"type": "markdown", "text": "# Plan\n\n| step | for |\n|---|---|\n| build | &lt;@U0BEN&gt; |"}


def _without_ids(blocks):
    return [{name: value for name, value in each.items() if name != "block_id"} for each in blocks]


@pytest.mark.parametrize("fault", [DropBeforeCall(), DropAfterCall(), ServerError(503)])
async def test_an_answer_with_a_table_is_one_message_with_a_markdown_block(chat, fault):
    thread = await chat.start_shown()
    chat.fail("chat.postMessage", fault)
    await thread.run.answer(RICH)
    await thread.ended()
    (post,) = thread.posts
    assert _without_ids(post.blocks)[0] == NATIVE
    assert post.text.startswith("*Plan*")


async def test_where_slack_refuses_markdown_blocks_answers_are_texts(chat):
    thread = await chat.start_shown()
    chat.fail("chat.postMessage", ErrorResponse("invalid_blocks"), times=2)
    await thread.run.answer(RICH)
    await thread.ended()
    (post,) = thread.posts
    assert post.text.startswith("*Plan*")
    assert NATIVE not in _without_ids(post.blocks)
    other = await chat.start("@alpha once more")
    await other.run.answer(RICH)
    await other.ended()
    assert NATIVE not in _without_ids(other.posts[0].blocks)


@pytest.mark.parametrize("fault", [DropBeforeCall(), DropAfterCall(), ServerError(503)])
@pytest.mark.parametrize("method", [GET_URL, SHARE])
async def test_a_file_is_shared_exactly_once_whatever_slack_does(chat, method, fault):
    thread = await chat.start()
    chat.fail(method, fault)
    await thread.run.answer(LONG)
    await thread.ended()
    assert [len(post.body.files) for post in thread.posts] == [1, 0]


@dataclass
class Lease:
    """A lease with the pending posts of an earlier owner; it is lost after so many confirmations."""

    posts: dict = field(default_factory=dict)
    lost_after: int = 1_000
    written: list = field(default_factory=list)
    is_usable: asyncio.Event | None = None

    @property
    def claim(self) -> Claim:
        return Claim(2, run={"id": "run"}, posts=self.posts)

    async def write(self, changes) -> None:
        if self.is_usable is not None:
            await self.is_usable.wait()
        self.written.append(changes.posts)

    async def confirm(self) -> None:
        self.lost_after -= 1
        if self.lost_after < 0:
            raise LeaseLost


@pytest.fixture
async def root(slack) -> str:
    return await slack.as_person("ana").say("general", "look")


@pytest.fixture
def sent(slack, client, root):
    """Send the pending posts of a lease, and more; return the errors of closed conversations."""

    @asynccontextmanager
    async def working(lease):
        message = SlackMessage("T0LOCAL", slack.channel("general").id, root, None, "U0ANA", "look", (), direct=False)
        first = PendingMessage(message, "alpha", "look", message.id)
        record = RunRecord("run", first, was_waiting=False, newest_ts=root, was_taken_over=True)
        closed: list[str] = []
        outbox = Outbox(client, lease, record, Persona("Alpha", ":owl:"), on_closed=closed.append)
        try:
            async with outbox.delivering():
                yield outbox, closed
        except* LeaseLost:
            pass

    async def sent(lease, *posts: Post) -> list[str]:
        async with working(lease) as (outbox, closed):
            for post in posts:
                await outbox.add(post)
        return closed

    return sent


WITH_FILE = Post("1", ("summary",), by_agent=True, file=LONG)
PENDING_FILE = {"1": {"number": 1, "texts": ["summary"], "by_agent": True, "file": LONG}}


def replies(slack, root):
    return slack.workspace.thread("general", root)[1:]


async def test_a_post_is_stored_before_it_is_sent(slack, sent, root):
    lease = Lease(is_usable=asyncio.Event())
    sending = asyncio.create_task(sent(lease, Post("1", ("the answer",))))
    for _ in range(20):  # round trips: the outbox would have posted by now
        await slack.as_person("ana").call("auth.test")
    assert replies(slack, root) == ()
    lease.is_usable.set()
    await sending
    assert [message.text for message in replies(slack, root)] == ["the answer"]


async def test_the_next_owner_shares_a_file_that_was_not_shared(slack, sent, root):
    await sent(Lease(PENDING_FILE))
    shared, summary = replies(slack, root)
    assert [file.name for file in shared.body.files] == [file_name("run:1")]
    assert summary.text == "summary"


async def test_the_next_owner_does_not_share_a_shared_file_again(slack, sent, root):
    await sent(Lease(), WITH_FILE)
    await sent(Lease(PENDING_FILE))
    assert [len(message.body.files) for message in replies(slack, root)] == [1, 0]


@pytest.mark.parametrize("error", ["missing_scope", "file_uploads_disabled", "not_allowed_token_type"])
@pytest.mark.parametrize("method", [GET_URL, SHARE])
async def test_an_answer_is_posted_in_messages_where_slack_accepts_no_file(slack, sent, root, method, error):
    slack.faults.next(method, ErrorResponse(error))
    await sent(lease := Lease(), WITH_FILE)
    posts = replies(slack, root)
    assert not any(post.body.files or "summary" in post.text for post in posts)
    assert sum(post.text.count("paragraph") for post in posts) == LONG.count("paragraph")
    first, second, third = (written["1"] for written in lease.written)
    assert first["file"] == LONG
    assert not second["file"], "the change is stored before anything is posted"
    assert len(second["texts"]) == len(posts)
    assert third == ""


async def test_nothing_is_shared_after_the_lease_is_lost(slack, sent, root):
    await sent(Lease(PENDING_FILE, lost_after=0))
    assert replies(slack, root) == ()


async def test_nothing_is_posted_after_the_thread_is_deleted(slack, sent, root):
    await slack.as_person("ana").delete("general", root)
    await sent(lease := Lease(), WITH_FILE)
    assert [bool(written["1"]) for written in lease.written] == [True, False]
    assert slack.workspace.messages("general") == ()


async def test_half_a_character_is_replaced_in_a_file(slack, sent, root):
    await sent(Lease(), Post("1", ("summary",), by_agent=True, file="a \ud800 b"))
    (file,) = replies(slack, root)[0].body.files
    assert slack.workspace.file(file.id).content.decode() == "a \ufffd b"


async def test_a_closed_conversation_is_reported_once_and_gets_no_further_posts(slack, sent, root):
    slack.faults.next("chat.postMessage", ErrorResponse("is_archived"))
    lease = Lease()
    posts = Post("1", ("first", "second"), by_agent=True), Post("2", ("third",), by_agent=True)
    assert await sent(lease, *posts) == ["is_archived"]
    assert replies(slack, root) == ()
    assert {"closed": ""} in lease.written


async def test_the_next_owner_does_not_post_the_texts_of_an_answer_again_as_a_block(slack, client, sent, root):
    slack.faults.next("chat.postMessage", ErrorResponse("invalid_blocks"))
    for part in ("1", "2"):  # Slack refuses the block of the first one; the second one is sent without one
        await sent(lease := Lease(), *agent_post(part, RICH))
        client.takes_markdown = True  # of another process
        await sent(Lease(lease.written[-2]))
        client.takes_markdown = False
    assert [_without_ids(post.blocks)[:1] == [NATIVE] for post in replies(slack, root)] == [False, False]


@in_virtual_time
async def test_an_answer_whose_stream_cannot_be_completed_waits_for_no_status_message_to_be_deleted():
    refused = [{"error": "user_not_found"}]
    slack = FakeWebClient(errors={"chat.stopStream": refused, "chat.update": refused})
    message = SlackMessage("T1", "C1", "1.0", None, "U1", "look", (), direct=False)
    record = RunRecord("run", PendingMessage(message, "alpha", "look", message.id), was_waiting=False, newest_ts="1.0")
    async with RateLimiter("T1") as rate_limiter, asyncio.TaskGroup() as tasks:
        client = SlackClient(slack, rate_limiter)
        others = [tasks.create_task(client.delete("C1", f"{number}.5")) for number in range(60)]
        outbox = Outbox(client, Lease(), record, Persona("Alpha", ":owl:"), on_closed=pytest.fail)
        async with outbox.delivering():
            await outbox.add(
                Post("1", ("the answer",), by_agent=True, native="the answer", streamed=(Streamed("2.0"),))
            )
        assert slack.texts == ["the answer"]
        assert not all(each.done() for each in others)


def test_an_answer_becomes_messages_or_a_file_with_a_summary():
    assert agent_post("1", "**short**\n") == (Post("1", ("*short*",), by_agent=True),)
    assert agent_post("1", "\n \n") == ()
    (post,) = agent_post("1", f"begin \ud800\n\n{'words ' * 5000}")
    assert post.file.startswith("begin \ufffd\n\nwords ")
    assert "📎" in post.texts[0]


def test_the_messages_of_an_answer_keep_to_the_size_of_a_message_and_contain_everything():
    part = (
        "# Title\n\n> quoted **bold**\n\n1. one\n   - two\n\n| a | b |\n|---|---|\n| 1 | <!here> |\n\n"
        "```sh\necho '```'\n```\n\n"
    )
    texts = agent_post("1", part * 60)[0].texts
    assert sum(text.count("*Title*") for text in texts) == 60
    assert all(len(text) <= 3900 and "<!" not in text and text.count("```") % 2 == 0 for text in texts)
