"""Tokens, arguments and conditions that make Slack refuse a call; slack_sdk works with every method."""

from __future__ import annotations

import asyncio

import pytest
from slack_errors import error_of
from slack_sdk import WebClient
from slack_sdk.models.blocks import ActionsBlock, ButtonElement, MarkdownTextObject, SectionBlock
from slack_sdk.models.metadata import Metadata

from local_slack.methods.web_api import METHOD_NAMES

HERE = {"channel": "C0GENERAL"}
# fmt: off
ARGUMENTS = (
    "channel", "ts", "text", "blocks", "attachments", "metadata", "thread_ts", "user", "users", "name", "timestamp",
    "limit", "cursor", "oldest", "latest", "types", "filename", "length", "files", "channel_id", "initial_comment",
    "file", "status", "title", "prompts", "loading_messages", "user_id", "view", "trigger_id", "view_id", "hash",
    "chunks", "markdown_text", "recipient_user_id", "recipient_team_id", "session_status", "username",
    "reply_broadcast", "message_ts", "bot", "inclusive", "parse", "error",
)
# fmt: on


@pytest.fixture
def call(slack, session):
    """Call a method over HTTP with the bot's token or with given headers; return the answer."""

    async def call(method, *, headers=None, **options):
        headers = {"Authorization": f"Bearer {slack.bot_token}"} if headers is None else headers
        async with session.post(slack.api_url + method, headers=headers, **options) as response:
            assert response.status == 200, f"{method} {await response.text()}"
            return await response.json()

    return call


@pytest.fixture
def post(client):
    return lambda **fields: client.chat_postMessage(**{**HERE, "text": "x", **fields})


async def test_each_token_identifies_its_owner(ana, client):
    bot = await client.auth_test()
    assert (bot["user_id"], bot["bot_id"], bot["team_id"]) == ("U0ALPHA", "B0ALPHA", "T0LOCAL")
    assert "chat:write" in bot.headers["x-oauth-scopes"]
    person = await ana.call("auth.test")
    assert person["user_id"] == "U0ANA"
    assert "bot_id" not in person


@pytest.mark.parametrize(
    ("method", "token", "error"),
    [
        ("auth.test", "", "not_authed"),
        ("auth.test", "xoxb-wrong", "invalid_auth"),
        ("chat.postMessage", "xapp-1-A0ALPHA-local-alpha", "not_allowed_token_type"),
        ("apps.connections.open", "xoxb-local-alpha", "not_allowed_token_type"),
        ("apps.connections.open", "xapp-wrong", "invalid_auth"),
        ("chat.unheardOf", "xoxb-local-alpha", "unknown_method"),
    ],
)
async def test_a_wrong_token_or_method_is_refused_with_status_200(call, method, token, error):
    answer = await call(method, headers={"Authorization": f"Bearer {token}"})
    assert (answer["ok"], answer["error"]) == (False, error)


async def test_a_token_is_accepted_in_the_header_or_in_a_form_only(slack, call):
    token = {"token": slack.bot_token}
    answers = [await call("auth.test", headers={}, **{place: token}) for place in ("data", "params", "json")]
    assert [answer.get("error") for answer in answers] == [None, "not_authed", "not_authed"]


@pytest.mark.parametrize("place", ["data", "json", "params"])
async def test_arguments_may_be_a_form_json_or_a_query(slack, call, place):
    assert (await call("chat.postMessage", **{place: {**HERE, "text": "hi"}}))["ok"] is True
    assert [message.text for message in slack.workspace.messages("general")] == ["hi"]


async def test_a_missing_argument_is_named_and_an_empty_one_looked_up(slack, call):
    absent = await call("conversations.replies")
    assert absent["error"] == "invalid_arguments"
    names = ["[ERROR] missing required field: channel", "[ERROR] missing required field: ts"]
    assert absent["response_metadata"] == {"messages": names}
    assert (await call("conversations.replies", data={"channel": "", "ts": ""}))["error"] == "channel_not_found"
    headers = {"Authorization": f"Bearer {slack.bot_token}", "Content-Type": "application/json"}
    assert (await call("conversations.replies", headers=headers, data="{"))["error"] == "invalid_json"


@pytest.mark.parametrize(
    ("method", "arguments", "error", "message"),
    [
        ("chat.postMessage", {"text": {"a": 1}}, "invalid_arguments", "must provide a string [json-pointer:/text]"),
        (
            "chat.postMessage",
            {"text": "x", "reply_broadcast": []},
            "invalid_arguments",
            "must provide a boolean [json-pointer:/reply_broadcast]",
        ),
        (
            "chat.postMessage",
            {"text": "x", "parse": "some"},
            "invalid_arguments",
            "must be a valid enum value [json-pointer:/parse]",
        ),
        ("chat.postMessage", {"blocks": "nonsense"}, "invalid_blocks_format", None),
        ("chat.postMessage", {"text": "  "}, "no_text", None),
        ("chat.postMessage", {"text": "x", "thread_ts": "soon"}, "invalid_thread_ts", None),
        ("chat.postMessage", {"text": "x", "markdown_text": "x"}, "markdown_text_conflict", None),
        ("chat.postMessage", {"text": "x", "attachments": [{}] * 101}, "too_many_attachments", None),
        ("chat.postMessage", {"text": "x", "metadata": {"event_type": 1}}, "invalid_metadata_format", None),
        ("conversations.history", {"limit": "many"}, "invalid_limit", None),
        ("conversations.history", {"cursor": "%"}, "invalid_cursor", None),
        (
            "files.getUploadURLExternal",
            {"filename": "a.txt", "length": "long"},
            "invalid_arguments",
            "must provide an integer [json-pointer:/length]",
        ),
    ],
)
async def test_an_argument_of_a_wrong_type_is_refused(call, method, arguments, error, message):
    answer = await call(method, json={**HERE, **arguments})
    messages = answer.get("response_metadata", {}).get("messages", [])
    assert (answer["error"], messages) == (error, [f"[ERROR] {message}"] if message else [])


@pytest.mark.slack(limits=None)
@pytest.mark.parametrize(
    "odd", [None, True, -1, 10**30, "", "\ud800\x00", "[{", [], [None], [[]], {}, {"type": ["x"]}], ids=repr
)
async def test_no_argument_breaks_a_method(ana, call, odd):
    root = await ana.say("general", "hi")
    right = {**HERE, "channel_id": "C0GENERAL", "ts": root, "thread_ts": root, "timestamp": root}
    wrong = dict.fromkeys(ARGUMENTS, odd)
    for method in METHOD_NAMES:
        for arguments in (wrong, wrong | right):
            await call(method, json=arguments)


async def test_an_archived_channel_can_be_read_only(slack, client, post):
    ts = (await post())["ts"]
    await client.conversations_archive(**HERE)
    for call in (
        post(),
        client.chat_postEphemeral(**HERE, user="U0ANA", text="x"),
        client.chat_update(**HERE, ts=ts, text="x"),
        client.reactions_add(**HERE, timestamp=ts, name="x"),
        client.conversations_join(**HERE),
    ):
        assert await error_of(call) == "is_archived"
    assert await error_of(client.conversations_archive(**HERE)) == "already_archived"
    assert len((await client.conversations_history(**HERE))["messages"]) == 1
    assert (await client.conversations_info(**HERE))["channel"]["is_archived"] is True
    slack.workspace.archive("general", archived=False)
    await post()


async def test_a_locked_thread_accepts_no_replies_and_no_reactions(slack, ana, client, post):
    root, other = await ana.say("general", "root"), await ana.say("general", "other")
    slack.workspace.rules.lock("C0GENERAL", root)
    assert await error_of(post(thread_ts=root)) == "thread_locked"
    assert await error_of(client.reactions_add(**HERE, timestamp=root, name="x")) == "thread_locked"
    await post(thread_ts=other)
    slack.workspace.rules.unlock("C0GENERAL", root)
    await post(thread_ts=root)


async def test_without_a_messages_tab_the_bot_cannot_write_to_people(slack, post):
    slack.workspace.rules.messages_tab = False
    assert await error_of(post(channel="U0ANA")) == "messages_tab_disabled"
    await post()


async def test_a_channel_can_be_restricted_to_people(slack, ana, post):
    slack.workspace.rules.restricted.add("C0GENERAL")
    assert await error_of(post()) == "restricted_action"
    await ana.say("general", "x")


async def test_a_message_can_be_edited_within_the_edit_window(slack, client, post, clock):
    slack.workspace.rules.edit_window_s = 60
    ts = (await post())["ts"]
    clock.advance(60)
    await client.chat_update(**HERE, ts=ts, text="b")
    clock.advance(1)
    assert await error_of(client.chat_update(**HERE, ts=ts, text="c")) == "edit_window_closed"


@pytest.mark.parametrize("error", ["token_revoked", "account_inactive", "token_expired"])
async def test_a_token_can_be_refused_permanently(slack, client, post, error):
    await client.auth_test()
    slack.workspace.rules.refused_tokens[slack.bot_token] = error
    assert [await error_of(call) for call in (client.auth_test(), post())] == [error, error]
    del slack.workspace.rules.refused_tokens[slack.bot_token]
    await client.auth_test()


@pytest.mark.slack(limits=None)
async def test_a_user_may_add_23_reactions_to_a_message(ana, client):
    here = {**HERE, "timestamp": await ana.say("general", "hi")}
    for number in range(23):
        await client.reactions_add(**here, name=f"e{number}")
    assert await error_of(client.reactions_add(**here, name="e99")) == "too_many_reactions"


async def test_an_update_needs_the_id_of_the_channel(client, post):
    answer = await post(channel="#general")
    assert answer["channel"] == "C0GENERAL"
    assert await error_of(client.chat_update(channel="#general", ts=answer["ts"], text="x")) == "channel_not_found"


@pytest.mark.parametrize(("size", "error"), [(10_000, None), (20_000, "metadata_too_large")])
async def test_the_size_of_metadata_is_limited(call, size, error):
    metadata = {"event_type": "run", "event_payload": {"text": "x" * size}}
    assert (await call("chat.postMessage", json={**HERE, "text": "hi", "metadata": metadata})).get("error") == error


@pytest.fixture
def sdk(slack):
    """Call a method of the client by its name, in a thread."""
    client = WebClient(token=slack.bot_token, base_url=slack.api_url)
    return lambda name, /, **arguments: asyncio.to_thread(getattr(client, name), **arguments)


async def test_the_sdk_posts_messages_with_block_objects(sdk):
    run = ButtonElement(text="Run", action_id="run", value="1", style="primary")
    blocks = [
        SectionBlock(text=MarkdownTextObject(text="*Run* <https://example.org|it>?")),
        ActionsBlock(elements=[run]),
    ]
    metadata = Metadata(event_type="run", event_payload={"id": 1})
    ts = (await sdk("chat_postMessage", **HERE, text="Run?", blocks=blocks, metadata=metadata))["ts"]
    await sdk("chat_update", **HERE, ts=ts, text="Running", blocks=blocks[:1], parse="none")
    await sdk("chat_postMessage", **HERE, thread_ts=ts, text="a reply", unfurl_links=False)
    root, reply = (await sdk("conversations_replies", **HERE, ts=ts, include_all_metadata=True))["messages"]
    assert (root["text"], reply["text"]) == ("Running", "a reply")
    assert root["metadata"] == {"event_type": "run", "event_payload": {"id": 1}}
    assert "metadata" not in (await sdk("conversations_replies", **HERE, ts=ts))["messages"][0]
    assert [block["type"] for block in root["blocks"]] == ["section"]
    await sdk("reactions_add", **HERE, timestamp=ts, name="eyes")
    await sdk("reactions_remove", **HERE, timestamp=ts, name="eyes")
    await sdk("chat_delete", **HERE, ts=reply["ts"])
    await sdk("chat_postEphemeral", **HERE, user="U0ANA", text="psst")
    assert (await sdk("chat_getPermalink", **HERE, message_ts=ts))["permalink"].startswith("https://")


async def test_the_sdk_uploads_files(slack, ana, sdk):
    root = await ana.say("general", "please")
    files = [{"content": "one,two\n", "filename": "a.csv", "title": "A"}, {"content": b"\x00\xff", "filename": "b.bin"}]
    done = await sdk("files_upload_v2", **HERE, thread_ts=root, initial_comment="two files", file_uploads=files)
    reply = slack.workspace.thread("general", root)[1]
    assert reply.text == "two files"
    shared = [(file.name, file.title, file.content) for file in reply.files]
    assert shared == [("a.csv", "A", b"one,two\n"), ("b.bin", "b.bin", b"\x00\xff")]
    assert [file["id"] for file in done["files"]] == [file.id for file in reply.files]
    single = (await sdk("files_upload_v2", **HERE, content="x", filename="x.txt"))["file"]["id"]
    assert (await sdk("files_info", file=single))["file"]["name"] == "x.txt"
    await sdk("files_delete", file=single)


async def test_the_sdk_reaches_people_channels_sessions_and_views(slack, sdk):
    assert (await sdk("api_test", hello="you"))["args"] == {"hello": "you"}
    assert (await sdk("auth_test"))["user_id"] == slack.bot_user_id
    assert [member["name"] for member in (await sdk("users_list"))["members"]] == ["ana", "ben", "chloe", "alpha"]
    assert await error_of(sdk("users_info", user="U0NOBODY")) == "user_not_found"
    assert (await sdk("users_info", user="U0ANA"))["user"]["name"] == "ana"
    zones = [(await sdk("users_info", user=user))["user"] for user in ("U0ANA", "U0CHLOE")]
    assert [(each["tz"], each["tz_label"]) for each in zones] == [("Etc/UTC", "UTC"), ("America/New_York", "New York")]
    assert (zones[0]["tz_offset"], zones[1]["tz_offset"] in {-5 * 3600, -4 * 3600}) == (0, True)
    assert (await sdk("bots_info", bot="B0ALPHA"))["bot"]["name"] == "Alpha"
    made = (await sdk("conversations_create", name="made"))["channel"]["id"]
    await sdk("conversations_invite", channel=made, users=["U0ANA", "U0BEN"])
    assert (await sdk("conversations_members", channel=made))["members"] == ["U0ALPHA", "U0ANA", "U0BEN"]
    assert len((await sdk("conversations_list", types=["public_channel", "im"]))["channels"]) == 3
    posted = await sdk("chat_postMessage", channel="U0ANA", text="hi")
    assert posted["channel"] == "D0ANA"
    ts = posted["ts"]
    place = {"channel_id": "D0ANA", "thread_ts": ts}
    await sdk("agents_sessions_setStatus", **place, status="processing", title="Talk")
    await sdk("agents_sessions_rename", **place, title="Talking")
    await sdk("assistant_threads_setStatus", **place, status="thinks", loading_messages=["a", "b"])
    await sdk("assistant_threads_setSuggestedPrompts", **place, prompts=[{"title": "a", "message": "b"}])
    session = slack.workspace.session("D0ANA", ts)
    assert (session.status, session.title) == ("processing", "Talking")
    assert (session.says, session.loading) == ("thinks", ("a", "b"))
    await sdk("views_publish", user_id="U0ANA", view={"type": "home", "blocks": []})
    assert (await sdk("apps_connections_open", app_token=slack.app_token))["url"].startswith("ws://")
    assert await error_of(sdk("conversations_info", channel="C0NOWHERE")) == "channel_not_found"
