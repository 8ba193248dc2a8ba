"""Problems of a mount plan are found at the start of the service."""

from __future__ import annotations

import sys

import pytest

from service.config.config import load_config
from service.sessions.mount_plan import mount_plan
from service.sessions.preflight import find_problems

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
    assert "There is no module 'provider-nowhere'. The plan has no `source` for it. Installed modules: " in problem
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


def loop(options):
    return f"orchestrator: {{module: loop-interactive, config: {{{options}}}}}"


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
        "No provider could be mounted: set ANTHROPIC_API_KEY, or name another provider."
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
