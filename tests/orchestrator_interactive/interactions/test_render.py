"""Rendering of a conversation as messages for a model."""

import asyncio
import json
from dataclasses import dataclass
from typing import Any

import pytest
from fault_injecting_store import FaultInjectingStore, SuspendingStore
from hypothesis import given, settings
from hypothesis import strategies as st
from interaction_states import any_state, brought, called, conversations, said, valid
from structlog.testing import capture_logs

from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.render import render_for_llm
from orchestrator_interactive.interactions.states import (
    AgentCallState,
    AgentResultState,
    AssistantMessageState,
    BaseState,
    FinishedState,
    ToolCallState,
    ToolResultState,
    UserMessageState,
    UserResponseState,
    WaitingState,
)
from orchestrator_interactive.kernel.contracts.messages import ChatRequest, Message
from orchestrator_interactive.kernel.contracts.models import sendable
from orchestrator_interactive.kernel.contracts.request_validation import problems_of
from orchestrator_interactive.transcript.repair import NO_OUTPUT
from orchestrator_interactive.transcript.transcript import NO_RESULT

Rendered = list[dict[str, Any]]
ALL_TYPES = [
    UserMessageState,
    UserResponseState,
    AssistantMessageState,
    ToolCallState,
    ToolResultState,
    AgentCallState,
    AgentResultState,
    WaitingState,
    FinishedState,
]


async def a_stack(*states: BaseState, lost: frozenset[int] = frozenset()) -> InteractionStack:
    store = FaultInjectingStore()
    await InteractionStack(store, "c", "a").push(*states)
    store.lost = lost
    return InteractionStack(store, "c", "a")


async def rendered(*states: BaseState, **options: Any) -> Rendered:
    return await render_for_llm(await a_stack(*states), **options)


def calling(*ids: str, text: str | None = None) -> dict[str, Any]:
    calls = [{"id": i, "type": "function", "function": {"name": "look", "arguments": "{}"}} for i in ids]
    return {"role": "assistant", "content": text, "tool_calls": calls}


def result(call_id: str, content: str = "found") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": content}


def user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": text}


def declared(*ids: str) -> list[dict[str, Any]]:
    return calling(*ids)["tool_calls"]


async def test_a_conversation_is_rendered_in_openai_format() -> None:
    weather = {"status": "success", "data": {"sky": "blue"}}
    messages = await rendered(
        UserMessageState(text="Weather in Paris?", meta="from a phone"),
        AssistantMessageState(content="I look.", meta="optional metadata"),
        ToolCallState(id="123", function_name="get_weather", arguments={"location": "Paris"}),
        ToolResultState(tool_call_id="123", tool_name="get_weather", result=weather, reward=0.8),
        AssistantMessageState(content="Shall I say it?"),
        WaitingState(kind="user_input"),
        UserResponseState(text="Yes, please proceed"),
        AssistantMessageState(content="Blue."),
        FinishedState(),
    )
    call = {"id": "123", "type": "function"}
    assert messages == [
        user("Weather in Paris?"),
        {
            "role": "assistant",
            "content": "I look.",
            "tool_calls": [{**call, "function": {"name": "get_weather", "arguments": '{"location": "Paris"}'}}],
        },
        result("123", json.dumps(weather)),
        {"role": "assistant", "content": "Shall I say it?"},
        user("Yes, please proceed"),
        {"role": "assistant", "content": "Blue."},
    ]


async def test_calls_without_an_answer_get_an_assistant_message() -> None:
    messages = await rendered(said("Hi"), called("a"), called("b"), brought("a"), brought("b"), called("c"))
    assert messages == [user("Hi"), calling("a", "b"), result("a"), result("b"), calling("c"), result("c", NO_RESULT)]


async def test_a_user_message_between_a_call_and_its_result_follows_the_result() -> None:
    messages = await rendered(said("Hi"), AssistantMessageState("I look."), called("a"), said("Quick!"), brought("a"))
    assert messages == [user("Hi"), calling("a", text="I look."), result("a"), user("Quick!")]


async def test_the_blocks_of_an_answer_become_text_and_calls() -> None:
    blocks = [
        {"type": "thinking", "thinking": "hm", "signature": "c2ln"},
        {"type": "redacted_thinking", "data": "…"},
        {"type": "text", "text": "One "},
        {"type": "text", "text": "sentence."},
        {"type": "tool_call", "id": "a", "name": "look", "input": {}},
    ]
    beside = [{"id": "a", "name": "look", "arguments": {}}]
    messages = await rendered(said("Hi"), AssistantMessageState(blocks, tool_calls=beside), called("a"), brought("a"))
    assert messages[1:] == [calling("a", text="One sentence."), result("a")]


async def test_comments_of_a_reflection_agent_are_omitted() -> None:
    judged = AssistantMessageState("Well looked.", meta="reflection:look")
    messages = await rendered(said("Hi"), AssistantMessageState("I look."), judged, called("a"), brought("a"), judged)
    assert messages == [user("Hi"), calling("a", text="I look."), result("a")]


async def test_images_of_users_are_parts_and_those_of_tools_are_named() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "iVBO"}}
    text = {"type": "text", "text": "This one"}
    messages = await rendered(said([text, image]), called("a"), brought("a", [text, image]))
    url = {"url": "data:image/png;base64,iVBO"}
    assert messages[0]["content"] == [text, {"type": "image_url", "image_url": url}]
    assert messages[2] == result("a", "This one\n[image]")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("plain", "plain"),
        ("", NO_OUTPUT),
        (None, "null"),
        ({"ä": [1]}, '{"ä": [1]}'),
        (["a", "b"], '["a", "b"]'),
        ("bell\x07 and \ud800", "bell and "),
        ([{"type": "tool_result", "tool_call_id": "a", "output": {"n": 1}}], '{"n": 1}'),
    ],
)
async def test_a_result_is_rendered_as_text_or_json(value: Any, text: str) -> None:
    assert (await rendered(said("Hi"), called("a"), brought("a", value)))[2] == result("a", text)


async def test_a_repeated_id_gets_a_number() -> None:
    turn = [called("1"), brought("1"), AssistantMessageState("So."), said("Again")]
    messages = await rendered(said("Hi"), *turn, *turn)
    answers = [message["tool_call_id"] for message in messages if message["role"] == "tool"]
    assert answers == ["1", "1-2"]


async def test_the_window_grows_to_keep_calls_and_results_together() -> None:
    states = [said("Hi"), AssistantMessageState("I look."), *map(called, "abc"), *map(brought, "abc"), said("Well?")]
    stack = await a_stack(*states)
    whole = await render_for_llm(stack)
    assert await render_for_llm(stack, last_n=1) == whole[-1:]
    for last_n in range(2, 8):
        assert await render_for_llm(stack, last_n=last_n) == whole[1:]
    assert await render_for_llm(stack, last_n=0) == []
    with pytest.raises(ValueError, match="0 or more"):
        await render_for_llm(stack, last_n=-1)


async def test_the_window_grows_over_several_pages() -> None:
    notes = [said(f"note {n}") for n in range(700)]
    messages = await rendered(said("Hi"), AssistantMessageState("I look."), called("a"), *notes, brought("a"), last_n=1)
    assert messages[:2] == [calling("a", text="I look."), result("a")]
    assert len(messages) == 702


async def test_states_that_are_pushed_while_it_is_rendered_hide_no_earlier_ones() -> None:
    stack = InteractionStack(SuspendingStore(), "c", "a")
    await stack.push(said("Hi"))

    async def push() -> None:
        for _ in range(9):
            await stack.push(said("More"))

    _, messages = await asyncio.gather(push(), render_for_llm(stack))
    assert messages[0]["content"] == "Hi"


async def test_excluding_a_call_or_a_result_omits_both() -> None:
    states = [said("Hi"), AssistantMessageState("I look.", declared("a")), called("a"), brought("a"), said("Well?")]
    messages = [user("Hi"), {"role": "assistant", "content": "I look."}, user("Well?")]
    assert await rendered(*states, exclude_types=[ToolCallState]) == messages
    assert await rendered(*states, exclude_types=[ToolResultState]) == messages
    without_answers = [user("Hi"), calling("a"), result("a"), user("Well?")]
    assert await rendered(*states, exclude_types=[AssistantMessageState, WaitingState]) == without_answers


async def test_a_damaged_result_is_unknown_and_the_result_of_a_damaged_call_is_omitted() -> None:
    states = [said("Hi"), called("a"), called("b"), brought("a"), brought("b"), said("Well?")]
    with capture_logs() as logs:
        messages = await render_for_llm(await a_stack(*states, lost=frozenset({1, 4})))
    assert messages == [user("Hi"), calling("b"), result("b", NO_RESULT), user("Well?")]
    assert [(line["event"], line["ref"]) for line in logs] == [
        ("render.state_skipped", "c/a/0/1"),
        ("render.result_skipped", "c/a/0/3"),
        ("render.state_skipped", "c/a/0/4"),
    ]


@dataclass(slots=True, frozen=True)
class RemarkState(BaseState):
    row: Any = None

    def message(self) -> Any:
        return self.row


async def test_a_custom_state_is_rendered_as_its_message() -> None:
    system = {"role": "system", "content": "Be kind."}
    messages = await rendered(
        RemarkState(system),
        said("Hi"),
        RemarkState(),
        RemarkState(calling("x", text="From elsewhere")),
        RemarkState(result("x")),
        RemarkState(result("orphan")),
    )
    assert messages == [system, user("Hi"), calling("x", text="From elsewhere"), result("x")]


@pytest.mark.parametrize("row", ["text", {"role": "tool"}, {"role": "narrator", "content": "Once"}, [user("Hi")]])
async def test_an_invalid_message_of_a_custom_state_is_an_error(row: Any) -> None:
    with pytest.raises(TypeError, match="RemarkState must return None or a message"):
        await rendered(RemarkState(row))


def refused_by_providers(messages: Rendered) -> list[str]:
    rows = [{**message, "content": message["content"] or ""} for message in messages]
    request = ChatRequest(messages=[Message.model_validate(row) for row in rows])
    return [problem for problem in problems_of(request) if "the last word" not in problem]


def text_of(result: Any) -> str:
    text = sendable(result if isinstance(result, str) else json.dumps(result, ensure_ascii=False))
    return text if text.strip() else NO_OUTPUT


def said_in(state: BaseState) -> list[tuple[str, str]]:
    """Return what a model may read of a state."""
    match state:
        case UserMessageState(text=str(text)) | UserResponseState(text=text):
            return [("user", sendable(text))]
        case AssistantMessageState(content=str(text)):
            return [("assistant", sendable(text))]
    return []


@settings(max_examples=60, deadline=None)
@given(
    states=conversations | st.lists(any_state, min_size=25, max_size=60).map(valid),
    last_n=st.none() | st.integers(0, 30),
    excluded=st.sets(st.sampled_from(ALL_TYPES), max_size=4),
    lost=st.frozensets(st.integers(0, 60), max_size=4),
    policy=st.sampled_from(["default", "agents", "summary"]),
)
async def test_messages_of_any_log_and_options_are_valid_ordered_and_from_the_log(
    states: list[BaseState], last_n: int | None, excluded: set[type], lost: frozenset[int], policy: str
) -> None:
    stack = await a_stack(*states, lost=lost)
    messages = await render_for_llm(stack, last_n, policy, excluded, keep_last=5)
    assert refused_by_providers(messages) == []
    if policy != "default":
        return
    there = [state for index, state in enumerate(states) if index not in lost and type(state) not in excluded]
    left = iter(pair for state in there for pair in said_in(state))
    spoken = [(m["role"], m["content"]) for m in messages if m["role"] in ("user", "assistant") and m["content"]]
    assert all(pair in left for pair in spoken)  # in the order of the log
    results = {text_of(state.result) for state in there if isinstance(state, ToolResultState)}
    assert {m["content"] for m in messages if m["role"] == "tool"} <= {*results, NO_RESULT}


@settings(max_examples=60, deadline=None)
@given(states=conversations, last_n=st.integers(0, 30))
async def test_a_window_is_the_end_of_all_messages(states: list[BaseState], last_n: int) -> None:
    stack = await a_stack(*states)
    whole = [message["content"] for message in await render_for_llm(stack) if message["role"] == "user"]
    window = [message["content"] for message in await render_for_llm(stack, last_n) if message["role"] == "user"]
    assert window == whole[len(whole) - len(window) :]
    shown = [
        text for state in states[max(len(states) - last_n, 0) :] for role, text in said_in(state) if role == "user"
    ]
    assert len(window) >= len([text for text in shown if text.strip()])
