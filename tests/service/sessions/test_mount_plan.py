"""The options of an instance in the configuration file reach its session, its loop and its providers."""

from __future__ import annotations

import pytest
from anthropic_server import AnthropicServer, message, text
from session_tests import HERE, ProgressRecorder

from orchestrator_interactive.interactions.stores.memory import MemoryStore
from orchestrator_interactive.kernel import AmplifierSession
from service.config.config import load_config
from service.sessions.manager import InProcessSessionManager
from service.sessions.mount_plan import mount_plan
from service.sessions.workspaces import Workspaces


@pytest.fixture
def config(config_file):
    """Load a file with one instance with these lines."""

    def load(*lines):
        more = "".join(f"\n    {line}" for line in lines)
        return load_config(
            config_file(f"instances:\n  alpha:\n    persona: {{name: A, emoji: ':owl:'}}{more}\nworkspace: {{root: .}}")
        )

    return load


@pytest.fixture
def manager(config, monkeypatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-of-the-test")

    def create(*lines):
        loaded = config(*lines)
        workspaces = Workspaces(loaded.workspace)
        return InProcessSessionManager(loaded.instances, "provider-anthropic", workspaces, MemoryStore())

    return create


def loop(options):
    return f"orchestrator: {{module: loop-interactive, config: {{{options}}}}}"


async def test_every_option_of_the_loop_can_be_set(manager):
    options = (
        "max_iterations: 50, max_cost_usd: 0.5, max_tokens: 200000, max_duration_s: 900, max_retries: 5, "
        "retry_base_delay_s: 0.5, tool_timeout_s: 60, max_result_chars: 20000, stop_grace_s: 1, stall_timeout_s: 30, "
        "max_waiting: 20, force_respond_tools: [todo], default_provider: anthropic, extended_thinking: true"
    )
    async with manager(loop(options)):
        pass


@pytest.mark.parametrize(("options", "kind"), [("", "disabled"), ("extended_thinking: true", "adaptive")])
async def test_extended_thinking_reaches_the_provider(model, manager, options, kind):
    async with manager(loop(options)) as sessions:
        await sessions.execute("alpha", HERE, "hello")
    assert model.bodies[0]["thinking"]["type"] == kind


async def test_each_run_tries_the_providers_in_the_order_of_the_file(manager):
    progress = ProgressRecorder()
    async with AnthropicServer() as first:
        first.fail(401, "authentication_error")
        anthropic = f'{{module: provider-anthropic, config: {{base_url: "{first.base_url}"}}}}'
        demo = "{module: provider-demo, config: {think_s: 0, word_s: 0}}"
        async with manager(f"providers: [{anthropic}, {demo}]") as sessions:
            assert "offline demo" in await sessions.execute("alpha", HERE, "hello", progress)
            first.otherwise = lambda _: message(text("fine"))
            assert await sessions.execute("alpha", HERE, "hello again", progress) == "fine"
    (fallback,) = progress.data("fallback")
    assert (fallback["provider"], fallback["to"]) == ("anthropic", "demo")


def test_the_limits_of_hooks_reach_the_session(config, tmp_path):
    loaded = config("session: {hook_timeout_s: 30, injection_size_limit: 20000, injection_budget_per_turn: 2000}")
    plan = mount_plan(loaded.instances["alpha"], "provider-demo", tmp_path)
    coordinator = AmplifierSession(plan).coordinator
    assert (coordinator.injection_size_limit, coordinator.injection_budget_per_turn) == (20000, 2000)
    assert coordinator.hooks.timeout_s == 30
