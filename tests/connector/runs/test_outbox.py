"""A very long answer: a file in the thread, and in a message what is in it."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, nullcontext
from dataclasses import dataclass, field
from functools import partial

import aiohttp
import pytest
from endpoint import Endpoint, serving, status
from slack_sdk.web.async_client import AsyncWebClient
from stage import Hold

from connector import Persona
from connector.events import SlackMessage as Asked
from connector.events import ThreadAddress
from connector.formatting.content import Content
from connector.protocols import Claim, LeaseLost
from connector.records.inbox import PendingMessage
from connector.records.run_record import RunRecord
from connector.runs.answers import posts_of
from connector.runs.outbox import Outbox
from connector.runs.post import Post
from connector.slack_api.client import SlackClient
from connector.slack_api.errors import SlackCallFailed
from connector.slack_api.rate_limiter import RateLimiter
from connector.slack_api.uploads import file_name, share, summary_of
from local_slack import Breaks, DropsAfterwards, DropsBefore, LocalSlack, Refuses, Waits

CHAPTER = "paragraph " * 500
BEGINNING = "# Report\n\nIt begins **here**."
LONG = f"{BEGINNING}\n\n## Findings\n\n{CHAPTER}\n\n## Proof <!channel>\n\n{CHAPTER * 3}\n\n## End\n\nbye"
LOOKS = {"GET": "files.getUploadURLExternal", "SHARE": "files.completeUploadExternal"}


@pytest.fixture
async def slack() -> AsyncIterator[LocalSlack]:
    async with LocalSlack(limits=None) as slack:
        yield slack


async def answered(scene, *faults):
    """The replies of the bot to an answer that is too long for messages."""
    ts = await scene.ana.say("general", "@alpha look")
    run = await scene.sessions.next_run()
    await scene.status("general", ts)
    for method, fault in faults:
        scene.slack.faults.next(LOOKS[method], fault)
    await run.answer(LONG)
    await scene.reacted("general", ts, "hourglass_flowing_sand", gone=True)
    return [
        message for message in scene.slack.workspace.thread(scene.slack.channel("general").id, ts) if message.by_bot
    ]


async def test_a_very_long_answer_is_a_file_and_a_message_that_says_what_is_in_it(scene):
    shared, said = await answered(scene)
    (file,) = shared.body.files
    assert scene.slack.workspace.file(file.id).content.decode() == LONG
    assert file.title == "Report"
    assert said.text.startswith("*Report*\n\nIt begins *here*.\n\n• Findings\n• Proof &lt;!channel&gt;\n• End\n\n📎")
    assert said.persona.username == "Alpha"


@pytest.mark.parametrize("fault", [DropsBefore(), DropsAfterwards(), Breaks(503)])
@pytest.mark.parametrize("method", ["GET", "SHARE"])
async def test_a_file_is_shared_exactly_once_whatever_slack_does(scene, method, fault):
    shared, said = await answered(scene, (method, fault))
    assert len(shared.body.files) == 1
    assert "📎" in said.text


@dataclass
class Lease:
    """The lease of a conversation in which somebody else had begun to post."""

    posts: dict
    lost_after: int | None = None
    written: list = field(default_factory=list)

    @property
    def claim(self) -> Claim:
        return Claim(2, run={"id": "run"}, posts=self.posts)

    async def write(self, changes) -> None:
        self.written.append(changes.posts)

    async def confirm(self) -> None:
        if self.lost_after == 0:
            raise LeaseLost
        self.lost_after = None if self.lost_after is None else self.lost_after - 1


@pytest.fixture
def outbox(slack):
    @asynccontextmanager
    async def outbox(lease, root, closed=None):
        asked = Asked("T0LOCAL", slack.channel("general").id, root, None, "U0ANA", "look", (), direct=False)
        record = RunRecord("run", PendingMessage(asked, "alpha", "look", asked.id), False, root, was_taken_over=True)
        async with aiohttp.ClientSession() as http, RateLimiter("T", scale=100) as scheduler:
            client = AsyncWebClient(slack.bot_token, base_url=slack.api_url, session=http, retry_handlers=[])
            persona = Persona("Alpha", ":owl:")
            on_closed = (closed if closed is not None else []).append
            box = Outbox(SlackClient(client, scheduler), lease, record, persona, None, on_closed=on_closed)
            working = asyncio.create_task(box.work())
            yield box
            empty = asyncio.create_task(box.empty())
            await asyncio.wait((working, empty), return_when=asyncio.FIRST_COMPLETED)
            for task in (working, empty):
                task.cancel()
            await asyncio.gather(working, empty, return_exceptions=True)

    return outbox


def pending(number: int = 1, **more) -> dict:
    return {"number": number, "texts": ["summary"], "by_agent": True, "file": LONG, **more}


@pytest.fixture
async def root(slack) -> str:
    return await slack.as_person("ana").say("general", "look")


def replies(slack, root):
    return slack.workspace.thread(slack.channel("general").id, root)[1:]


async def test_who_goes_on_with_a_file_that_was_not_shared_shares_it(slack, outbox, root):
    async with outbox(Lease({"1": pending()}), root):
        pass
    shared, said = replies(slack, root)
    assert [file.name for file in shared.body.files] == [file_name("run:1")]
    assert said.text == "summary"


async def test_who_goes_on_with_a_file_that_was_shared_does_not_share_it_again(slack, outbox, root):
    async with outbox(Lease({}), root) as box:
        await box.add(Post("1", ("summary",), by_agent=True, file=LONG))
    async with outbox(Lease({"1": pending()}), root):
        pass
    assert [len(message.body.files) for message in replies(slack, root)] == [1, 0]


@pytest.mark.parametrize("error", ["missing_scope", "file_uploads_disabled", "not_allowed_token_type"])
@pytest.mark.parametrize("method", ["GET", "SHARE"])
async def test_where_slack_takes_no_file_the_answer_comes_in_messages(slack, outbox, root, method, error):
    slack.faults.next(LOOKS[method], Refuses(error))
    lease = Lease({})
    async with outbox(lease, root) as box:
        await box.add(Post("1", ("summary",), by_agent=True, file=LONG))
    said = replies(slack, root)
    assert not any(message.body.files or "summary" in message.text for message in said)
    assert sum(message.text.count("paragraph") for message in said) == LONG.count("paragraph")
    first, second, third = (posts["1"] for posts in lease.written)
    assert first["file"] == LONG
    assert "file" not in second, "before anything is posted, it is written down how"
    assert len(second["texts"]) == len(said)
    assert third == ""


async def test_who_does_not_own_the_conversation_any_more_shares_nothing(slack, outbox, root):
    async with outbox(Lease({"1": pending()}, lost_after=0), root):
        pass
    assert replies(slack, root) == ()


@pytest.fixture
async def wire(slack):
    async with aiohttp.ClientSession() as http, RateLimiter("T", scale=100) as scheduler:
        yield SlackClient(
            AsyncWebClient(slack.bot_token, base_url=slack.api_url, session=http, retry_handlers=[]), scheduler
        )


@pytest.fixture
def place(slack, root) -> ThreadAddress:
    return ThreadAddress("T0LOCAL", slack.channel("general").id, root)


@pytest.fixture
def sharing(wire, place):
    return partial(share, wire, place, "run:1", LONG, in_doubt=False, confirm=Lease({}).confirm)


async def test_where_the_thread_is_gone_no_file_goes_into_the_channel(slack, sharing, root):
    await slack.as_person("ana").delete("general", root)
    with pytest.raises(SlackCallFailed, match="thread_not_found"):
        await sharing()
    assert slack.workspace.messages(slack.channel("general").id) == ()


async def test_nothing_of_an_answer_is_posted_where_its_thread_is_gone(slack, outbox, root):
    await slack.as_person("ana").delete("general", root)
    lease = Lease({})
    async with outbox(lease, root) as box:
        await box.add(Post("1", ("summary",), by_agent=True, file=LONG))
    assert lease.written[-1] == {"1": ""}
    assert len(lease.written) == 2
    assert slack.workspace.messages(slack.channel("general").id) == ()


async def test_a_file_whose_thread_goes_while_it_is_shared_is_taken_out_of_the_channel(slack, sharing, root):
    hold = Hold()
    slack.faults.next(LOOKS["SHARE"], Waits(hold))
    shared = asyncio.create_task(sharing())
    await hold.reached.wait()
    await slack.as_person("ana").delete("general", root)
    hold.set()
    with pytest.raises(SlackCallFailed, match="thread_not_found"):
        await shared
    left = slack.workspace.messages(slack.channel("general").id)
    assert not any(slack.workspace.file(file.id) for message in left for file in message.body.files)


async def test_a_text_that_slack_has_put_into_the_channel_unseen_is_taken_out_of_it(slack, wire, place, root):
    await slack.as_person("ana").delete("general", root)
    slack.faults.next("chat.postMessage", DropsAfterwards())
    with pytest.raises(SlackCallFailed, match="thread_not_found"):
        await wire.post(place, Content("text"), "key")
    assert slack.workspace.messages(slack.channel("general").id) == ()


async def test_half_a_character_does_not_keep_a_file_from_being_shared(slack, outbox, root):
    async with outbox(Lease({}), root) as box:
        await box.add(Post("1", ("summary",), by_agent=True, file="a \ud800 b"))
    (file,) = replies(slack, root)[0].body.files
    assert slack.workspace.file(file.id).content.decode() == "a \ufffd b"


async def test_a_text_that_cannot_be_sent_is_refused_before_it_is_sent(wire, place):
    with pytest.raises(SlackCallFailed, match="unsendable") as refused:
        await wire.post(place, Content("a \ud800 b"), "key")
    assert not refused.value.is_passing


async def test_a_conversation_that_is_closed_to_us_is_told_once_and_nothing_more_is_tried(slack, outbox, root):
    slack.faults.next("chat.postMessage", Refuses("is_archived"))
    closed: list[str] = []
    lease = Lease({})
    async with outbox(lease, root, closed) as box:
        await box.add(Post("1", ("first", "second"), by_agent=True))
        await box.add(Post("2", ("third",), by_agent=True))
    assert closed == ["is_archived"]
    assert replies(slack, root) == ()
    assert {"closed": ""} in lease.written


@pytest.mark.parametrize(
    ("code", "error"), [(200, ""), (403, "403"), (302, "302"), (500, "no_answer"), (503, "no_answer")]
)
async def test_an_upload_that_does_not_arrive_is_told_from_one_that_is_refused(code, error):
    endpoint = Endpoint(answers=deque([status(code)]))
    async with serving(endpoint.handle) as url, aiohttp.ClientSession() as http, RateLimiter("T") as scheduler:
        wire = SlackClient(AsyncWebClient("", session=http), scheduler)
        with pytest.raises(SlackCallFailed) if error else nullcontext() as failed:
            await wire.upload(url, b"content")
    assert not error or failed.value.error == error
    assert [received.body for received in endpoint.requests] == [b"content"]


def test_a_summary_keeps_to_the_size_of_messages_however_many_headings_there_are():
    texts = summary_of("".join(f"## {'&' * 300} {number}\n\ntext\n\n" for number in range(200)))
    assert len(texts) < 5
    assert all(len(text) <= 3900 for text in texts)
    assert "and 179 more" in texts[-1]


def test_a_summary_of_an_answer_without_headings_is_its_beginning():
    (text,) = summary_of("first " * 1000)
    assert text.startswith("first first")
    assert len(text) < 1700


def test_a_fence_with_signs_of_headings_has_no_headings():
    (text,) = summary_of("begin\n\n```\n# no heading\n```\n\n## One\n\ntext")
    assert "• One" in text
    assert "• no heading" not in text


def test_a_text_becomes_messages_or_a_file_with_what_is_in_it():
    assert posts_of("**short**\n") == (("*short*",), "")
    assert posts_of("\n \n") == ((), "")
    (summary,), file = posts_of(f"begin \ud800\n\n{'words ' * 5000}")
    assert file.startswith("begin \ufffd\n\nwords ")
    assert "📎" in summary


def test_a_long_link_at_the_beginning_of_a_long_answer_is_not_cut():
    long_link = f"[l](https://a.b/{'x' * 1280})"
    texts = summary_of(f"intro {long_link} tail\n\n# One\n\n{'word ' * 9000}")
    assert f"<https://a.b/{'x' * 1280}|l>" in texts[0]
