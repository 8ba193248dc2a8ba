"""The options of an instance reach its session, its loop and its providers; problems are found at the start."""

from __future__ import annotations

import sys

import pytest
from anthropic_server import AnthropicServer, message, text
from session_tests import HERE, ProgressRecorder

from orchestrator_interactive.interactions.stores.memory import MemoryStore
from orchestrator_interactive.kernel import AmplifierSession
from service.config.config import load_config
from service.sessions.manager import InProcessSessionManager
from service.sessions.mount_plan import find_problems, mount_plan
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


def test_the_limits_of_a_workspace_reach_the_tools_that_write_in_it(config, tmp_path):
    loaded = config("tools: [tool-filesystem, tool-bash]")
    limits = {"quota_mb": 1, "quota_files": 2, "reserve_mb": 3}
    plan = mount_plan(loaded.instances["alpha"], "provider-demo", tmp_path, limits=limits)
    files, commands = (entry["config"] for entry in plan["tools"])
    assert files == {"root": str(tmp_path), **limits}
    assert commands == {"root": str(tmp_path), "quota_mb": 1, "reserve_mb": 3}


TWO_DEMOS = "providers: [{module: provider-demo, config: {think_s: 0}}, {module: provider-demo}]"


@pytest.fixture
def problems(config_file, tmp_path, monkeypatch):
    """Find the problems of an instance with this line in its configuration."""
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-of-the-test")

    async def find(line):
        config = load_config(config_file(f"instances: {{a: {{persona: {{name: A, emoji: ':owl:'}}, {line}}}}}"))
        return await find_problems(mount_plan(config.instances["a"], "provider-anthropic", tmp_path))

    return find


@pytest.mark.parametrize("line", ["providers: [{module: M}]", "tools: [M]", "orchestrator: M", "context: M"])
async def test_an_unknown_module_is_reported_with_the_installed_modules(problems, line):
    (problem,) = await problems(line.replace("M", "provider-nowhere"))
    assert "There is no module 'provider-nowhere'. Installed modules: " in problem
    assert "provider-demo" in problem


@pytest.mark.parametrize(
    ("key", "line", "module"),
    [
        ("orchestrator", "orchestrator: context-simple", "context-simple"),
        ("orchestrator", "orchestrator: tool-todo", "tool-todo"),
        ("context", "context: loop-interactive", "loop-interactive"),
        ("context", "context: tool-todo", "tool-todo"),
        ("provider", "providers: [tool-todo]", "tool-todo"),
        ("tool", "tools: [provider-demo]", "provider-demo"),
    ],
)
async def test_a_module_of_another_kind_is_reported(problems, key, line, module):
    (problem,) = await problems(line)
    assert module in problem
    assert key in problem


@pytest.mark.parametrize(
    ("line", "part"),
    [
        (loop("max_cost_usd: 0"), "loop-interactive: 'max_cost_usd'"),
        (loop("max_tokens: many"), "loop-interactive: 'max_tokens'"),
        (loop("max_duration_s: -1"), "loop-interactive: 'max_duration_s'"),
        (loop("max_result_chars: 3"), "loop-interactive: 'max_result_chars'"),
        (loop("max_money: 3"), "there is no 'max_money'; there are: max_iterations, max_cost_usd"),
        ("context: {module: context-stack, config: {max_token: 3}}", "context-stack: there is no 'max_token'"),
        (TWO_DEMOS, "the module 'provider-demo' replaces 'demo', which has the same name"),
    ],
)
async def test_a_wrong_option_of_a_module_is_reported(problems, line, part):
    (problem,) = await problems(line)
    assert part in problem


async def test_a_plan_without_a_usable_provider_is_reported(problems, monkeypatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY")
    assert await problems("providers: [provider-anthropic]") == [
        "No provider could be mounted: set ANTHROPIC_API_KEY or OPENAI_API_KEY, or name another provider."
    ]


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Install a module named `odd` with this body of `mount`."""

    def install(body):
        (tmp_path / "odd_module.py").write_text(f"async def mount(coordinator, config):\n    {body}\n")
        info = tmp_path / "odd_module-1.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: odd-module\nVersion: 1\n")
        (info / "entry_points.txt").write_text("[amplifier.modules]\nodd = odd_module:mount\n")
        monkeypatch.delitem(sys.modules, "odd_module", raising=False)
        monkeypatch.syspath_prepend(tmp_path)

    return install


@pytest.mark.parametrize("error", ["RuntimeError('on\\ntwo lines')", "KeyError()", "OSError(2, 'gone')"])
@pytest.mark.parametrize(
    "line", ["orchestrator: odd", "context: odd", "providers: [odd]", "tools: [odd]", "hooks: [odd]"]
)
async def test_an_error_of_a_modules_mount_is_reported_in_one_line(problems, install, line, error):
    install(f"raise {error}")
    (problem,) = await problems(line)
    assert problem.startswith("odd: ")
    assert "\n" not in problem


async def test_only_a_provider_module_may_mount_nothing(problems, install):
    install("return None")
    assert await problems("providers: [odd, provider-demo]") == []
    (problem,) = await problems("tools: [odd]")
    assert "the module 'odd' mounts nothing" in problem
