"""The page of the local Slack in a browser."""

from __future__ import annotations

import os
from pathlib import Path

from playwright.async_api import Browser, Locator, Page, expect

# A folder for screenshots of the browser tests.
SCREENSHOTS = os.environ.get("SCREENSHOTS")


class SlackPage:
    """The page of the local Slack, and the actions of a person on it."""

    def __init__(self, page: Page) -> None:
        self._page = page
        self.channel, self.thread = self.by("channel-pane"), self.by("thread-pane")

    @classmethod
    async def open(cls, browser: Browser, url: str, *, width: int = 1280, height: int = 800) -> SlackPage:
        page = await browser.new_page(viewport={"width": width, "height": height})
        errors: list[str] = []
        page.on("pageerror", lambda error: errors.append(str(error)))
        await page.goto(url)
        opened = cls(page)
        await expect(opened.by("app")).to_have_attribute("data-ready", "true")
        assert not errors
        return opened

    def by(self, testid: str, inside: Locator | None = None) -> Locator:
        return (inside or self._page).get_by_test_id(testid)

    async def become(self, name: str) -> None:
        """Write as this person from now on, in the same place."""
        await self.by("writer-switch", self.channel).click()
        await self.by(f"writer-option-{name}", self.channel).click()
        await expect(self.by("writer-switch", self.channel)).to_contain_text(name.capitalize())
        await expect(self.by("app")).to_have_attribute("data-ready", "true")

    async def write(self, pane: Locator, text: str) -> None:
        await self.by("composer", pane).fill(text)
        await self.by("composer", pane).press("Enter")

    def message(self, pane: Locator, text: str) -> Locator:
        return self.by("message", pane).filter(has_text=text)

    async def see(self, pane: Locator, text: str) -> Locator:
        """Wait for a message with this text."""
        found = self.message(pane, text).last
        await expect(found).to_be_visible(timeout=40_000)
        return found

    async def see_reaction(self, pane: Locator, text: str, name: str, *, gone: bool = False) -> None:
        reaction = self.by(f"reaction-{name}", self.message(pane, text).first)
        await (expect(reaction).to_have_count(0) if gone else expect(reaction).to_be_visible())

    async def react(self, message: Locator, name: str) -> None:
        await message.hover()
        await self.by(f"quick-react-{name}", message).click()

    async def reload(self) -> None:
        await self._page.reload()
        await expect(self.by("app")).to_have_attribute("data-ready", "true")

    async def screenshot(self, name: str) -> None:
        if SCREENSHOTS:
            await self._page.screenshot(path=Path(SCREENSHOTS) / f"{name}.png", animations="disabled")
