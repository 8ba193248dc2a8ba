"""`make play` without a key and without a configuration."""

from __future__ import annotations

import pytest
from playwright.async_api import expect
from service_process import playing

pytestmark = pytest.mark.browser


async def test_the_suggested_first_message_leads_to_a_review_of_the_notes(playground):
    page = await playground()
    await page.screenshot("0-welcome")
    await page.by("suggestion").click()
    await page.by("composer", page.channel).press("Enter")
    await page.see(page.thread, "Reading ")
    await page.write(page.thread, "also check who owns the budget")
    await page.see_reaction(page.thread, "also check who owns the budget", "eyes")
    await page.screenshot("5-demo-working")
    answer = await page.see(page.thread, "While I was working you also wrote:")
    await expect(answer).to_contain_text("also check who owns the budget")
    await expect(page.thread).to_contain_text("roadmap.md")
    await expect(page.message(page.thread, "⚙️")).to_have_count(0)
    await page.screenshot("6-demo-answered")


async def test_each_play_begins_with_one_thread_and_one_alert_about_which_the_agent_can_be_asked(open_page, tmp_path):
    for _ in range(2):
        async with playing(tmp_path / "play") as url:
            page = await open_page(url)
            await page.by("channel-alerts").click()
            await expect(page.by("message", page.channel)).to_have_count(1)
            await expect(page.by("attachment", page.channel)).to_contain_text("14 of 40 attempts failed")
            await page.by("channel-general").click()
            await expect(page.by("message", page.channel)).to_have_count(1)
            await expect(page.by("thread-summary", page.channel)).to_contain_text("3 replies")
            await page.by("thread-summary", page.channel).click()
            await page.become("ben")
            await page.write(page.thread, "@alpha search for launch")
            answer = await page.see(page.thread, "“launch”:")
            await expect(answer).to_contain_text("roadmap.md:11")
            await page.screenshot("people-0-play")


async def test_the_page_works_in_a_narrow_window(playground):
    page = await playground(width=390, height=780)
    await page.write(page.channel, "@alpha hello")
    await page.see(page.thread, "offline demo")
    await page.screenshot("7-narrow")
