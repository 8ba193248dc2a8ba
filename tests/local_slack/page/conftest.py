"""The page at a place."""

from __future__ import annotations

import pytest
from playwright.async_api import expect


@pytest.fixture
def open_page(page, slack):
    """Open the page as Ana at a channel or thread."""

    async def open_page(place=""):
        await page.goto(f"{slack.url}#/ana/{place}" if place else slack.url)
        await expect(page.get_by_test_id("app")).to_have_attribute("data-ready", "true")

    return open_page
