"""Artifacts: find pushed states by place and metadata, in every store."""

from collections.abc import AsyncIterator
from typing import Any

import pytest
from fault_injecting_store import FaultInjectingStore
from hypothesis import given, settings
from hypothesis import strategies as st
from interaction_states import brought, called, conversations, said

from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.artifacts import Artifact, NoSuchArtifact, artifact, artifacts, children
from orchestrator_interactive.interactions.errors import InteractionError
from orchestrator_interactive.interactions.states import (
    AgentCallState,
    AgentResultState,
    AssistantMessageState,
    BaseState,
    ToolCallState,
    ToolResultState,
    UserMessageState,
    WaitingState,
)
from orchestrator_interactive.interactions.stores.base import LogStore
from orchestrator_interactive.interactions.stores.memory import MemoryStore


async def listed(artifacts: AsyncIterator[Artifact]) -> list[Artifact]:
    return [each async for each in artifacts]


async def refs(artifacts: AsyncIterator[Artifact]) -> list[str]:
    return [each.ref async for each in artifacts]


async def places(store: LogStore, **filters: Any) -> list[tuple[str, int]]:
    return [(each.branch, each.index) async for each in artifacts(store, **filters)]


async def test_a_push_publishes_an_artifact_for_each_state(store: LogStore) -> None:
    stack = InteractionStack(store, "T1:C1:1.0", "alpha")
    pushed = await stack.push(said("Hello!"), AssistantMessageState("Hi."), said("And?"), AssistantMessageState("So."))
    there = await listed(artifacts(store))
    assert tuple(each.ref for each in there) == pushed
    assert [each.state for each in there] == [await stack.at(n) for n in range(4)]
    assert [(each.session, each.agent_id, each.branch, each.episode, each.index, each.kind) for each in there] == [
        ("T1:C1:1.0", "alpha", "main", 1, 0, "UserMessageState"),
        ("T1:C1:1.0", "alpha", "main", 1, 1, "AssistantMessageState"),
        ("T1:C1:1.0", "alpha", "main", 2, 2, "UserMessageState"),
        ("T1:C1:1.0", "alpha", "main", 2, 3, "AssistantMessageState"),
    ]
    assert [await artifact(store, ref) for ref in pushed] == there


async def test_an_artifact_has_the_metadata_of_its_state(store: LogStore) -> None:
    beside = [{"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
    await InteractionStack(store, "c", "a").push(
        said("Hi"),
        UserMessageState("- Ana: quick!", meta={"injections": ["m1"]}),
        AssistantMessageState("I look.", beside),
        ToolCallState("a", "look"),
        WaitingState("tool", correlation_id="a"),
        ToolResultState("a", "look", "nothing", reward=0.8, meta={"is_error": True}),
        AgentCallState("helper", "Why?", "x"),
        AgentResultState("x", "Because.", score=0.9),
    )
    there = [{k: v for k, v in each.metadata.items() if k != "size"} for each in await listed(artifacts(store))]
    assert there == [
        {},
        {"messages": ["m1"]},
        {"calls": ["a"]},
        {"tool": "look", "call_id": "a"},
        {"waits_for": "tool", "correlation_id": "a"},
        {"tool": "look", "call_id": "a", "reward": 0.8, "is_error": True},
        {"agent": "helper", "correlation_id": "x"},
        {"correlation_id": "x", "score": 0.9},
    ]
    assert all(each.metadata["size"] > 0 for each in await listed(artifacts(store)))


async def test_a_result_is_the_child_of_its_call(store: LogStore) -> None:
    stack = InteractionStack(store, "c", "a")
    pushed = await stack.push(said("Hi"), called("a"), called("b"), brought("b"), brought("a"))
    assert await refs(children(store, pushed[1])) == [pushed[4]]
    assert await refs(children(store, pushed[2])) == [pushed[3]]
    assert await refs(children(store, pushed[0])) == []
    assert (await artifact(store, pushed[4])).parents == (pushed[1],)


async def test_the_tasks_of_an_asked_agent_are_children_of_the_request(store: LogStore) -> None:
    parent = InteractionStack(store, "c", "parent")
    _, asked = await parent.push(said("Hi"), AgentCallState("child", "Please analyze", "x"))
    child = InteractionStack(store, "c", "child", asked_by=asked)
    first, _, again = await child.push(said("Please analyze"), AssistantMessageState("Done."), said("And this"))
    (result,) = await parent.push(AgentResultState("x", "Done."))
    assert await refs(children(store, asked)) == [result, first, again]
    assert (await artifact(store, first)).parents == (asked,)


async def test_artifacts_are_filtered_by_conversation_agent_kind_and_time(store: LogStore) -> None:
    for session, agent in (("one", "a"), ("one", "b"), ("two", "a")):
        await InteractionStack(store, session, agent).push(said("Hi"), called("x"), brought("x"))
    assert {(e.session, e.agent_id) for e in await listed(artifacts(store, session="one"))} == {
        ("one", "a"),
        ("one", "b"),
    }
    assert {(e.session, e.agent_id) for e in await listed(artifacts(store, agent_id="a"))} == {
        ("one", "a"),
        ("two", "a"),
    }
    calls = await listed(artifacts(store, session="two", agent_id="a", kinds=[ToolCallState, "ToolResultState"]))
    assert [each.kind for each in calls] == ["ToolCallState", "ToolResultState"]
    assert len(await listed(artifacts(store, kinds=[ToolCallState]))) == 3
    middle = calls[0].ts
    for filters in ({}, {"session": "two"}):
        before = set(await refs(artifacts(store, **filters, until=middle)))
        since = set(await refs(artifacts(store, **filters, since=middle)))
        assert calls[0].ref in since
        assert calls[0].ref not in before
        assert before | since == set(await refs(artifacts(store, **filters)))
    assert await refs(artifacts(store, session="three", agent_id="a")) == []


async def test_a_branch_lists_shared_states_with_their_owner(store: LogStore) -> None:
    stack = InteractionStack(store, "c", "a")
    await stack.push(*(said(str(n)) for n in range(4)))
    await stack.fork(1, "idea")
    await stack.checkout("idea")
    await stack.push(said("new"))
    assert await places(store, session="c", branch="idea") == [("main", 0), ("main", 1), ("idea", 2)]
    assert await places(store, session="c", branch="main") == [("main", n) for n in range(4)]
    assert await places(store, branch="nowhere") == []
    assert sorted(await places(store, session="c")) == [("idea", 2), *(("main", n) for n in range(4))]
    assert sorted(await places(store)) == sorted(await places(store, session="c"))


async def test_shared_states_of_a_pruned_branch_belong_to_a_remaining_one(store: LogStore) -> None:
    stack = InteractionStack(store, "c", "a")
    pushed = await stack.push(*(said(str(n)) for n in range(5)))
    await stack.fork(1, "early")
    await stack.fork(3, "late")
    await stack.checkout("early")
    await stack.prune(["main"])
    assert await places(store, session="c") == [("late", n) for n in range(4)]
    assert await places(store, session="c", branch="early") == [("late", 0), ("late", 1)]
    with pytest.raises(NoSuchArtifact, match="was pruned with its branch or never existed"):
        await artifact(store, pushed[4])
    await stack.prune(["late"])
    assert await places(store, session="c") == [("early", 0), ("early", 1)]


async def test_a_damaged_state_has_an_artifact_with_the_problem() -> None:
    store = FaultInjectingStore({1})
    pushed = await InteractionStack(store, "c", "a").push(said("Hi"), called("a"), brought("a"))
    there = await listed(artifacts(store, session="c"))
    assert [each.ref for each in there] == list(pushed)
    assert there[1].state is None
    assert "damaged or missing" in str(there[1].problem)
    assert await artifact(store, pushed[1]) == there[1]
    assert await refs(children(store, pushed[1])) == [pushed[2]]


@pytest.mark.parametrize("ref", ["", "nonsense", "c/a/x/1", "c/a/0/99", "c/a/7/0", "c/b/0/0", "c/a/0/-1", "///"])
async def test_an_invalid_ref_is_an_error(ref: str) -> None:
    store = MemoryStore()
    await InteractionStack(store, "c", "a").push(said("Hi"))
    with pytest.raises(NoSuchArtifact, match="artifact") as raised:
        await artifact(store, ref)
    assert isinstance(raised.value, InteractionError)
    with pytest.raises(NoSuchArtifact):
        await refs(children(store, ref))


@settings(max_examples=60, deadline=None)
@given(states=conversations, steps=st.lists(st.tuples(st.sampled_from(["fork", "rewind", "prune"]), st.integers(0, 9))))
async def test_every_state_of_every_branch_has_one_artifact(states: list[BaseState], steps: list[Any]) -> None:
    store = MemoryStore()
    stack = InteractionStack(store, "c", "a")
    await stack.push(said("first"), *states)
    for step, number in steps:
        names = [branch.name for branch in await stack.get_branch_info()]
        match step:
            case "fork":
                await stack.checkout(await stack.fork(number % await stack.length()))
            case "rewind":
                await stack.rewind(number % await stack.length())
            case "prune":
                await stack.prune([names[number % len(names)]])
    everything = await listed(artifacts(store, session="c"))
    assert len({each.ref for each in everything}) == len(everything)
    by_branch = set()
    for branch in await stack.get_branch_info():
        path = await listed(artifacts(store, session="c", agent_id="a", branch=branch.name))
        assert [each.index for each in path] == list(range(branch.length))
        assert all(each.problem is None for each in path)
        by_branch |= {each.ref for each in path}
    assert by_branch == {each.ref for each in everything} == set(await refs(artifacts(store)))
    assert {each.branch for each in everything} <= {branch.name for branch in await stack.get_branch_info()}
