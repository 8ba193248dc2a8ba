"""The two clients of slack_sdk, as they come, against all that local_slack has."""

from __future__ import annotations

import asyncio
import inspect
from typing import TYPE_CHECKING, Any

import pytest
from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError
from slack_sdk.models.blocks import ActionsBlock, ButtonElement, MarkdownTextObject, SectionBlock
from slack_sdk.models.metadata import Metadata
from slack_sdk.web.async_client import AsyncWebClient

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from local_slack import LocalSlack

    Call = Callable[..., Awaitable[Any]]


@pytest.fixture(params=["sync", "async"])
def call(request: pytest.FixtureRequest, slack: LocalSlack) -> Call:
    """Call a method of the client by its name: the sync one in a thread of its own."""
    kind = WebClient if request.param == "sync" else AsyncWebClient
    client: Any = kind(token=slack.bot_token, base_url=slack.api_url)

    async def calls(name: str, /, **arguments: Any) -> Any:
        answer = await asyncio.to_thread(getattr(client, name), **arguments)
        return await answer if inspect.isawaitable(answer) else answer

    return calls


async def test_messages_with_block_objects(slack: LocalSlack, call: Call) -> None:
    blocks = [
        SectionBlock(text=MarkdownTextObject(text="*Run* <https://example.org|it>?")),
        ActionsBlock(elements=[ButtonElement(text="Run", action_id="run", value="1", style="primary")]),
    ]
    metadata = Metadata(event_type="run", event_payload={"id": 1})
    posted = await call("chat_postMessage", channel="C0GENERAL", text="Run?", blocks=blocks, metadata=metadata)
    ts = posted["ts"]
    await call("chat_update", channel="C0GENERAL", ts=ts, text="Running", blocks=blocks[:1], parse="none")
    await call("chat_postMessage", channel="C0GENERAL", thread_ts=ts, text="a reply", unfurl_links=False)
    replies = await call("conversations_replies", channel="C0GENERAL", ts=ts, include_all_metadata=True)
    assert [message["text"] for message in replies["messages"]] == ["Running", "a reply"]
    assert replies["messages"][0]["metadata"] == {"event_type": "run", "event_payload": {"id": 1}}
    assert [block["type"] for block in replies["messages"][0]["blocks"]] == ["section"]
    await call("reactions_add", channel="C0GENERAL", timestamp=ts, name="eyes")
    await call("reactions_remove", channel="C0GENERAL", timestamp=ts, name="eyes")
    await call("chat_delete", channel="C0GENERAL", ts=replies["messages"][1]["ts"])
    await call("chat_postEphemeral", channel="C0GENERAL", user="U0ANA", text="psst")
    assert (await call("chat_getPermalink", channel="C0GENERAL", message_ts=ts))["permalink"].startswith("https://")


async def test_files_upload_v2(slack: LocalSlack, call: Call) -> None:
    root = await slack.as_person("ana").say("general", "please")
    done = await call(
        "files_upload_v2",
        channel="C0GENERAL",
        thread_ts=root,
        initial_comment="two files",
        file_uploads=[
            {"content": "one,two\n", "filename": "a.csv", "title": "A"},
            {"content": b"\x00\xff", "filename": "b.bin"},
        ],
    )
    reply = slack.workspace.thread("general", root)[1]
    assert reply.text == "two files"
    assert [(file.name, file.title, file.content) for file in reply.files] == [
        ("a.csv", "A", b"one,two\n"),
        ("b.bin", "b.bin", b"\x00\xff"),
    ]
    assert [file["id"] for file in done["files"]] == [file.id for file in reply.files]
    single = await call("files_upload_v2", channel="C0GENERAL", content="x", filename="x.txt")
    assert (await call("files_info", file=single["file"]["id"]))["file"]["name"] == "x.txt"
    await call("files_delete", file=single["file"]["id"])


async def test_people_channels_and_sessions(slack: LocalSlack, call: Call) -> None:
    assert (await call("api_test", hello="you"))["args"] == {"hello": "you"}
    assert (await call("auth_test"))["user_id"] == slack.bot_user_id
    assert len((await call("users_list"))["members"]) == 4
    assert (await call("users_info", user="U0ANA"))["user"]["name"] == "ana"
    assert (await call("bots_info", bot="B0ALPHA"))["bot"]["name"] == "Alpha"
    made = await call("conversations_create", name="made")
    await call("conversations_invite", channel=made["channel"]["id"], users=["U0ANA", "U0BEN"])
    members = await call("conversations_members", channel=made["channel"]["id"])
    assert members["members"] == ["U0ALPHA", "U0ANA", "U0BEN"]
    assert len((await call("conversations_list", types=["public_channel", "im"]))["channels"]) == 3
    ts = (await call("chat_postMessage", channel="U0ANA", text="hi"))["ts"]
    session = {"channel_id": "D0ANA", "thread_ts": ts}
    await call("agents_sessions_setStatus", **session, status="processing", title="Talk")
    await call("agents_sessions_rename", **session, title="Talking")
    await call("assistant_threads_setStatus", **session, status="thinks", loading_messages=["a", "b"])
    await call("assistant_threads_setSuggestedPrompts", **session, prompts=[{"title": "a", "message": "b"}])
    kept = slack.workspace.session("D0ANA", ts)
    assert kept is not None
    assert (kept.status, kept.title, kept.says, kept.loading) == ("processing", "Talking", "thinks", ("a", "b"))
    await call("views_publish", user_id="U0ANA", view={"type": "home", "blocks": []})
    assert (await call("apps_connections_open", app_token=slack.app_token))["url"].startswith("ws://")
    with pytest.raises(SlackApiError, match="channel_not_found"):
        await call("conversations_info", channel="C0NOWHERE")
