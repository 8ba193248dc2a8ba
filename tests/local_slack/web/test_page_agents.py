"""An agent's session and its files, on the page."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from playwright.async_api import Page, expect

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    import aiohttp
    from slack_sdk.web.async_client import AsyncWebClient

    from local_slack import LocalSlack

GENERAL = "C0GENERAL"


async def uploaded(client: AsyncWebClient, channel: str, thread: str | None = None) -> str:
    answer = await client.files_upload_v2(
        channel=channel, thread_ts=thread, content="a page", filename="notes.html", title="The notes"
    )
    return str(answer["file"]["id"])


@pytest.mark.browser
async def test_a_session_is_shown_in_its_thread_with_slacks_own_stop_and_its_file(
    slack: LocalSlack, connect: Callable[..., Awaitable[Any]], page: Page
) -> None:
    bot = await connect(slack)
    root = await slack.as_person("ana").say("general", "@alpha look through the notes")
    place = {"channel_id": GENERAL, "thread_ts": root}
    await bot.client.api_call("agents.sessions.setStatus", json={**place, "status": "processing"})
    await bot.client.reactions_add(channel=GENERAL, timestamp=root, name="hourglass_flowing_sand")
    await page.goto(f"{slack.url}#/ana/general/{root}")
    thread = page.get_by_test_id("thread-pane")
    await expect(thread.get_by_test_id("session-state")).to_have_text("Working")
    await expect(thread.get_by_test_id("run-bar")).to_contain_text("Alpha is working.")
    await expect(thread.get_by_test_id("stop-run")).to_be_hidden()

    await bot.client.api_call("agents.sessions.rename", json={**place, "title": "The notes of the team"})
    await bot.client.assistant_threads_setStatus(**place, status="is reading…")
    await expect(thread.get_by_test_id("thread-title")).to_have_text("The notes of the team")
    await expect(thread.get_by_test_id("session-text")).to_have_text("Alpha is reading…")
    await thread.get_by_test_id("stop-session").click()
    stopped = await bot.event(lambda event: event["type"] == "agent_session_stopped")
    assert (stopped["thread_ts"], stopped["user"]) == (root, "U0ANA")
    await bot.client.api_call("agents.sessions.setStatus", json={**place, "status": "active"})
    await expect(thread.get_by_test_id("session-state")).to_have_text("Ready")
    await expect(thread.get_by_test_id("stop-session")).to_be_hidden()

    await uploaded(bot.client, GENERAL, root)
    link = thread.get_by_test_id("file")
    await expect(link).to_contain_text("notes.html · 6 bytes")
    async with page.expect_download() as saving:
        await link.click()
    assert (await saving.value).suggested_filename == "notes.html"


async def test_a_file_is_for_those_who_see_it_and_is_never_shown_as_a_page(
    slack: LocalSlack, session: aiohttp.ClientSession, client: AsyncWebClient
) -> None:
    file = await uploaded(client, await slack.as_person("ana").open_dm("alpha"))
    for token, status in (("", 401), (slack.bot_token, 401), (slack.person("ben").token, 404)):
        async with session.get(f"{slack.url}page/files/{file}?token={token}") as response:
            assert response.status == status
    async with session.get(f"{slack.url}page/files/{file}?token={slack.person('ana').token}") as response:
        assert await response.text() == "a page"
        assert response.headers["Content-Disposition"] == "attachment; filename*=UTF-8''notes.html"
        assert response.headers["X-Content-Type-Options"] == "nosniff"
