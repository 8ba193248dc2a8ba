"""What a newcomer meets after `make play`, with no key and no configuration."""

from __future__ import annotations

import pytest
from playwright.async_api import expect

pytestmark = pytest.mark.browser


async def test_the_suggested_first_message_leads_to_a_review_of_the_real_notes(playground):
    seat = await playground()
    await seat.picture("0-welcome")
    await seat.by("suggestion").click()
    await seat.by("composer", seat.channel).press("Enter")
    await seat.see(seat.thread, "Reading ")
    await seat.write(seat.thread, "also check who owns the budget")
    await seat.see_reaction(seat.thread, "also check who owns the budget", "eyes")
    await seat.picture("5-demo-working")
    answer = await seat.see(seat.thread, "While I was working you also wrote:")
    await expect(answer).to_contain_text("also check who owns the budget")
    await expect(seat.by("thread-pane")).to_contain_text("roadmap.md")
    await expect(seat.message(seat.thread, "⚙️")).to_have_count(0)
    await seat.picture("6-demo-answered")


async def test_the_page_works_in_a_narrow_window(playground):
    seat = await playground(width=390, height=780)
    await seat.write(seat.channel, "@alpha hello")
    await seat.see(seat.thread, "offline demo")
    await seat.picture("7-narrow")
