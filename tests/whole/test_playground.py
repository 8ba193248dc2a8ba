"""`make play` without a key and without a configuration."""

from __future__ import annotations

import re
import time

import pytest
from playwright.async_api import expect
from service_process import playing

pytestmark = pytest.mark.browser

LONGEST_TOUR_S = 180.0


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


async def test_the_tour_leads_through_a_steer_a_stop_an_approval_a_fork_and_a_kill(playground):
    page = await playground()
    tour, go = page.by("tour"), page.by("tour-go")

    async def step(number, label):
        await expect(tour).to_contain_text(f"{number} of 6", timeout=40_000)
        await go.filter(has_text=label).click()

    began = time.monotonic()
    await go.click()
    await step(1, "Send “@alpha look through the notes")
    await step(2, "Send “also search for launch”")
    await page.see_reaction(page.thread, "also search for launch", "eyes")
    await step(3, "Stop it")
    await page.see(page.thread, "🛑 Stopped by Ana.")
    await step(4, "Send “save it into review.md")
    await page.see(page.thread, "Allow write_file?")
    await page.screenshot("tour-1-approval")
    await page.thread.get_by_role("button", name="Allow", exact=True).click()
    await step(5, "Send “!fork”")
    await step(6, "Send “look through")
    await go.filter(has_text="Kill the app").click()
    await expect(tour).to_contain_text("The app is not connected.")
    await page.screenshot("tour-2-killed")
    await expect(tour).to_contain_text("That was the tour", timeout=60_000)
    await expect(page.by("tour-note")).to_have_text(re.compile(r"The app was away for \d+\.\d seconds\."))
    assert time.monotonic() - began < LONGEST_TOUR_S
    await expect(page.message(page.thread, "What I suggest")).to_have_count(1)
    await page.screenshot("tour-3-ended")


async def test_a_tour_goes_on_after_a_reload_until_it_is_dismissed_for_good(playground):
    page = await playground()
    tour = page.by("tour")
    await page.by("tour-go").click()
    await page.by("tour-skip").click()
    await page.reload()
    await expect(tour).to_contain_text("2 of 6")
    await page.by("tour-close").click()
    await page.reload()
    await expect(tour).to_be_hidden()
    await page.by("open-tour").click()
    await expect(tour).to_contain_text("Begin")
    await page.by("tour-later").press("Escape")
    await expect(tour).to_be_hidden()


async def test_the_page_works_in_a_narrow_window(playground):
    page = await playground(width=390, height=780)
    await expect(page.by("tour")).to_be_hidden()
    await page.write(page.channel, "@alpha hello")
    await page.see(page.thread, "offline demo")
    await page.screenshot("7-narrow")
