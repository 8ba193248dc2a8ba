"""Uploading in three steps, sharing in a thread, downloading, deleting."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from local_slack import LocalSlack, SlackRefused

if TYPE_CHECKING:
    from collections.abc import Awaitable


async def refused(call: Awaitable[Any]) -> str:
    with pytest.raises(SlackApiError) as caught:
        await call
    return str(caught.value.response["error"])


async def upload(client: AsyncWebClient, session: aiohttp.ClientSession, name: str, content: bytes) -> str:
    """Take the first two steps and return the file's id."""
    given = await client.files_getUploadURLExternal(filename=name, length=len(content))
    async with session.post(given["upload_url"], data=io.BytesIO(content)) as response:
        assert (response.status, await response.text()) == (200, f"OK - {len(content)}")
    return str(given["file_id"])


async def test_files_are_shared_in_one_message_of_the_thread_in_their_order(
    slack: LocalSlack, client: AsyncWebClient, session: aiohttp.ClientSession
) -> None:
    root = await slack.as_person("ana").say("general", "please")
    first = await upload(client, session, "a.py", b"print()")
    second = await upload(client, session, "b.bin", bytes(range(256)) * 40)
    done = await client.files_completeUploadExternal(
        files=[{"id": second, "title": "The second"}, {"id": first}],
        channel_id="C0GENERAL",
        thread_ts=root,
        initial_comment="here you are",
    )
    assert [file["id"] for file in done["files"]] == [second, first]
    reply = (await client.conversations_replies(channel="C0GENERAL", ts=root))["messages"][1]
    assert (reply["text"], reply["subtype"], reply["user"]) == ("here you are", "file_share", slack.bot_user_id)
    assert reply["bot_id"] == "B0ALPHA"
    assert [(f["name"], f["title"], f["size"], f["mimetype"]) for f in reply["files"]] == [
        ("b.bin", "The second", 10_240, "application/octet-stream"),
        ("a.py", "a.py", 7, "text/x-python"),
    ]


async def test_the_share_is_an_event_with_its_files(
    slack: LocalSlack, session: aiohttp.ClientSession, bot: Any
) -> None:
    file_id = await upload(bot.client, session, "a.txt", b"hello")
    await bot.client.files_completeUploadExternal(files=[{"id": file_id}], channel_id="C0GENERAL")
    event = await bot.event(lambda e: e.get("subtype") == "file_share")
    assert [file["id"] for file in event["files"]] == [file_id]


async def test_an_upload_may_come_as_a_form(
    slack: LocalSlack, client: AsyncWebClient, session: aiohttp.ClientSession
) -> None:
    given = await client.files_getUploadURLExternal(filename="a.txt", length=5)
    form = aiohttp.FormData()
    form.add_field("filename", b"hello", filename="a.txt", content_type="text/plain")
    async with session.post(given["upload_url"], data=form) as response:
        assert response.status == 200
    await client.files_completeUploadExternal(files=[{"id": given["file_id"]}])
    file = slack.workspace.file(given["file_id"])
    assert file is not None
    assert file.content == b"hello"


async def test_an_upload_larger_than_any_call_arrives(
    slack: LocalSlack, client: AsyncWebClient, session: aiohttp.ClientSession
) -> None:
    file_id = await upload(client, session, "big.bin", b"x" * 6_000_000)
    await client.files_completeUploadExternal(files=[{"id": file_id}])
    assert (await client.files_info(file=file_id))["file"]["size"] == 6_000_000


async def test_an_upload_has_the_length_it_announced_and_happens_before_it_is_completed(
    client: AsyncWebClient, session: aiohttp.ClientSession
) -> None:
    given = await client.files_getUploadURLExternal(filename="a.txt", length=5)
    files = [{"id": given["file_id"]}]
    assert await refused(client.files_completeUploadExternal(files=files)) == "file_not_found"
    async with session.post(given["upload_url"], data=b"hello, too long") as response:
        assert response.status == 400
    async with session.post(given["upload_url"], data=b"hello") as response:
        assert response.status == 200
    await client.files_completeUploadExternal(files=files)
    assert await refused(client.files_completeUploadExternal(files=files)) == "file_not_found"
    async with session.post(given["upload_url"], data=b"other") as response:
        assert response.status == 400


async def test_nobody_else_completes_an_upload(
    slack: LocalSlack, client: AsyncWebClient, session: aiohttp.ClientSession
) -> None:
    files = [{"id": await upload(client, session, "a.txt", b"hello")}]
    with pytest.raises(SlackRefused, match="file_not_found"):
        await slack.as_person("ana").call("files.completeUploadExternal", files=files, channel_id="C0GENERAL")
    await client.files_completeUploadExternal(files=files)


async def test_a_share_that_is_refused_leaves_the_upload_to_be_completed_elsewhere(
    slack: LocalSlack, client: AsyncWebClient, session: aiohttp.ClientSession
) -> None:
    file_id = await upload(client, session, "a.txt", b"hello")
    files = [{"id": file_id}]
    for place, error in [("C0NOWHERE", "channel_not_found"), ("C0RANDOM", "is_archived")]:
        slack.workspace.archive("random")
        assert await refused(client.files_completeUploadExternal(files=files, channel_id=place)) == error
    twice = client.files_completeUploadExternal(files=[*files, *files], channel_id="C0GENERAL")
    assert await refused(twice) == "invalid_arguments"
    assert slack.workspace.messages("general") == ()
    await client.files_completeUploadExternal(files=files, channel_id="C0GENERAL")
    assert len(slack.workspace.messages("general")) == 1


@pytest.mark.parametrize(("name", "length"), [("", 5), ("a.txt", 0), ("a.txt", -1)])
async def test_an_upload_needs_a_name_and_a_length(client: AsyncWebClient, name: str, length: int) -> None:
    call = client.files_getUploadURLExternal(filename=name, length=length)
    assert await refused(call) == "invalid_arguments"


async def test_a_download_needs_the_token_or_gets_a_page_to_sign_in(
    slack: LocalSlack, client: AsyncWebClient, session: aiohttp.ClientSession
) -> None:
    file_id = await upload(client, session, "Grüße & more.txt", b"hello")
    await client.files_completeUploadExternal(files=[{"id": file_id}], channel_id="C0GENERAL")
    url = (await client.files_info(file=file_id))["file"]["url_private_download"]

    async def get(token: str) -> tuple[int, str, bytes]:
        async with session.get(url, headers={"Authorization": f"Bearer {token}"}) as response:
            return response.status, response.content_type, await response.read()

    assert await get(slack.bot_token) == (200, "text/plain", b"hello")
    assert await get(slack.person("ana").token) == (200, "text/plain", b"hello")
    slack.workspace.rules.refused_tokens[slack.bot_token] = "token_revoked"
    for token in ("xoxb-wrong", slack.app_token, slack.bot_token, ""):
        status, kind, page = await get(token)
        assert (status, kind) == (200, "text/html")
        assert b"Sign in" in page


async def test_a_file_of_one_workspace_is_not_there_for_another(session: aiohttp.ClientSession) -> None:
    async with LocalSlack(teams=("Playground", "Second")) as slack:
        mine = AsyncWebClient(token=slack.bot_token, base_url=slack.api_url)
        other = AsyncWebClient(token=slack.team("Second").bot_token, base_url=slack.api_url)
        done = await mine.files_upload_v2(content="hello", filename="a.txt", channel="C0GENERAL")
        file = done["file"]
        assert len(slack.workspace.messages("general")) == 1
        assert slack.team("Second").workspace.messages("general") == ()
        with pytest.raises(SlackApiError, match="file_not_found"):
            await other.files_completeUploadExternal(files=[{"id": file["id"]}])
        await other.files_upload_v2(content="not this one", filename="a.txt")
        headers = {"Authorization": f"Bearer {other.token}"}
        async with session.get(file["url_private_download"], headers=headers) as response:
            assert response.content_type == "text/html"


async def test_a_deleted_file_is_gone_from_its_message(
    slack: LocalSlack, client: AsyncWebClient, session: aiohttp.ClientSession
) -> None:
    file_id = await upload(client, session, "a.txt", b"hello")
    await client.files_completeUploadExternal(files=[{"id": file_id}], channel_id="C0GENERAL")
    with pytest.raises(SlackRefused, match="cant_delete_file"):
        await slack.as_person("ana").call("files.delete", file=file_id)
    await client.files_delete(file=file_id)
    assert await refused(client.files_info(file=file_id)) == "file_not_found"
    assert await refused(client.files_delete(file=file_id)) == "file_deleted"
    message = (await client.conversations_history(channel="C0GENERAL"))["messages"][0]
    assert message["files"] == [{"id": file_id, "mode": "tombstone"}]


async def test_people_share_files_too(slack: LocalSlack, session: aiohttp.ClientSession, bot: Any) -> None:
    ana = slack.as_person("ana")
    given = await ana.call("files.getUploadURLExternal", filename="a.png", length=3)
    await session.post(given["upload_url"], data=b"png")
    await ana.call(
        "files.completeUploadExternal",
        files=[{"id": given["file_id"]}],
        channel_id="C0GENERAL",
        initial_comment=f"<@{slack.bot_user_id}> look",
    )
    event = await bot.event(lambda e: e["type"] == "message" and e["user"] == "U0ANA")
    assert (event["subtype"], event["files"][0]["mimetype"]) == ("file_share", "image/png")
    mention = await bot.event(lambda e: e["type"] == "app_mention")
    assert mention["files"] == event["files"]
