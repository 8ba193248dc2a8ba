"""The guided tour of an app, with steps that a person does by hand."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

TOUR = {
    "title": "A tour",
    "text": "Try it.",
    "end": "The end.",
    "steps": [
        {"title": "Ask", "text": "-", "channel": "general", "say": "@alpha hello", "until": {"words": "Hello"}},
        {"title": "Stop it", "text": "-", "say": "count", "do": "stop", "until": {"status": "active"}},
        {"title": "Look", "text": "-", "until": {"reaction": "eyes"}},
        {"title": "Leave", "text": "-", "channel": "nowhere", "say": "bye", "until": {"words": "Bye"}},
    ],
}
pytestmark = [pytest.mark.browser, pytest.mark.slack(tour=TOUR)]


async def test_a_step_is_done_when_the_thread_shows_it_whoever_did_it(slack, page, open_page, bot):
    await open_page("general")
    tour, go = page.get_by_test_id("tour"), page.get_by_test_id("tour-go")
    await go.click()
    await expect(go).to_have_text("Send “@alpha hello”")
    ana, channel = slack.as_person("ana"), slack.channel("general").id
    await go.click()
    root = await slack.until(lambda workspace: [m for m in workspace.messages(channel) if not m.is_reply])
    place = {"channel_id": channel, "thread_ts": root[0].ts}

    async def work(status):
        await bot.client.api_call("agents.sessions.setStatus", json={**place, "status": status})

    await work("active")
    await bot.client.chat_postMessage(channel=channel, thread_ts=root[0].ts, text="Hello.")
    # The session has the awaited status already: it must get it anew.
    await expect(tour).to_contain_text("2 of 4: Stop it")
    await expect(go).to_have_text("Send “count”")
    await work("processing")
    await expect(go).to_have_text("Stop it")
    await work("active")
    await expect(tour).to_contain_text("3 of 4: Look")
    ts = await ana.say("general", "look", thread=root[0].ts)
    await bot.client.reactions_add(channel=channel, timestamp=ts, name="eyes")
    await expect(tour).to_contain_text("4 of 4: Leave")
    await go.click()
    await expect(tour.get_by_role("alert")).to_have_text("There is no channel #nowhere, which the tour names.")
    await page.get_by_test_id("tour-skip").click()
    await expect(tour).to_contain_text("That was the tour")
