"""Conversion of values and errors to amplifier-core's types and back."""

from collections.abc import Callable
from typing import Any

import amplifier_core
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator_interactive.kernel.contracts import errors, messages, models
from orchestrator_interactive.kernel.contracts.conversion import foreign, foreign_error
from orchestrator_interactive.kernel.interop import to_local, to_local_error

text = st.text(max_size=8)
numbers = st.integers(0, 10**9)
scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | text
values = st.recursive(scalars, lambda v: st.lists(v, max_size=3) | st.dictionaries(text, v, max_size=3), max_leaves=5)
objects = st.dictionaries(text, values, max_size=3)
visibility = st.sampled_from(["internal", "developer", "user", None])
# Fields of providers that are in neither model.
extras = st.dictionaries(st.sampled_from(["x_vendor", "cache_control"]), values, max_size=2)


def maybe(strategy: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return st.none() | strategy


def made(kind: Callable[..., Any], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Build objects of a class without some of its optional fields."""
    return st.fixed_dictionaries({}, optional=fields).map(lambda given: kind(**given))


def extended(kind: Callable[..., Any], **fields: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """Build objects of a class that keeps unknown fields."""
    return st.builds(lambda more, given: kind(**more, **given), extras, st.fixed_dictionaries(fields))


def blocks(side: Any) -> st.SearchStrategy[Any]:
    return st.one_of(
        extended(side.TextBlock, text=text, visibility=visibility),
        extended(side.ThinkingBlock, thinking=text, signature=maybe(text), visibility=visibility),
        extended(side.ThinkingBlock, thinking=text, content=maybe(st.lists(values, max_size=2))),
        extended(side.RedactedThinkingBlock, data=text),
        extended(side.ToolCallBlock, id=text, name=text, input=objects, visibility=visibility),
        extended(side.ToolResultBlock, tool_call_id=text, output=values),
        extended(side.ImageBlock, source=objects),
        extended(side.ReasoningBlock, content=st.lists(values, max_size=2), summary=st.lists(values, max_size=2)),
    )


def a_message(side: Any) -> st.SearchStrategy[Any]:
    roles = st.sampled_from(["system", "developer", "user", "assistant", "function", "tool"])
    content = text | st.lists(blocks(side), max_size=3)
    return extended(
        side.Message, role=roles, content=content, name=maybe(text), tool_call_id=maybe(text), metadata=maybe(objects)
    )


def a_request(side: Any) -> st.SearchStrategy[Any]:
    return extended(
        side.ChatRequest,
        messages=st.lists(a_message(side), max_size=3),
        tools=maybe(
            st.lists(extended(side.ToolSpec, name=text, parameters=objects, description=maybe(text)), max_size=2)
        ),
        temperature=maybe(st.floats(0, 1)),
        max_output_tokens=maybe(numbers),
        stream=maybe(st.booleans()),
        metadata=maybe(objects),
        model=maybe(text),
        tool_choice=maybe(text | objects),
        stop=maybe(st.lists(text, max_size=2)),
        timeout=maybe(st.floats(0, 1e6)),
    )


def a_response(side: Any) -> st.SearchStrategy[Any]:
    cost = maybe(st.decimals(0, 100, places=6))
    usage = extended(
        side.Usage,
        **dict.fromkeys(["input_tokens", "output_tokens", "total_tokens"], numbers),
        cache_read_tokens=maybe(numbers),
        cost_usd=cost,
    )
    degradation = st.fixed_dictionaries({"requested": text, "actual": text, "reason": text})
    return extended(
        side.ChatResponse,
        content=st.lists(blocks(side), max_size=3),
        tool_calls=maybe(st.lists(extended(side.ToolCall, id=text, name=text, arguments=objects), max_size=2)),
        usage=maybe(usage),
        degradation=maybe(degradation),
        finish_reason=maybe(text),
        metadata=maybe(objects),
    )


def a_tool_result(side: Any) -> st.SearchStrategy[Any]:
    said = st.builds(lambda text: {"type": "text", "text": text}, st.text(min_size=1, max_size=8))
    return made(
        side.ToolResult,
        success=st.booleans(),
        output=values | st.binary(max_size=4) | st.tuples(values),
        error=maybe(objects),
        content=maybe(st.lists(said, min_size=1, max_size=2)),
    )


def a_hook_result(side: Any) -> st.SearchStrategy[Any]:
    role = st.sampled_from(["system", "user", "assistant"])
    injection = made(
        lambda **f: side.ContextInjection(content="x", **f), role=role, ephemeral=st.booleans(), event=text
    )
    return made(
        side.HookResult,
        action=st.sampled_from(["continue", "deny", "modify", "inject_context", "ask_user"]),
        data=maybe(objects),
        reason=maybe(text),
        context_injection=maybe(text),
        context_injection_role=role,
        ephemeral=st.booleans(),
        append_to_last_tool_result=st.booleans(),
        context_injections=st.lists(injection, max_size=2),
        approval_prompt=maybe(text),
        approval_options=maybe(st.lists(text, max_size=3)),
        approval_timeout=st.floats(0, 1e6),
        approval_default=st.sampled_from(["allow", "deny"]),
        suppress_output=st.booleans(),
        user_message=maybe(text),
        user_message_level=st.sampled_from(["info", "warning", "error"]),
        user_message_source=maybe(text),
    )


OURS = st.one_of(
    a_message(messages), a_request(messages), a_response(messages), a_tool_result(models), a_hook_result(models)
)
THEIRS = st.one_of(*(kind(amplifier_core) for kind in (a_message, a_request, a_response, a_tool_result, a_hook_result)))


@settings(deadline=None)
@given(OURS)
def test_a_foreign_value_converts_back_to_ours(value: Any) -> None:
    converted = foreign(value)
    assert type(converted) is getattr(amplifier_core, type(value).__name__)
    assert foreign(converted) is converted
    assert to_local(converted) == value


@settings(deadline=None)
@given(THEIRS)
def test_a_local_value_converts_back_to_theirs(value: Any) -> None:
    converted = to_local(value)
    assert type(converted).__module__.startswith("orchestrator_interactive.")
    assert to_local(converted) is converted
    assert foreign(converted) == value


@settings(deadline=None)
@given(st.lists(blocks(messages), max_size=3))
def test_a_list_is_converted_item_by_item(content: list[Any]) -> None:
    assert [to_local(block) for block in foreign(content)] == content


@pytest.mark.parametrize("value", [None, "text", 7, {"role": "user"}, object(), amplifier_core.TextBlock])
def test_other_values_are_unchanged(value: Any) -> None:
    assert to_local(value) is value
    assert foreign(value) is value


def test_a_subclass_is_converted_as_its_base_class() -> None:
    ours = type("MyResult", (models.ToolResult,), {})(output=1)
    theirs = type("MyResult", (amplifier_core.ToolResult,), {})(output=1)
    assert type(foreign(ours)) is amplifier_core.ToolResult
    assert type(to_local(theirs)) is models.ToolResult


FAMILY = [
    errors.LLMError,
    errors.RateLimitError,
    errors.AuthenticationError,
    errors.ContextLengthError,
    errors.ContentFilterError,
    errors.InvalidRequestError,
    errors.ProviderUnavailableError,
    errors.LLMTimeoutError,
]


@pytest.mark.parametrize("kind", FAMILY)
@pytest.mark.parametrize("retryable", [None, True, False])
def test_errors_keep_their_class_and_attributes(kind: type[errors.LLMError], retryable: bool | None) -> None:
    error = kind("No.", provider="p", model="m", status_code=418, retryable=retryable, retry_after=2.5)
    converted = foreign_error(error)
    assert type(converted) is getattr(amplifier_core, kind.__name__)
    back = to_local_error(converted)
    assert type(back) is kind
    assert str(converted) == str(back) == "No."
    assert vars(back) == vars(error)


@pytest.mark.parametrize("error", [ValueError("no"), errors.RateLimitError("no"), TimeoutError()])
def test_other_errors_are_unchanged(error: Exception) -> None:
    assert to_local_error(error) is error
