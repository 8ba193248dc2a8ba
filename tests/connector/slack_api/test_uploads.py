from __future__ import annotations

import asyncio
from collections import deque
from contextlib import nullcontext
from functools import partial

import aiohttp
import pytest
from endpoint import Endpoint, serving, status
from slack_environment import Hold
from slack_sdk.web.async_client import AsyncWebClient

from connector.events import ThreadAddress
from connector.slack_api.client import SlackClient
from connector.slack_api.errors import SlackCallFailed
from connector.slack_api.rate_limiter import RateLimiter
from connector.slack_api.uploads import share, summary_of
from local_slack import BlockUntil


async def confirm() -> None:
    """A lease that is not lost."""


@pytest.fixture
async def root(slack) -> str:
    return await slack.as_person("ana").say("general", "look")


@pytest.fixture
def sharing(client, slack, root):
    place = ThreadAddress("T0LOCAL", slack.channel("general").id, root)
    return partial(
        share, client, key="run:1", content="# Report\n\nwords", place=place, in_doubt=False, since="", confirm=confirm
    )


async def test_no_file_is_shared_in_the_channel_of_a_deleted_thread(slack, sharing, root):
    await slack.as_person("ana").delete("general", root)
    with pytest.raises(SlackCallFailed, match="thread_not_found"):
        await sharing()
    assert slack.workspace.messages("general") == ()


async def test_a_file_in_doubt_in_a_channel_is_found_however_much_was_written_since(slack, client, sharing, root):
    client.history.page = 5
    in_channel = partial(sharing, place=ThreadAddress("T0LOCAL", slack.channel("general").id, None), since=root)
    await in_channel()
    for number in range(6):
        await slack.as_person("ana").say("general", f"{number}")
    await in_channel(in_doubt=True)
    assert sum(bool(message.body.files) for message in slack.workspace.messages("general")) == 1


async def test_a_file_whose_thread_is_deleted_while_it_is_shared_is_deleted_from_the_channel(slack, sharing, root):
    hold = Hold()
    slack.faults.next("files.completeUploadExternal", BlockUntil(hold))
    shared = asyncio.create_task(sharing())
    await hold.reached.wait()
    await slack.as_person("ana").delete("general", root)
    hold.set()
    with pytest.raises(SlackCallFailed, match="thread_not_found"):
        await shared
    remaining = slack.workspace.messages("general")
    assert not any(slack.workspace.file(file.id) for message in remaining for file in message.body.files)


@pytest.mark.parametrize(
    ("code", "error"), [(200, ""), (403, "403"), (302, "302"), (500, "no_answer"), (503, "no_answer")]
)
async def test_an_upload_without_a_response_is_distinguished_from_a_refused_one(code, error):
    endpoint = Endpoint(answers=deque([status(code)]))
    async with serving(endpoint.handle) as url, aiohttp.ClientSession() as http, RateLimiter("T") as rate_limiter:
        client = SlackClient(AsyncWebClient("", session=http), rate_limiter)
        with pytest.raises(SlackCallFailed) if error else nullcontext() as failed:
            await client.upload(url, b"content")
    assert not error or failed.value.error == error
    assert [received.body for received in endpoint.requests] == [b"content"]


def test_a_summary_keeps_to_the_size_of_messages_however_many_headings_the_text_has():
    texts = summary_of("".join(f"## {'&' * 300} {number}\n\ntext\n\n" for number in range(200)))
    assert len(texts) < 5
    assert all(len(text) <= 3900 for text in texts)
    assert "and 179 more" in texts[-1]


def test_the_summary_of_a_text_without_headings_is_its_beginning():
    (text,) = summary_of("first " * 1000)
    assert text.startswith("first first")
    assert len(text) < 1700


def test_the_lines_of_a_code_block_are_no_headings():
    (text,) = summary_of("begin\n\n```\n# no heading\n```\n\n## One\n\ntext")
    assert "• One" in text
    assert "• no heading" not in text


def test_a_long_link_at_the_beginning_of_a_text_is_not_cut():
    texts = summary_of(f"intro [l](https://a.b/{'x' * 1280}) tail\n\n# One\n\n{'word ' * 9000}")
    assert f"<https://a.b/{'x' * 1280}|l>" in texts[0]
