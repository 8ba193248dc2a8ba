"""The examples of the document that the interaction stack implements, section by section.

Its stack is synchronous and takes a Redis client; this one is asynchronous and takes a store.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest

from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.artifacts import artifact, children
from orchestrator_interactive.interactions.branch import checkout, fork, rewind
from orchestrator_interactive.interactions.rendering.policies import register_policy
from orchestrator_interactive.interactions.rendering.render import render_for_llm
from orchestrator_interactive.interactions.serializers import decode, encode
from orchestrator_interactive.interactions.states.agent_call import AgentCallState
from orchestrator_interactive.interactions.states.agent_result import AgentResultState
from orchestrator_interactive.interactions.states.assistant_message import AssistantMessageState
from orchestrator_interactive.interactions.states.base import BaseState
from orchestrator_interactive.interactions.states.finished import FinishedState
from orchestrator_interactive.interactions.states.tool_call import ToolCallState
from orchestrator_interactive.interactions.states.tool_result import ToolResultState
from orchestrator_interactive.interactions.states.user_message import UserMessageState
from orchestrator_interactive.interactions.states.user_response import UserResponseState
from orchestrator_interactive.interactions.states.waiting import WaitingState
from orchestrator_interactive.interactions.stores import open_store
from orchestrator_interactive.interactions.stores.base import LogStore

CONVERSATION, AGENT = "conversation", "agent_alpha"


@pytest.fixture
def stack(store: LogStore) -> InteractionStack:
    return InteractionStack(store, CONVERSATION, AGENT)


@pytest.fixture
async def long(stack: InteractionStack) -> InteractionStack:
    for number in range(6):
        await stack.push(UserMessageState(text=f"Question {number}"), AssistantMessageState(content="Answer"))
    return stack


async def test_interaction_stack(stack: InteractionStack) -> None:
    await stack.push(UserMessageState(text="Hello!"))
    await stack.push(AssistantMessageState(content="Hi! How can I help?"))

    assert await stack.current() == AssistantMessageState(content="Hi! How can I help?")
    assert await stack.length() == 2
    entries = [entry async for entry in stack.iter_last_n(10)]
    assert [entry.kind for entry in entries] == ["UserMessageState", "AssistantMessageState"]

    for number in range(4):
        await stack.push(UserMessageState(text=str(number)))
    new_branch = await stack.fork(index=5)
    await stack.checkout("main")
    branches = await stack.get_branch_info()
    assert [branch.name for branch in branches] == ["main", new_branch]


async def test_interaction_stack_persistence(tmp_path: Any) -> None:
    for length in (0, 1):
        store = await open_store(f"sqlite:{tmp_path}/log.db")
        stack = InteractionStack(store, CONVERSATION, AGENT)
        assert await stack.length() == length
        await stack.push(UserMessageState(text="Hello!"))
        await store.aclose()


async def test_states(stack: InteractionStack) -> None:
    call = {"id": "unique_id", "type": "function", "function": {"name": "get_weather", "arguments": "{}"}}
    states = [
        UserMessageState(text="What's the weather?", meta="optional metadata"),
        AssistantMessageState(content="Shall I look?"),
        WaitingState(kind="user_input"),
        UserResponseState(text="Yes, please proceed"),
        AssistantMessageState(content="Here's the weather information", tool_calls=[call], meta="reflection:weather"),
        ToolCallState(id="unique_id", function_name="get_weather", arguments={"location": "Paris"}),
        WaitingState(kind="tool", deadline=time.time() + 30, correlation_id="unique_id"),
        ToolResultState(
            tool_call_id="unique_id",
            tool_name="get_weather",
            result={"status": "success", "data": {"celsius": 21}},
            reward=0.8,
        ),
        AgentCallState(agent_id="helper_agent", message="Please analyze this data", correlation_id="correlation_id"),
        WaitingState(kind="agent", correlation_id="correlation_id"),
        AgentResultState(
            correlation_id="correlation_id", result={"status": "success", "content": "Analysis complete"}, score=0.9
        ),
        AssistantMessageState(content="It is warm."),
        FinishedState(),
    ]
    for state in states:
        await stack.push(state)
    assert [entry.state async for entry in stack.iter_last_n(20)] == states


async def test_rendering_system(stack: InteractionStack) -> None:
    await stack.push(UserMessageState(text="Hello"), AssistantMessageState(content="Hi!"))
    await stack.push(UserMessageState(text="And?"), ToolCallState(id="123", function_name="look"))
    await stack.push(WaitingState(kind="tool", correlation_id="123"))
    await stack.push(ToolResultState(tool_call_id="123", tool_name="look", result={"found": 1}))

    messages = await render_for_llm(stack, last_n=10)
    assert messages[:2] == [{"role": "user", "content": "Hello"}, {"role": "assistant", "content": "Hi!"}]
    assert messages[-1] == {"role": "tool", "tool_call_id": "123", "content": '{"found": 1}'}

    messages = await render_for_llm(stack, last_n=20, policy_name="summary", exclude_types=[WaitingState], keep_last=1)
    assert [message["role"] for message in messages] == ["user", "assistant", "tool"]
    assert "A person wrote: Hello" in messages[0]["content"]


async def test_branching_system(long: InteractionStack) -> None:
    new_branch_id = await fork(long, index=10)
    await checkout(long, "main")
    await checkout(long, new_branch_id)
    assert await long.length() == 11

    await rewind(long, index=5)
    assert await long.length() == 6

    assert await long.fork(index=4) != new_branch_id
    assert await long.fork(index=4, name="my-idea") == "my-idea"


def test_serialization() -> None:
    state = UserMessageState(text="Long message..." * 200)
    envelope = encode(state)
    assert list(envelope) == ["v", "t", "ts", "data", "compressed"]
    assert (envelope["v"], envelope["t"], envelope["compressed"]) == (1, "UserMessageState", True)
    assert len(envelope["data"]) < 200

    restored_state = decode(envelope)
    assert restored_state == state


async def test_artifact_integration(store: LogStore, stack: InteractionStack) -> None:
    (ref,) = await stack.push(UserMessageState(text="Hello"))
    made = await artifact(store, ref)
    assert (made.ref, made.session, made.branch, made.episode) == (ref, CONVERSATION, "main", 1)
    assert made.ts == pytest.approx(time.time(), abs=60)
    assert made.state == UserMessageState(text="Hello")
    assert isinstance(made.metadata, dict)

    (call,) = await stack.push(ToolCallState(id="123", function_name="look"))
    (asked,) = await stack.push(AgentCallState(agent_id="child", message="Look, too", correlation_id="7"))
    (result,) = await stack.push(ToolResultState(tool_call_id="123", tool_name="look", result="found"))
    assert [each.ref async for each in children(store, call)] == [result]

    child = InteractionStack(store, f"{CONVERSATION}/7", "child", asked_by=asked)
    (task,) = await child.push(UserMessageState(text="Look, too"))
    assert [each.ref async for each in children(store, asked)] == [task]


@dataclass(slots=True, frozen=True)
class CustomState(BaseState):
    custom_field: str
    optional_field: int | None = None

    __version__: ClassVar[int] = 1


async def test_custom_states(stack: InteractionStack) -> None:
    await stack.push(UserMessageState(text="Hello"), CustomState(custom_field="x"))
    assert await stack.current() == CustomState(custom_field="x")


async def test_custom_render_policies(stack: InteractionStack) -> None:
    @register_policy("first words")
    def first_words_policy(messages: list[dict[str, Any]], **kwargs: Any) -> list[dict[str, Any]]:
        return [{**message, "content": message["content"].split()[0]} for message in messages]

    await stack.push(UserMessageState(text="Hello there"))
    assert await render_for_llm(stack, policy_name="first words") == [{"role": "user", "content": "Hello"}]
