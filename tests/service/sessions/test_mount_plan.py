"""What the configuration file says about the loop and its providers arrives there."""

from __future__ import annotations

from pathlib import Path

import pytest
from anthropic_server import AnthropicServer, message, text

from orchestrator_interactive.interactions.stores.memory import MemoryStore
from service.config.config import ConfigError, load_config
from service.sessions.manager import InProcessSessionManager
from service.sessions.workspaces import Workspaces

HERE = "T:C:1.0"
FILE = """
instances:
  alpha:
    persona: {{name: Alpha, emoji: ':owl:'}}
    orchestrator: {{module: loop-interactive, config: {{{options}}}}}
{more}
workspace: {{root: files}}
"""


def manager(folder: Path, options: str, more: str = "") -> InProcessSessionManager:
    path = folder / "config.yaml"
    path.write_text(FILE.format(options=options, more=more))
    config = load_config(path)
    return InProcessSessionManager(config.instances, "provider-anthropic", Workspaces(config.workspace), MemoryStore())


@pytest.fixture(autouse=True)
def a_key(monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-of-the-test")


async def test_every_option_of_the_loop_can_be_set(tmp_path):
    options = (
        "max_iterations: 50, max_cost_usd: 0.5, max_tokens: 200000, max_duration_s: 900, max_retries: 5, "
        "retry_base_delay_s: 0.5, tool_timeout_s: 60, max_result_chars: 20000, stop_grace_s: 1, stall_timeout_s: 30, "
        "max_waiting: 20, force_respond_tools: [todo], default_provider: anthropic, extended_thinking: true"
    )
    async with manager(tmp_path, options):
        pass


@pytest.mark.parametrize(("options", "kind"), [("", "disabled"), ("extended_thinking: true", "adaptive")])
async def test_extended_thinking_reaches_the_provider(tmp_path, monkeypatch, options, kind):
    async with AnthropicServer() as server:
        monkeypatch.setenv("ANTHROPIC_BASE_URL", server.base_url)
        server.reply(text("fine"))
        async with manager(tmp_path, options) as sessions:
            await sessions.execute("alpha", HERE, "hello")
        assert server.bodies[0]["thinking"]["type"] == kind


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ("max_cost_usd: 0", "max_cost_usd"),
        ("max_tokens: many", "max_tokens"),
        ("max_duration_s: -1", "max_duration_s"),
        ("max_result_chars: 3", "max_result_chars"),
        ("max_money: 3", "there is no 'max_money'; there are: max_iterations, max_cost_usd"),
    ],
)
async def test_a_wrong_option_of_the_loop_is_told_at_the_start(tmp_path, options, told):
    with pytest.raises(ConfigError, match=told):
        await manager(tmp_path, options).__aenter__()


async def test_the_providers_are_asked_in_the_order_of_the_file(tmp_path):
    async with AnthropicServer() as first:
        first.fail(401, "authentication_error")
        providers = f"""
    providers:
      - {{module: provider-anthropic, config: {{base_url: "{first.base_url}"}}}}
      - {{module: provider-demo, config: {{think_s: 0, word_s: 0}}}}
"""
        heard: list[tuple[str, dict]] = []

        async def hear(event: str, data: dict) -> None:
            heard.append((event, data))

        async with manager(tmp_path, "", providers) as sessions:
            assert "offline demo" in await sessions.execute("alpha", HERE, "hello", hear)
            first.otherwise = lambda _: message(text("fine"))
            assert await sessions.execute("alpha", HERE, "hello again", hear) == "fine"
    (told,) = [data for event, data in heard if event == "fallback"]
    assert (told["provider"], told["to"]) == ("anthropic", "demo"), "and the next run begins with the first one again"


async def test_a_provider_that_would_replace_another_one_is_told_at_the_start(tmp_path):
    providers = """
    providers:
      - {module: provider-demo, config: {think_s: 0}}
      - {module: provider-demo, config: {think_s: 1}}
"""
    with pytest.raises(ConfigError, match="the module 'provider-demo' replaces 'demo', which has the same name"):
        await manager(tmp_path, "", providers).__aenter__()
