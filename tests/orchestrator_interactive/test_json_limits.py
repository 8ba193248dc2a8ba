"""Deeply nested values of providers, tools and hooks end neither their run nor the next one."""

from typing import Any

import pytest
from agents import ScriptedProvider, answer, call, echo, goes_on, make_agent, results, returning, say, streaming
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from orchestrator_interactive.json_limits import MAX_NESTING, bounded, nesting
from orchestrator_interactive.kernel import AmplifierSession, HookResult, ToolResult
from orchestrator_interactive.kernel.contracts.arguments import arguments_of, problem_of
from orchestrator_interactive.kernel.contracts.messages import (
    ChatResponse,
    ImageBlock,
    ThinkingBlock,
    ToolCall,
    ToolCallBlock,
)

DEPTHS = [130, 300, 600, 960, 5000]


def deep(levels: int, inner: Any = "x") -> Any:
    value = inner
    for _ in range(levels):
        value = {"a": value}
    return value


def itself() -> dict[str, Any]:
    value: dict[str, Any] = {"n": 1}
    value["me"] = [value, value]
    return value


def doubled(levels: int) -> dict[str, Any]:
    """A value of few parts, whose JSON doubles from level to level."""
    value: dict[str, Any] = {"n": 1}
    for _ in range(levels):
        value = {"a": value, "b": value}
    return value


def _calling(arguments: Any) -> Any:
    """A step that calls `echo` with arguments that pass no validation."""

    async def step(_request: Any, _stream: Any) -> ChatResponse:
        given_call = ToolCall.model_construct(id="c", name="echo", arguments=arguments)
        return ChatResponse.model_construct(content=[], tool_calls=[given_call])

    return step


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        ("{", "are not valid JSON"),
        ("[]", "are a list"),
        ([1], "are a list"),
        (7, "are a number"),
        (deep(101), "are nested more than 100 levels deep"),
        (deep(5000), "are nested more than 100 levels deep"),
        (itself(), "contain values that JSON cannot encode"),
        ({"INVALID_JSON": "{'a': 1}"}, "are not valid JSON"),
        ({"when": object()}, "contain values that JSON cannot encode"),
        ({("a", "b"): 1}, "contain values that JSON cannot encode"),
        ({"n": 10**5000}, "are not valid JSON"),
        (doubled(90), "are not valid JSON"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)
async def test_a_call_with_invalid_arguments_is_refused(arguments: Any, why: str) -> None:
    tool = echo()
    agent = await make_agent(_calling(arguments), say("ok"), tools=[tool])
    assert await agent.run() == "ok"
    assert tool.inputs == []
    assert why in (await results(agent))["c"]
    await goes_on(agent)


@pytest.mark.parametrize(
    ("arguments", "given_input"),
    [("", {}), ("  \n", {}), (None, {}), ("null", {}), (" null ", {}), ('{"text": "x"}', {"text": "x"})],
)
async def test_arguments_may_be_text_or_missing(arguments: Any, given_input: dict[str, Any]) -> None:
    tool = echo()
    agent = await make_agent(_calling(arguments), say("ok"), tools=[tool])
    assert await agent.run() == "ok"
    assert tool.inputs == [given_input]
    assert arguments_of(arguments) == given_input
    await goes_on(agent)


@pytest.mark.parametrize("levels", [60, 130])
async def test_a_result_that_doubles_from_level_to_level_fails(levels: int) -> None:
    agent = await make_agent(
        call(ToolCall(id="c", name="give", arguments={})), say("ok"), tools=[returning(doubled(levels))]
    )
    assert await agent.run() == "ok"
    assert "its result is too large" in (await results(agent))["c"]
    assert len(str(bounded(doubled(130)))) < 50_000_000
    await goes_on(agent)


@pytest.mark.parametrize("depth", DEPTHS)
@pytest.mark.parametrize("listens", [False, True])
async def test_a_deep_result_of_a_tool_is_truncated(depth: int, *, listens: bool) -> None:
    outputs = [deep(depth), ToolResult(success=False, error={"message": "no", "more": deep(depth)}), itself()]
    outputs.append(ToolResult(content=[ImageBlock(source=deep(depth))]))
    tools = [returning(output, f"give{n}") for n, output in enumerate(outputs)]
    agent = await make_agent(
        call(*(ToolCall(id=tool.name, name=tool.name, arguments={}) for tool in tools)), say("ok"), tools=tools
    )
    if listens:
        agent.events.listen(agent.hooks, "tool:pre", "tool:post", "tool:error", "provider:request")
    assert await agent.run() == "ok"
    assert "nested too deeply" in (await results(agent))["give0"]
    await goes_on(agent)


@pytest.mark.parametrize("depth", DEPTHS)
async def test_a_deep_modification_of_a_hook_is_ignored(depth: int) -> None:
    tool = echo()
    agent = await make_agent(call(ToolCall(id="c", name="echo", arguments={"text": "x"})), say("ok"), tools=[tool])
    for event, key in (("tool:pre", "tool_input"), ("provider:request", "messages")):
        given_data = deep(depth) if key == "tool_input" else [{"role": "user", "content": [deep(depth)]}]
        agent.on_hook(event, HookResult(action="modify", data={key: given_data}))
    agent.on_hook("tool:post", HookResult(action="modify", data={"tool_result": {"odd": deep(depth)}}))
    assert await agent.run() == "ok"
    assert tool.inputs == [{"text": "x"}]
    await goes_on(agent)


@pytest.mark.parametrize("depth", DEPTHS)
async def test_deep_blocks_of_a_provider_are_truncated(depth: int) -> None:
    thought = ThinkingBlock(thinking="Hm.", signature="s", content=[deep(depth)])
    block = ToolCallBlock.model_validate({"id": "c", "name": "echo", "input": deep(depth)})
    tool = echo()
    tool.side_effect_free = True  # type: ignore[attr-defined]
    agent = await make_agent(
        streaming(thought, block, then=answer(thought, block, metadata={"deep": deep(depth)})), say("ok"), tools=[tool]
    )
    agent.events.listen(agent.hooks, "provider:request", "provider:response")
    assert await agent.run() == "ok"
    assert tool.inputs == []
    await goes_on(agent)


async def test_a_tool_with_a_deep_schema_is_not_offered() -> None:
    class Odd:
        name, description, input_schema = "odd", "Odd.", deep(5000)

        async def execute(self, _given: Any) -> Any:
            raise AssertionError

    agent = await make_agent(say("ok"), tools=[Odd(), echo()])
    with capture_logs() as logs:
        assert await agent.run() == "ok"
    assert [tool.name for tool in agent.provider.requests[0].tools or ()] == ["echo"]
    assert [each["tool"] for each in logs if each["event"] == "tool.not_offered"] == ["odd"]


@pytest.mark.parametrize("context", ["context-simple", "context-stack"])
@pytest.mark.parametrize("depth", DEPTHS)
async def test_a_context_keeps_deep_rows_readable(context: str, depth: int) -> None:
    plan = {"session": {"orchestrator": {"module": "loop-interactive"}, "context": {"module": context}}}
    async with AmplifierSession(plan) as session:
        provider = ScriptedProvider(say("ok"))
        await session.coordinator.mount("providers", provider)
        kept = session.coordinator.get("context")
        odd = {"type": "tool_call", "id": "c", "name": "echo", "input": deep(depth)}
        await kept.add_message({"role": "user", "content": "before", "metadata": {"deep": deep(depth)}})
        await kept.add_message({"role": "assistant", "content": [odd]})
        await kept.add_message({"role": "tool", "tool_call_id": "c", "content": "done"})
        assert await session.execute("next") == "ok"
        assert len(await kept.get_messages()) == 5
        await kept.set_messages([{"role": "user", "content": [deep(depth)]}])
        provider.add(say("again"))
        assert await session.execute("more") == "again"


@given(depth=st.integers(0, 3000), wide=st.integers(1, 3), as_list=st.booleans())
def test_nesting_is_counted_and_truncated_exactly(depth: int, wide: int, *, as_list: bool) -> None:
    value: Any = 1
    for _ in range(depth):
        value = [value] * wide if as_list else dict.fromkeys("abc"[:wide], value)
    assert nesting(value) == depth
    if wide == 1:
        assert nesting(bounded(value)) == min(depth, MAX_NESTING)
        arguments = arguments_of({"value": value})
        assert (problem_of(arguments) is None) == (depth < MAX_NESTING)
