from __future__ import annotations

import pytest

from connector.events import ThreadAddress
from connector.formatting.content import Content
from connector.slack_api.errors import SlackCallFailed
from local_slack import DropAfterCall


async def test_a_post_in_doubt_that_missed_its_deleted_thread_is_deleted_from_the_channel(slack, client):
    ana = slack.as_person("ana")
    root = await ana.say("general", "look")
    await ana.delete("general", root)
    slack.faults.next("chat.postMessage", DropAfterCall())
    with pytest.raises(SlackCallFailed, match="thread_not_found"):
        await client.post(ThreadAddress("T0LOCAL", slack.channel("general").id, root), Content("text"), "key")
    assert slack.workspace.messages("general") == ()


async def test_a_text_that_cannot_be_encoded_is_refused_before_it_is_sent(client):
    with pytest.raises(SlackCallFailed, match="unsendable") as refused:
        await client.post(ThreadAddress("T0LOCAL", "C0GENERAL", "1.0"), Content("a \ud800 b"), "key")
    assert not refused.value.is_transient
