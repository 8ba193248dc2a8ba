"""The sync client of slack_sdk works with every method; the other tests use the async client."""

from __future__ import annotations

import asyncio

import pytest
from slack_errors import error_of
from slack_sdk import WebClient
from slack_sdk.models.blocks import ActionsBlock, ButtonElement, MarkdownTextObject, SectionBlock
from slack_sdk.models.metadata import Metadata

HERE = {"channel": "C0GENERAL"}


@pytest.fixture
def call(slack):
    """Call a method of the client by its name, in a thread."""
    client = WebClient(token=slack.bot_token, base_url=slack.api_url)
    return lambda name, /, **arguments: asyncio.to_thread(getattr(client, name), **arguments)


async def test_messages_with_block_objects(call):
    run = ButtonElement(text="Run", action_id="run", value="1", style="primary")
    blocks = [
        SectionBlock(text=MarkdownTextObject(text="*Run* <https://example.org|it>?")),
        ActionsBlock(elements=[run]),
    ]
    metadata = Metadata(event_type="run", event_payload={"id": 1})
    ts = (await call("chat_postMessage", **HERE, text="Run?", blocks=blocks, metadata=metadata))["ts"]
    await call("chat_update", **HERE, ts=ts, text="Running", blocks=blocks[:1], parse="none")
    await call("chat_postMessage", **HERE, thread_ts=ts, text="a reply", unfurl_links=False)
    root, reply = (await call("conversations_replies", **HERE, ts=ts, include_all_metadata=True))["messages"]
    assert (root["text"], reply["text"]) == ("Running", "a reply")
    assert root["metadata"] == {"event_type": "run", "event_payload": {"id": 1}}
    assert [block["type"] for block in root["blocks"]] == ["section"]
    await call("reactions_add", **HERE, timestamp=ts, name="eyes")
    await call("reactions_remove", **HERE, timestamp=ts, name="eyes")
    await call("chat_delete", **HERE, ts=reply["ts"])
    await call("chat_postEphemeral", **HERE, user="U0ANA", text="psst")
    assert (await call("chat_getPermalink", **HERE, message_ts=ts))["permalink"].startswith("https://")


async def test_uploads(slack, ana, call):
    root = await ana.say("general", "please")
    files = [{"content": "one,two\n", "filename": "a.csv", "title": "A"}, {"content": b"\x00\xff", "filename": "b.bin"}]
    done = await call("files_upload_v2", **HERE, thread_ts=root, initial_comment="two files", file_uploads=files)
    reply = slack.workspace.thread("general", root)[1]
    assert reply.text == "two files"
    shared = [(file.name, file.title, file.content) for file in reply.files]
    assert shared == [("a.csv", "A", b"one,two\n"), ("b.bin", "b.bin", b"\x00\xff")]
    assert [file["id"] for file in done["files"]] == [file.id for file in reply.files]
    single = (await call("files_upload_v2", **HERE, content="x", filename="x.txt"))["file"]["id"]
    assert (await call("files_info", file=single))["file"]["name"] == "x.txt"
    await call("files_delete", file=single)


async def test_people_channels_sessions_and_views(slack, call):
    assert (await call("api_test", hello="you"))["args"] == {"hello": "you"}
    assert (await call("auth_test"))["user_id"] == slack.bot_user_id
    assert len((await call("users_list"))["members"]) == 4
    assert (await call("users_info", user="U0ANA"))["user"]["name"] == "ana"
    assert (await call("bots_info", bot="B0ALPHA"))["bot"]["name"] == "Alpha"
    made = (await call("conversations_create", name="made"))["channel"]["id"]
    await call("conversations_invite", channel=made, users=["U0ANA", "U0BEN"])
    assert (await call("conversations_members", channel=made))["members"] == ["U0ALPHA", "U0ANA", "U0BEN"]
    assert len((await call("conversations_list", types=["public_channel", "im"]))["channels"]) == 3
    ts = (await call("chat_postMessage", channel="U0ANA", text="hi"))["ts"]
    place = {"channel_id": "D0ANA", "thread_ts": ts}
    await call("agents_sessions_setStatus", **place, status="processing", title="Talk")
    await call("agents_sessions_rename", **place, title="Talking")
    await call("assistant_threads_setStatus", **place, status="thinks", loading_messages=["a", "b"])
    await call("assistant_threads_setSuggestedPrompts", **place, prompts=[{"title": "a", "message": "b"}])
    session = slack.workspace.session("D0ANA", ts)
    assert (session.status, session.title) == ("processing", "Talking")
    assert (session.says, session.loading) == ("thinks", ("a", "b"))
    await call("views_publish", user_id="U0ANA", view={"type": "home", "blocks": []})
    assert (await call("apps_connections_open", app_token=slack.app_token))["url"].startswith("ws://")
    assert await error_of(call("conversations_info", channel="C0NOWHERE")) == "channel_not_found"
