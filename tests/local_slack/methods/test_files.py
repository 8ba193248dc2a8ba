"""Uploads in three steps, shares, downloads and deletions."""

from __future__ import annotations

import io

import aiohttp
import pytest
from slack_errors import error_of
from slack_sdk.web.async_client import AsyncWebClient

from local_slack.blocks.slack_json import file_json

HERE = {"channel_id": "C0GENERAL"}


@pytest.fixture
def upload(client, session):
    """Take the first two steps of an upload; return the file's id."""

    async def upload(name, content, as_client=client):
        given = await as_client.files_getUploadURLExternal(filename=name, length=len(content))
        async with session.post(given["upload_url"], data=io.BytesIO(content)) as response:
            assert (response.status, await response.text()) == (200, f"OK - {len(content)}")
        return str(given["file_id"])

    return upload


@pytest.fixture
def complete(client):
    return lambda *ids, **fields: client.files_completeUploadExternal(files=[{"id": id_} for id_ in ids], **fields)


async def test_files_are_shared_in_one_message_in_their_order(slack, ana, client, upload):
    root = await ana.say("general", "please")
    first = await upload("a.py", b"print()")
    second = await upload("b.bin", bytes(range(256)) * 40)
    files = [{"id": second, "title": "The second"}, {"id": first}]
    done = await client.files_completeUploadExternal(
        files=files, **HERE, thread_ts=root, initial_comment="here you are"
    )
    assert [file["id"] for file in done["files"]] == [second, first]
    reply = (await client.conversations_replies(channel="C0GENERAL", ts=root))["messages"][1]
    assert (reply["text"], reply["subtype"], reply["user"]) == ("here you are", "file_share", slack.bot_user_id)
    assert reply["bot_id"] == "B0ALPHA"
    assert [(f["name"], f["title"], f["size"], f["mimetype"]) for f in reply["files"]] == [
        ("b.bin", "The second", 10_240, "application/octet-stream"),
        ("a.py", "a.py", 7, "text/x-python"),
    ]


async def test_an_upload_may_be_a_form(slack, client, session, complete):
    given = await client.files_getUploadURLExternal(filename="a.txt", length=5)
    form = aiohttp.FormData()
    form.add_field("filename", b"hello", filename="a.txt", content_type="text/plain")
    async with session.post(given["upload_url"], data=form) as response:
        assert response.status == 200
    await complete(given["file_id"])
    assert slack.workspace.file(given["file_id"]).content == b"hello"


async def test_an_upload_may_be_larger_than_other_calls(client, upload, complete):
    file_id = await upload("big.bin", b"x" * 6_000_000)
    await complete(file_id)
    assert (await client.files_info(file=file_id))["file"]["size"] == 6_000_000


async def test_an_upload_has_the_announced_length_and_can_be_completed_once(client, session, complete):
    async def send(content):
        async with session.post(given["upload_url"], data=content) as response:
            return response.status

    given = await client.files_getUploadURLExternal(filename="a.txt", length=5)
    assert await error_of(complete(given["file_id"])) == "file_not_found"
    assert [await send(content) for content in (b"hello, too long", b"hello")] == [400, 200]
    await complete(given["file_id"])
    assert await error_of(complete(given["file_id"])) == "file_not_found"
    assert await send(b"other") == 400


async def test_only_the_uploader_can_complete_an_upload(ana, upload, complete):
    file_id = await upload("a.txt", b"hello")
    call = ana.call("files.completeUploadExternal", files=[{"id": file_id}], **HERE)
    assert await error_of(call) == "file_not_found"
    await complete(file_id)


async def test_after_a_refused_share_the_upload_can_be_completed(slack, upload, complete):
    file_id = await upload("a.txt", b"hello")
    slack.workspace.archive("random")
    assert await error_of(complete(file_id, channel_id="C0NOWHERE")) == "channel_not_found"
    assert await error_of(complete(file_id, channel_id="C0RANDOM")) == "is_archived"
    assert await error_of(complete(file_id, file_id, **HERE)) == "invalid_arguments"
    assert slack.workspace.messages("general") == ()
    await complete(file_id, **HERE)
    assert len(slack.workspace.messages("general")) == 1


@pytest.mark.parametrize(("name", "length"), [("", 5), ("a.txt", 0), ("a.txt", -1)])
async def test_an_upload_needs_a_name_and_a_length(client, name, length):
    assert await error_of(client.files_getUploadURLExternal(filename=name, length=length)) == "invalid_arguments"


async def test_a_download_without_a_valid_token_is_a_sign_in_page(slack, client, session, upload, complete):
    async def get(token):
        async with session.get(url, headers={"Authorization": f"Bearer {token}"}) as response:
            return response.status, response.content_type, await response.read()

    file_id = await upload("Grüße & more.txt", b"hello")
    await complete(file_id, **HERE)
    url = (await client.files_info(file=file_id))["file"]["url_private_download"]
    assert await get(slack.bot_token) == (200, "text/plain", b"hello")
    assert await get(slack.person("ana").token) == (200, "text/plain", b"hello")
    slack.workspace.rules.refused_tokens[slack.bot_token] = "token_revoked"
    for token in ("xoxb-wrong", slack.app_token, slack.bot_token, ""):
        status, content_type, page = await get(token)
        assert (status, content_type) == (200, "text/html")
        assert b"Sign in" in page


@pytest.mark.slack(bot_channels=("general",))
async def test_an_app_reads_the_files_of_its_channels_only(slack, ana, client, session):
    for channel, is_read in (("random", False), ("general", True)):
        message = slack.workspace.message(channel, await ana.share(channel, {"a.txt": b"hello"}))
        (file,) = message.files
        url = file_json(file)["url_private_download"]
        async with session.get(url, headers={"Authorization": f"Bearer {slack.bot_token}"}) as response:
            assert (response.content_type == "text/plain") is is_read
        if is_read:
            assert (await client.files_info(file=file.id))["file"]["name"] == "a.txt"
        else:
            assert await error_of(client.files_info(file=file.id)) == "file_not_found"


@pytest.mark.slack(teams=("Playground", "Second"))
async def test_a_file_belongs_to_one_workspace(slack, client, session):
    other = AsyncWebClient(token=slack.team("Second").bot_token, base_url=slack.api_url)
    file = (await client.files_upload_v2(content="hello", filename="a.txt", channel="C0GENERAL"))["file"]
    assert len(slack.workspace.messages("general")) == 1
    assert slack.team("Second").workspace.messages("general") == ()
    assert await error_of(other.files_completeUploadExternal(files=[{"id": file["id"]}])) == "file_not_found"
    await other.files_upload_v2(content="not this one", filename="a.txt")
    headers = {"Authorization": f"Bearer {other.token}"}
    async with session.get(file["url_private_download"], headers=headers) as response:
        assert response.content_type == "text/html"


async def test_a_deleted_file_is_a_tombstone_in_its_message(ana, client, upload, complete):
    file_id = await upload("a.txt", b"hello")
    await complete(file_id, **HERE)
    assert await error_of(ana.call("files.delete", file=file_id)) == "cant_delete_file"
    await client.files_delete(file=file_id)
    assert await error_of(client.files_info(file=file_id)) == "file_not_found"
    assert await error_of(client.files_delete(file=file_id)) == "file_deleted"
    message = (await client.conversations_history(channel="C0GENERAL"))["messages"][0]
    assert message["files"] == [{"id": file_id, "mode": "tombstone"}]


async def test_a_share_is_an_event_with_its_files(slack, ana, session, bot):
    given = await ana.call("files.getUploadURLExternal", filename="a.png", length=3)
    await session.post(given["upload_url"], data=b"png")
    comment = f"<@{slack.bot_user_id}> look"
    files = [{"id": given["file_id"]}]
    await ana.call("files.completeUploadExternal", files=files, **HERE, initial_comment=comment)
    event = await bot.event(lambda e: e["type"] == "message" and e["user"] == "U0ANA")
    assert (event["subtype"], event["files"][0]["mimetype"]) == ("file_share", "image/png")
    mention = await bot.event(lambda e: e["type"] == "app_mention")
    assert mention["files"] == event["files"]


async def test_files_are_listed_by_page_the_newest_first(client, upload, complete):
    ids = [await upload(f"{number}.txt", b"x") for number in range(3)]
    for each in ids[:2]:
        await complete(each, **HERE)
    first = await client.files_list(count=1)
    assert [file["id"] for file in first["files"]] == [ids[1]]
    assert first["paging"] == {"count": 1, "total": 2, "page": 1, "pages": 2}
    assert [file["id"] for file in (await client.files_list(count=1, page=2))["files"]] == [ids[0]]
    assert (await client.files_list(channel="C0RANDOM"))["files"] == []
    await client.files_delete(file=ids[0])
    assert [file["id"] for file in (await client.files_list())["files"]] == [ids[1]]
