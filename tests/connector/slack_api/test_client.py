from __future__ import annotations

import asyncio

import pytest

from connector.events import ThreadAddress
from connector.formatting.content import Content
from connector.slack_api.errors import SlackCallFailed
from local_slack import DropAfterCall, RateLimited


async def test_a_post_in_doubt_that_missed_its_deleted_thread_is_deleted_from_the_channel(slack, client):
    ana = slack.as_person("ana")
    root = await ana.say("general", "look")
    await ana.delete("general", root)
    slack.faults.next("chat.postMessage", DropAfterCall())
    with pytest.raises(SlackCallFailed, match="thread_not_found"):
        await client.post(ThreadAddress("T0LOCAL", slack.channel("general").id, root), Content("text"), "key")
    assert slack.workspace.messages("general") == ()


@pytest.mark.parametrize("page", [15, 200])
async def test_a_post_in_doubt_in_a_channel_is_found_however_much_was_written_since(slack, client, page):
    client.history.page = page
    ana, place = slack.as_person("ana"), ThreadAddress("T0LOCAL", slack.channel("general").id, None)
    since = await ana.say("general", "look")
    ts = await client.post(place, Content("found"), "key")
    for number in range(page + 1):
        await ana.say("general", f"{number}")
    assert await client.post(place, Content("found"), "key", in_doubt=True, since=since) == ts
    assert sum(each.text == "found" for each in slack.workspace.messages("general")) == 1


async def test_a_text_that_cannot_be_encoded_is_refused_before_it_is_sent(client):
    with pytest.raises(SlackCallFailed, match="unsendable") as refused:
        await client.post(ThreadAddress("T0LOCAL", "C0GENERAL", "1.0"), Content("a \ud800 b"), "key")
    assert not refused.value.is_transient


async def test_no_call_of_the_method_is_sent_before_the_retry_after_has_passed(slack, client):
    now = asyncio.get_running_loop().time
    slack.faults.next("chat.postMessage", RateLimited(1))
    began_s, place = now(), ThreadAddress("T0LOCAL", slack.channel("general").id, None)
    await asyncio.gather(*(client.post(place, Content("hello"), f"key {number}") for number in range(2)))
    assert now() - began_s >= 1
    sent = [call["status"] for call in slack.record if call["what"] == "call" and call["method"] == "chat.postMessage"]
    assert sent == [429, 200, 200]
