"""Child sessions through the capabilities of their parent, with real sessions and logs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest
from agents.milestones import soon
from agents.provider import ScriptedProvider as Script
from agents.provider import Step, call, fail, never, say, use
from scripted_source import SCRIPTS, SOURCE

from orchestrator_interactive.delegation.child_sessions import ChildSessions
from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.stores import MemoryStore
from orchestrator_interactive.kernel import AmplifierSession, HookResult
from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.contracts.errors import ContentFilterError
from orchestrator_interactive.loop.injection_queue import Injection
from service.sessions.mount_plan import LocalSources


def scripted(name: str) -> dict[str, Any]:
    return {"module": "scripted", "source": SOURCE, "config": {"script": name}}


PLAN = {
    "session": {
        "orchestrator": {"module": "loop-interactive", "config": {"max_iterations": 7}},
        "context": {"module": "context-stack", "config": {"conversation_id": "c", "agent_id": "lead"}},
    },
    "providers": [scripted("lead")],
    "tools": [{"module": "tool-todo"}, {"module": "tool-delegate"}],
    "agents": {
        "researcher": {
            "description": "Finds sources.",
            "instructions": "You research.",
            "providers": [scripted("researcher")],
            "replace": ["providers"],
        },
        "broken": {"providers": [{"module": "no-such-module"}], "replace": ["providers"]},
    },
}


@pytest.fixture(autouse=True)
def scripts() -> Iterator[None]:
    SCRIPTS.clear()
    yield
    SCRIPTS.clear()


class Parent:
    """A session; `seen` are the events of its children, with the child's id; `configs` their plans."""

    def __init__(self) -> None:
        self.store = MemoryStore()
        self.session = AmplifierSession(PLAN, session_id="parent")
        self.session.coordinator.register_capability("interactions.store", self.store)
        self.session.coordinator.mount("module-source-resolver", LocalSources())
        self.seen: list[tuple[str, str, dict[str, Any]]] = []
        self.configs: dict[str, dict[str, Any]] = {}
        self.preparing, self.may_begin = asyncio.Event(), asyncio.Event()
        self.may_begin.set()
        self.children = ChildSessions(self.session, prepare=self._prepare)
        self.children.register()

    async def _prepare(self, child: AmplifierSession, child_id: str) -> None:
        self.configs[child_id] = child.config
        self.preparing.set()
        await self.may_begin.wait()

        async def see(event: str, data: dict[str, Any]) -> HookResult:
            self.seen.append((child_id, event, data))
            return HookResult()

        for event in (events.SESSION_START, events.PROVIDER_REQUEST, events.SESSION_END):
            child.coordinator.hooks.register(event, see, name="see")

    def call(self, name: str, *given: Any, **more: Any) -> Any:
        return self.session.coordinator.get_capability(name)(*given, **more)

    async def texts(self, child_id: str, agent: str = "researcher") -> list[str]:
        stack = InteractionStack(self.store, f"c/{child_id}", agent)
        return [str(entry.state) async for entry in stack.iter_last_n(100)]


@pytest.fixture
async def parent() -> AsyncIterator[Parent]:
    script("lead", say("done"))
    parent = Parent()
    async with parent.session:
        yield parent


def script(name: str, *steps: Step) -> Script:
    SCRIPTS[name] = Script(*steps)
    return SCRIPTS[name]


async def test_agents_are_listed_and_described(parent: Parent) -> None:
    assert parent.call("agents.list") == ["researcher", "broken"]
    assert parent.call("agents.get", "researcher")["description"] == "Finds sources."
    assert parent.call("agents.get", "nobody") is None


async def test_a_child_has_a_merged_configuration_its_parents_id_and_a_log_of_its_own(parent: Parent) -> None:
    provider = script("researcher", say("A is blue."), say("It is light blue."))
    found = await parent.call("session.spawn", "researcher", "find A", parent.session, sub_session_id="researcher-1")
    assert (found["output"], found["session_id"], found["status"]) == ("A is blue.", "researcher-1", "success")
    assert found["turn_count"] == 1
    plan = parent.configs["researcher-1"]
    assert plan["session"]["orchestrator"]["config"] == {"max_iterations": 7}
    assert [each["config"]["script"] for each in plan["providers"]] == ["researcher"]
    assert [each["module"] for each in plan["tools"]] == ["tool-todo", "tool-delegate"]
    assert "You research." in str(provider.sent()[0])
    lineage = {(event, data["session_id"], data["parent_id"]) for _, event, data in parent.seen}
    assert {event for event, *_ in lineage} >= {events.SESSION_START, events.PROVIDER_REQUEST}
    assert {each[1:] for each in lineage} == {("parent/researcher-1", "parent")}
    assert any("A is blue." in each for each in await parent.texts("researcher-1"))
    again = await parent.call("session.resume", "researcher-1", "which shade?")
    assert again["output"] == "It is light blue."
    assert [row["role"] for row in provider.sent()][-3:] == ["user", "assistant", "user"], "it remembers"


async def test_what_a_child_inherits_can_be_chosen(parent: Parent) -> None:
    script("researcher", say("ok"))
    await parent.call(
        "session.spawn",
        agent_name="researcher",
        instruction="go",
        sub_session_id="researcher-2",
        tool_inheritance={"exclude_tools": ["tool-todo"]},
        orchestrator_config={"max_iterations": 2},
    )
    plan = parent.configs["researcher-2"]
    assert [each["module"] for each in plan["tools"]] == ["tool-delegate"]
    assert plan["session"]["orchestrator"]["config"]["max_iterations"] == 2


async def test_a_repeated_instruction_is_not_carried_out_again(parent: Parent) -> None:
    provider = script("researcher", say("A is blue."))
    given = {"sub_session_id": "researcher-3", "message_id": "m1"}
    for _ in range(2):
        found = await parent.call("session.spawn", "researcher", "find A", **given)
        assert found["output"] == "A is blue."
    assert len(provider.requests) == 1


async def test_a_child_carries_out_one_task_at_a_time(parent: Parent) -> None:
    script("researcher", say("A is blue."), say("B is red."))

    def spawn(instruction: str) -> Any:
        return parent.call("session.spawn", "researcher", instruction, sub_session_id="researcher-4")

    parent.may_begin.clear()
    working = asyncio.gather(spawn("find A"), spawn("find B"), return_exceptions=True)
    await soon(parent.preparing.wait())
    parent.may_begin.set()
    first, second = await soon(working)
    assert first["output"] == "A is blue."
    assert "The agent 'researcher-4' is at work" in str(second)
    assert (await spawn("find B"))["output"] == "B is red."


async def test_a_refused_task_says_why(parent: Parent) -> None:
    script("researcher", fail(ContentFilterError("The filter rejected it.")))
    found = await parent.call("session.spawn", "researcher", "find A")
    assert (found["status"], found["output"]) == ("incomplete", "The filter rejected it.")


@pytest.mark.parametrize("immediate", [False, True])
async def test_a_stop_of_the_parent_reaches_its_children(parent: Parent, immediate: bool) -> None:
    provider = script("researcher", never())
    working = asyncio.create_task(parent.call("session.spawn", "researcher", "find A"))
    await provider.asked(1)
    token = parent.session.coordinator.cancellation
    assert token.request_immediate() if immediate else token.request_graceful()
    assert (await soon(working))["status"] == "cancelled"
    assert provider.cancelled == 1


async def test_one_child_is_stopped_by_its_name(parent: Parent) -> None:
    provider = script("researcher", never())
    working = asyncio.create_task(parent.call("session.spawn", "researcher", "find A"))
    await provider.asked(1)
    assert not parent.children.stop("writer")
    assert parent.children.stop("Researcher")
    assert (await soon(working))["status"] == "cancelled"
    assert not parent.session.coordinator.cancellation.is_cancelled


@pytest.mark.parametrize(
    ("agent", "problem"),
    [("unknown", "There is no agent 'unknown'. Agents: broken, researcher."), ("broken", "no-such-module")],
)
async def test_a_child_that_cannot_begin_fails_with_a_sentence(parent: Parent, agent: str, problem: str) -> None:
    with pytest.raises(Exception, match=problem):
        await parent.call("session.spawn", agent, "go")


async def test_a_message_to_a_child_that_does_not_begin_is_for_its_parent(parent: Parent) -> None:
    SCRIPTS["lead"].add(call(use("delegate", "a", agent="broken", instruction="go")), say("I will."), say("ok"))
    await parent.session.execute("hello")
    parent.may_begin.clear()
    working = asyncio.create_task(parent.session.execute("delegate"))
    await soon(parent.preparing.wait())
    assert parent.children.inject(Injection("@broken look at B", id="m2"))
    parent.may_begin.set()
    assert await soon(working) == "ok"
    assert "@broken look at B" in str(SCRIPTS["lead"].sent())


async def test_a_message_to_an_agent_that_was_refused_is_for_the_parent(parent: Parent) -> None:
    SCRIPTS["lead"].add(call(use("delegate", "a", agent="writer", instruction="go")), say("There is none."))
    await parent.session.execute("hello")
    await parent.session.execute("delegate")
    await parent.children.begin_run()
    assert not parent.children.inject(Injection("writer: look at B", id="m2"))
