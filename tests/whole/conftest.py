from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from functools import partial
from pathlib import Path

import pytest
from anthropic_server import AnthropicServer
from chromium import connected_to
from playwright.async_api import Browser
from scenario import Scenario, served
from service_fixtures import ServiceFixture, service_fixture
from service_process import playing
from slack_environment import SlackEnvironment
from slack_page import SlackPage
from tool_gate import GATED_TOOL, ToolGate

import service
from local_slack import LocalSlack

PLAY = Path(service.__file__).parent / "play"


@pytest.fixture
async def browser(chromium_address: str) -> AsyncIterator[Browser]:
    async with connected_to(chromium_address) as browser:
        yield browser


@pytest.fixture
def open_page(browser: Browser) -> Callable[[str], Awaitable[SlackPage]]:
    """Open the page of a local Slack at this URL."""
    return lambda url: SlackPage.open(browser, url)


@pytest.fixture
async def model(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[AnthropicServer]:
    """A Messages API whose responses the test controls; a service in this process uses it."""
    async with AnthropicServer() as server:
        for name, value in server.env.items():
            monkeypatch.setenv(name, value)
        yield server


@pytest.fixture
def opened(model: AnthropicServer, tmp_path: Path) -> Callable[..., AbstractAsyncContextManager[ServiceFixture]]:
    """Run the service in this process, with options of the loop."""
    return lambda **loop_options: service_fixture(model, tmp_path, **loop_options)


@pytest.fixture
async def environment(tmp_path: Path) -> AsyncIterator[SlackEnvironment]:
    """A workspace for the processes of a service."""
    async with LocalSlack() as slack:
        yield SlackEnvironment.of(slack, tmp_path)


@pytest.fixture
async def tests_tool() -> AsyncIterator[ToolGate]:
    """Holds the calls of the agent's tool `run_tests`."""
    async with ToolGate() as gate:
        yield gate


@pytest.fixture
def serving(tmp_path: Path) -> Callable[..., AbstractAsyncContextManager[Scenario]]:
    """Run the service in processes of its own; see `served`."""
    return partial(served, tmp_path)


@pytest.fixture
async def page(
    browser: Browser, environment: SlackEnvironment, model: AnthropicServer, tests_tool: ToolGate, tmp_path: Path
) -> AsyncIterator[SlackPage]:
    """The page of the playground, whose agent also has the tool `run_tests`."""
    config = play_config(tmp_path)
    tool = f"{{module: gated-tool, source: {GATED_TOOL}, config: {{port: {tests_tool.port}}}}}"
    allowed = "config: {rules: [{tool: run_tests, level: allow}]}"
    changes = {"{module: tool-todo}": tool, "{module: hooks-approval}": f"{{module: hooks-approval, {allowed}}}"}
    text = config.read_text()
    for part, changed in changes.items():
        assert part in text
        text = text.replace(part, changed)
    config.write_text(text)
    async with environment.serving("--config", str(config), **model.env) as service:
        await service.says("service.ready")
        yield await SlackPage.open(browser, environment.slack.url)


def play_config(folder: Path) -> Path:
    """Return a copy of the configuration of `make play` with workspaces of its own."""
    config = folder / "config.yaml"
    text = (PLAY / "config.yaml").read_text()
    config.write_text(
        text.replace("template: notes", f"template: {PLAY}/notes").replace("level: warning", "level: info")
    )
    return config


@pytest.fixture
async def playground(browser: Browser, tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[SlackPage]]]:
    """Run what `make play` starts without a key; open its page."""
    async with playing(tmp_path / "play") as url:
        yield lambda **size: SlackPage.open(browser, url, **size)
