"""`tool-agents`: agents, tools, templates and reflection from a mount plan."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from agents import ScriptedProvider, call, say, told, use

from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.states import AgentCallState, AgentResultState, ToolResultState
from orchestrator_interactive.interactions.stores.memory import MemoryStore
from orchestrator_interactive.kernel import AmplifierSession
from orchestrator_interactive.kernel.contracts.messages import Usage
from orchestrator_interactive.testing import MockApprovalSystem

TOOLS = """
from orchestrator_interactive.registries import tool, tool_registry
from orchestrator_interactive.registries.schemas import ToolConfig

@tool(ToolConfig("{name}", "Counts words.", reflect=True))
def count(text: str) -> int:
    return len(text.split())

tool_registry.register(count)
"""
GOOD = say('{"score": 0.8, "comment": "Precise."}')


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module that registers a tool of the same name."""
    name = f"words_{uuid4().hex}"
    (tmp_path / f"{name}.py").write_text(TOOLS.format(name=name))
    monkeypatch.syspath_prepend(tmp_path)
    return name


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def session(store: MemoryStore) -> Callable[..., AmplifierSession]:
    """A session with these agents, hooks and options."""

    def make(*agents: dict[str, Any], hooks: Sequence[dict[str, Any]] = (), **options: Any) -> AmplifierSession:
        plan = {
            "session": {"orchestrator": "loop-interactive", "context": "context-stack"},
            "providers": [{"module": "provider-demo", "config": {"think_s": 0, "word_s": 0}}],
            "tools": [{"module": "tool-agents", "config": {"agents": list(agents), **options}}],
            "hooks": list(hooks),
        }
        session = AmplifierSession(plan, session_id="talk")
        session.coordinator.register_capability("interactions.store", store)
        return session

    return make


async def states(store: MemoryStore, kind: type) -> list[Any]:
    stack = InteractionStack(store, "talk", "agent")
    return [e.state async for e in stack.iter_last_n(await stack.length()) if isinstance(e.state, kind)]


async def scripted(session: AmplifierSession, *steps: Any) -> ScriptedProvider:
    """Replace the session's provider by a script, which its agents follow as well."""
    await session.initialize()
    script = ScriptedProvider(*steps, name="demo")
    await session.coordinator.mount("providers", script)
    return script


async def test_agents_of_a_plan_use_its_model_a_template_and_registered_tools_and_are_judged(
    session: Callable[..., AmplifierSession], store: MemoryStore, module: str, tmp_path: Path
) -> None:
    (tmp_path / "editor.md").write_text("You are {{ agent_id }}.")
    editor = {"id": "editor", "behavior_template": "editor.md", "tools": [module]}
    options = {"modules": [module], "templates": str(tmp_path), "reflection_agent_id": "judge"}
    async with session(editor, {"id": "judge"}, **options) as opened:
        script = await scripted(
            opened,
            call(use("call_agent", "a", agent_id="editor", message="Count: one two")),
            call(use(module, "b", text="one two")),
            say("Two."),
            GOOD,
            say("It says two."),
        )
        assert await opened.execute("Ask the editor") == "It says two."
    assert told(script.sent(1)) == [("system", "You are editor."), ("user", "Count: one two")]
    (asked,), (answered,) = await states(store, AgentCallState), await states(store, AgentResultState)
    assert (asked.agent_id, answered.result["content"], answered.score) == ("editor", "Two.", 0.8)


async def test_an_agent_of_a_plan_with_call_agent_asks_the_others(session: Callable[..., AmplifierSession]) -> None:
    async with session({"id": "editor", "tools": ["call_agent"]}, {"id": "critic"}) as opened:
        script = await scripted(
            opened,
            call(use("call_agent", "a", agent_id="editor", message="Shorten: one two")),
            call(use("call_agent", "b", agent_id="critic", message="Is 'one' good?")),
            say("Yes."),
            say("One."),
            say("It says one."),
        )
        assert await opened.execute("Ask the editor") == "It says one."
    assert [told(script.sent(n))[-1] for n in (2, 3, 4)] == [
        ("user", "Is 'one' good?"),
        ("tool", "Yes."),
        ("tool", "One."),
    ]


async def test_the_results_of_any_tool_can_be_judged(
    session: Callable[..., AmplifierSession], store: MemoryStore, module: str
) -> None:
    options = {"modules": [module], "tools": [module], "reflection_agent_id": "judge", "reflect": ["call_agent"]}
    async with session({"id": "judge"}, **options) as opened:
        bad = use("call_agent", "a", agent_id="judge", message="Hello")
        await scripted(opened, call(bad), say("Hi."), GOOD, GOOD, call(use(module, "b", text="x")), GOOD, say("Done."))
        assert await opened.execute("go") == "Done."
    assert [state.reward for state in await states(store, ToolResultState)] == [0.8, 0.8]


@pytest.mark.parametrize("asked", [{}, {"reflection_agent_id": "editor", "reflect": ["call_agent"]}])
async def test_the_model_calls_of_an_agent_and_of_a_judge_are_in_the_budgets_of_the_session(
    session: Callable[..., AmplifierSession], asked: dict[str, Any]
) -> None:
    limits = [{"per": "channel", "period": "day", "tokens": 100_000}]
    hook = {"module": "hooks-budget", "config": {"limits": limits, "output_tokens": 100}}
    channel, much = uuid4().hex, {"usage": Usage(input_tokens=99_900, output_tokens=50, total_tokens=99_950)}
    async with session({"id": "editor"}, hooks=[hook], **asked) as opened:
        opened.coordinator.register_capability("approvals.facts", lambda: {"channel": channel})
        ask = call(use("call_agent", "a", agent_id="editor", message="Hello"))
        answers = [say("Hi.", **({} if asked else much)), *([say("{}", **much)] if asked else [])]
        script = await scripted(opened, ask, *answers, say("never"))
        assert "is used up" in await opened.execute("Ask the editor")
        assert len(script.requests) == 1 + len(answers)


@pytest.mark.parametrize(("answer", "result"), [("Allow", "2"), ("Deny", "Denied")])
async def test_people_approve_the_tool_calls_of_an_agent(
    session: Callable[..., AmplifierSession], module: str, answer: str, result: str
) -> None:
    rules = [{"tool": module, "level": "ask"}, {"tool": "call_agent", "level": "allow"}]
    hook = {"module": "hooks-approval", "config": {"rules": rules}}
    people = MockApprovalSystem(answer)
    agent = {"id": "editor", "tools": [module]}
    async with session(agent, hooks=[hook], modules=[module]) as opened:
        opened.coordinator.approval_system = people
        script = await scripted(
            opened,
            call(use("call_agent", "a", agent_id="editor", message="Count: one two")),
            call(use(module, "b", text="one two")),
            say("Done."),
            say("It is done."),
        )
        await opened.execute("Ask the editor")
    assert [each.prompt for each in people.requests] == [f"Allow {module}?"]
    assert told(script.sent(2))[-1][1].startswith(result)


@pytest.mark.parametrize(
    ("agent", "options", "sentence"),
    [
        ({"id": "a", "llm_model": "anthropic/x"}, {}, "needs the provider 'provider-anthropic': add that to"),
        ({"id": "a", "tools": ["fly"]}, {}, "There is no tool 'fly'"),
        ({"id": "a", "behavior_template": "x.md"}, {}, "There is no template 'x.md'"),
        ({"id": "a"}, {"reflection_agent_id": "judge"}, "There is no agent 'judge'. Registered: a."),
        ({"id": "a", "model": "x"}, {}, "tool-agents: there is no 'agents.0.model'"),
        ({"id": "a"}, {"modules": ["no_such_module"]}, "No module named 'no_such_module'. Install it for this Python"),
        ({"id": "a"}, {"tools": ["fly"]}, "There is no tool 'fly'"),
    ],
)
async def test_the_error_of_a_wrong_option_names_it(
    session: Callable[..., AmplifierSession], agent: dict[str, Any], options: dict[str, Any], sentence: str
) -> None:
    opened = session(agent, **options)
    failures: list[str] = []

    async def note(_event: str, data: dict[str, Any]) -> None:
        failures.append(data["error"])

    opened.coordinator.hooks.register("module:load_failed", note)  # type: ignore[arg-type]
    async with opened:
        (failure,) = failures
    assert sentence in failure


async def test_a_model_with_the_prefix_of_a_provider_of_the_plan_uses_its_options(
    session: Callable[..., AmplifierSession],
) -> None:
    async with session({"id": "editor", "llm_model": "demo/words"}) as opened:
        agent = await opened.coordinator.get_capability("agents.registry").get_agent("editor")
        assert "offline demo" in await agent.run("Hello! What can you do?", "elsewhere")
