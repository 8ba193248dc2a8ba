from __future__ import annotations

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from anthropic_server import AnthropicServer
from playwright.async_api import Browser, Locator, Page, async_playwright, expect
from service_fixtures import ServiceFixture, service_fixture
from service_process import playing
from slack_environment import SlackEnvironment
from tool_gate import GATED_TOOL, ToolGate

from local_slack import LocalSlack

ROOT = Path(__file__).parents[2]
# Set it to a folder to see what the tests see.
SCREENSHOTS = os.environ.get("SCREENSHOTS")


@dataclass
class Seat:
    """A person in front of the page."""

    page: Page

    def by(self, testid: str, inside: Locator | None = None) -> Locator:
        return (inside or self.page).get_by_test_id(testid)

    @property
    def channel(self) -> Locator:
        return self.by("channel-pane")

    @property
    def thread(self) -> Locator:
        return self.by("thread-pane")

    async def write(self, pane: Locator, text: str) -> None:
        await self.by("composer", pane).fill(text)
        await self.by("composer", pane).press("Enter")

    def message(self, pane: Locator, text: str) -> Locator:
        return self.by("message", pane).filter(has_text=text)

    async def see(self, pane: Locator, text: str) -> Locator:
        """Wait until a message with this text is there."""
        found = self.message(pane, text).last
        await expect(found).to_be_visible(timeout=40_000)
        return found

    async def see_reaction(self, pane: Locator, text: str, name: str, *, gone: bool = False) -> None:
        reaction = self.by(f"reaction-{name}", self.message(pane, text).first)
        await (expect(reaction).to_have_count(0) if gone else expect(reaction).to_be_visible())

    async def react(self, message: Locator, name: str) -> None:
        await message.hover()
        await self.by(f"quick-react-{name}", message).click()

    async def picture(self, name: str) -> None:
        if SCREENSHOTS:
            await self.page.screenshot(path=Path(SCREENSHOTS) / f"{name}.png", animations="disabled")


@pytest.fixture
async def browser(chromium_address: str) -> AsyncIterator[Browser]:
    async with async_playwright() as playwright:
        browser = await playwright.chromium.connect_over_cdp(chromium_address)
        yield browser
        await browser.close()


async def take_seat(browser: Browser, url: str, *, width: int = 1280, height: int = 800) -> Seat:
    page = await browser.new_page(viewport={"width": width, "height": height})
    errors: list[str] = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    await page.goto(url)
    seat = Seat(page)
    await expect(seat.by("app")).to_have_attribute("data-ready", "true")
    assert not errors
    return seat


@pytest.fixture
async def stage_seat(browser: Browser, stage: SlackEnvironment) -> Seat:
    """In front of the page of the workspace that stays."""
    return await take_seat(browser, stage.slack.url)


@pytest.fixture
async def model() -> AsyncIterator[AnthropicServer]:
    """A Messages API whose answers the test holds."""
    async with AnthropicServer() as server:
        yield server


@pytest.fixture
def opened(
    model: AnthropicServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., AbstractAsyncContextManager[ServiceFixture]]:
    """A workspace with the bot in it, on that model; takes options of the loop."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-of-the-test")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", model.base_url)
    return lambda **loop_options: service_fixture(model, tmp_path, **loop_options)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[SlackEnvironment]:
    """A workspace that stays while services come and go."""
    async with LocalSlack() as slack:
        yield SlackEnvironment.of(slack, tmp_path)


@pytest.fixture
async def play_url(stage: SlackEnvironment, model: AnthropicServer, tmp_path: Path) -> AsyncIterator[str]:
    """A page like the playground's, with the service beside it, on that model."""
    async with _served(stage, model, play_config(tmp_path)) as url:
        yield url


@pytest.fixture
async def tests_at_work() -> AsyncIterator[ToolGate]:
    """Where the agent's tool `run_tests` waits, for those who sit at `gated_seat`."""
    async with ToolGate() as gate:
        yield gate


@pytest.fixture
async def gated_seat(
    browser: Browser, stage: SlackEnvironment, model: AnthropicServer, tests_at_work: ToolGate, tmp_path: Path
) -> AsyncIterator[Seat]:
    config = play_config(tmp_path)
    tool = f"{{module: gated-tool, source: {GATED_TOOL}, config: {{port: {tests_at_work.port}}}}}"
    config.write_text(config.read_text().replace("\nworkspace:", f"    tools: [tool-filesystem, {tool}]\n\nworkspace:"))
    async with _served(stage, model, config) as url:
        yield await take_seat(browser, url)


@pytest.fixture
async def seat(browser: Browser, play_url: str) -> Seat:
    return await take_seat(browser, play_url)


@asynccontextmanager
async def _served(stage: SlackEnvironment, model: AnthropicServer, config: Path) -> AsyncIterator[str]:
    env = {"ANTHROPIC_API_KEY": "sk-ant-test", "ANTHROPIC_BASE_URL": model.base_url}
    async with stage.serving("--config", str(config), **env) as service:
        await service.says("service.ready")
        yield stage.slack.url


def play_config(folder: Path) -> Path:
    """A copy of what `make play` uses, that keeps its workspaces to itself."""
    config = folder / "config.yaml"
    text = (ROOT / "deploy/play/config.yaml").read_text()
    config.write_text(
        text.replace("../../workspaces", "workspaces").replace("template: notes", f"template: {ROOT}/deploy/play/notes")
    )
    return config


@pytest.fixture
async def playground(browser: Browser, tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[Seat]]]:
    """What `make play` starts when no key is set; takes a seat in it."""
    async with playing(play_config(tmp_path)) as url:
        yield lambda **size: take_seat(browser, url, **size)
