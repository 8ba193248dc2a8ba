"""Conversion of a request to the Messages API."""

import json
import re
from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orchestrator_interactive.kernel.contracts.messages import (
    ChatRequest,
    ImageBlock,
    Message,
    RedactedThinkingBlock,
    TextBlock,
    ThinkingBlock,
    ToolCallBlock,
    ToolResultBlock,
    ToolSpec,
)
from orchestrator_interactive.modules.provider_anthropic.config import AnthropicConfig
from orchestrator_interactive.modules.provider_anthropic.convert import api_request
from orchestrator_interactive.modules.provider_rows import api_name

PLAIN = AnthropicConfig(prompt_cache=False)
IMAGE = {"type": "base64", "media_type": "image/png", "data": "iVBORw0KGgo="}


def body_of(*rows: Message, config: AnthropicConfig = PLAIN, **fields: Any) -> dict[str, Any]:
    return api_request(ChatRequest(messages=list(rows), **fields), config).body


def messages_of(*rows: Message, **fields: Any) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = body_of(*rows, **fields)["messages"]
    return messages


def user(content: Any = "hello") -> Message:
    return Message(role="user", content=content)


def assistant(*content: Any, **extra: Any) -> Message:
    return Message(role="assistant", content=list(content), **extra)


def call(call_id: str = "a", name: str = "read", **arguments: Any) -> ToolCallBlock:
    return ToolCallBlock(id=call_id, name=name, input=arguments)


def result(call_id: str = "a", content: Any = "done", **metadata: Any) -> Message:
    return Message(role="tool", tool_call_id=call_id, content=content, metadata=metadata or None)


def said(text: str) -> dict[str, Any]:
    return {"type": "text", "text": text}


class TestRows:
    def test_leading_system_rows_are_the_system_prompt(self) -> None:
        body = body_of(
            Message(role="system", content="You are kind."), Message(role="developer", content="Be brief."), user()
        )
        assert body["system"] == [said("You are kind."), said("Be brief.")]
        assert body["messages"] == [{"role": "user", "content": [said("hello")]}]

    def test_a_later_system_row_becomes_a_reminder_in_the_user_message(self) -> None:
        rows = [user(), assistant(TextBlock(text="hi")), Message(role="system", content="It is late."), user("and?")]
        assert messages_of(*rows)[2]["content"] == [
            said("<system-reminder>\nIt is late.\n</system-reminder>"),
            said("and?"),
        ]

    def test_results_and_following_rows_share_one_message_with_results_first(self) -> None:
        rows = [
            user(),
            assistant(call("a"), call("b")),
            result("a"),
            Message(role="system", content="Hurry."),
            result("b", "broken", is_error=True),
            user("wait"),
        ]
        assert messages_of(*rows)[2] == {
            "role": "user",
            "content": [
                {"type": "tool_result", "tool_use_id": "a", "content": "done"},
                {"type": "tool_result", "tool_use_id": "b", "content": "broken", "is_error": True},
                said("<system-reminder>\nHurry.\n</system-reminder>"),
                said("wait"),
            ],
        }

    def test_blank_text_unsigned_thinking_and_empty_rows_are_omitted(self) -> None:
        rows = [
            user([TextBlock(text=" \n"), TextBlock(text="hello")]),
            assistant(ThinkingBlock(thinking="cut"), TextBlock(text="")),
            user("still there?"),
        ]
        assert messages_of(*rows) == [{"role": "user", "content": [said("hello"), said("still there?")]}]

    def test_signed_thinking_is_sent_back_unchanged(self) -> None:
        thought = ThinkingBlock(thinking="", signature="sig")
        redacted = RedactedThinkingBlock(data="opaque")
        assert messages_of(user(), assistant(thought, redacted, TextBlock(text="hi")))[1]["content"] == [
            {"type": "thinking", "thinking": "", "signature": "sig"},
            {"type": "redacted_thinking", "data": "opaque"},
            said("hi"),
        ]

    def test_thinking_of_another_model_is_omitted(self) -> None:
        thought = ThinkingBlock.model_validate({"thinking": "hm", "signature": "s", "model": "claude-opus-4-8"})
        rows = [user(), assistant(thought, TextBlock(text="hi"))]
        assert messages_of(*rows)[1]["content"] == [said("hi")]
        assert len(messages_of(*rows, model="claude-opus-4-8")[1]["content"]) == 2

    def test_images_are_sent_also_in_results(self) -> None:
        picture = ImageBlock(source=IMAGE)
        wire = {"type": "image", "source": IMAGE}
        messages = messages_of(user([picture]), assistant(call()), result("a", [TextBlock(text="see"), picture]))
        assert messages[0]["content"] == [wire]
        assert messages[2]["content"][0]["content"] == [said("see"), wire]

    def test_images_of_a_failed_call_follow_all_results(self) -> None:
        content = [TextBlock(text="see"), ImageBlock(source=IMAGE)]
        failed = [result("a", content, is_error=True), result("b", content[1:], is_error=True), result("c")]
        wire = {"type": "image", "source": IMAGE}
        assert messages_of(user(), assistant(call("a"), call("b"), call("c")), *failed, user("and?"))[2]["content"] == [
            {"type": "tool_result", "tool_use_id": "a", "content": [said("see")], "is_error": True},
            {"type": "tool_result", "tool_use_id": "b", "content": "(no output)", "is_error": True},
            {"type": "tool_result", "tool_use_id": "c", "content": "done"},
            wire,
            wire,
            said("and?"),
        ]

    def test_an_empty_result_is_sent_as_a_text(self) -> None:
        assert messages_of(user(), assistant(call()), result("a", ""))[2]["content"][0]["content"] == "(no output)"

    @pytest.mark.parametrize("role", ["user", "tool"])
    def test_a_result_may_be_a_block(self, role: Any) -> None:
        block = ToolResultBlock(tool_call_id="a", output={"n": 1})
        row = Message(role=role, content=[block], tool_call_id="a" if role == "tool" else None)
        assert messages_of(user(), assistant(call()), row)[2]["content"] == [
            {"type": "tool_result", "tool_use_id": "a", "content": '{"n": 1}'}
        ]

    def test_tool_calls_beside_the_content_are_converted(self) -> None:
        openai = {"id": "a", "type": "function", "function": {"name": "read", "arguments": '{"path": "x"}'}}
        kernel = {"id": "b", "name": "list", "arguments": {"deep": True}}
        row = Message.model_validate({"role": "assistant", "content": "Reading.", "tool_calls": [openai, kernel]})
        assert messages_of(user(), row, result("a"), result("b"))[1]["content"] == [
            said("Reading."),
            {"type": "tool_use", "id": "a", "name": "read", "input": {"path": "x"}},
            {"type": "tool_use", "id": "b", "name": "list", "input": {"deep": True}},
        ]

    def test_a_call_in_both_places_is_sent_once(self) -> None:
        again = [{"id": "a", "type": "function", "function": {"name": "read", "arguments": "{}"}}]
        row = assistant(call("a"), tool_calls=again)
        assert len(messages_of(user(), row, result())[1]["content"]) == 1

    @pytest.mark.parametrize(
        ("arguments", "sent"),
        [("", {}), (None, {}), ("[1]", {"INVALID_JSON": "[1]"}), ('{"path": ', {"INVALID_JSON": '{"path": '})],
    )
    def test_arguments_other_than_objects_are_sent_as_invalid_json(self, arguments: Any, sent: dict[str, Any]) -> None:
        calls = [{"id": "a", "function": {"name": "read", "arguments": arguments}}]
        assert messages_of(user(), assistant(tool_calls=calls), result())[1]["content"][0]["input"] == sent

    def test_half_a_surrogate_pair_is_removed(self) -> None:
        row = assistant(TextBlock(text="a\ud83d"), call("a", text="b\udc00", n=1.5))
        messages = messages_of(user("c\ud83d"), row, result("a", "d\ud83d"))
        assert "a" in json.dumps(messages, ensure_ascii=False).encode().decode()
        assert messages[1]["content"][1]["input"] == {"text": "b", "n": 1.5}

    def test_a_history_that_starts_with_the_assistant_gets_a_user_message(self) -> None:
        messages = messages_of(assistant(TextBlock(text="hi")), user())
        assert [message["role"] for message in messages] == ["user", "assistant", "user"]


class TestNames:
    @given(st.text(max_size=100), st.text(max_size=100))
    def test_every_name_is_valid_and_stays_distinct(self, one: str, other: str) -> None:
        assert re.fullmatch(r"[a-zA-Z0-9_-]{1,64}", api_name(one))
        assert (api_name(one) == api_name(other)) == (one == other)

    def test_call_and_result_have_the_same_converted_id(self) -> None:
        messages = messages_of(user(), assistant(call("call:1|é", "files.read")), result("call:1|é"))
        used, came = messages[1]["content"][0], messages[2]["content"][0]
        assert used["id"] == came["tool_use_id"] != "call:1|é"
        assert used["name"] == api_name("files.read")


class TestParameters:
    def test_supported_parameters_are_sent(self) -> None:
        body = body_of(
            user(), model="claude-opus-4-8", max_output_tokens=99, stop=["END", " "], reasoning_effort="high"
        )
        assert body["model"] == "claude-opus-4-8"
        assert body["max_tokens"] == 99
        assert body["stop_sequences"] == ["END"]
        assert body["output_config"] == {"effort": "high"}

    def test_unsupported_parameters_are_omitted(self) -> None:
        assert not {"temperature", "top_p"} & set(body_of(user(), temperature=0.0, top_p=0.5))

    def test_a_tool_has_a_schema_of_type_object(self) -> None:
        tools = [ToolSpec(name="now", parameters={}), ToolSpec(name="read", description="Reads.", parameters={"x": 1})]
        assert body_of(user(), tools=tools)["tools"] == [
            {"name": "now", "input_schema": {"type": "object"}},
            {"name": "read", "description": "Reads.", "input_schema": {"type": "object", "x": 1}},
        ]

    @pytest.mark.parametrize(
        ("choice", "expected"),
        [
            ("auto", {"type": "auto"}),
            ("none", {"type": "none"}),
            ("required", {"type": "any"}),
            ({"type": "any", "disable_parallel_tool_use": True}, {"type": "any", "disable_parallel_tool_use": True}),
            ({"type": "tool", "name": "read"}, {"type": "tool", "name": "read"}),
            ({"type": "function", "function": {"name": "read.me"}}, {"type": "tool", "name": api_name("read.me")}),
        ],
    )
    def test_a_tool_choice_is_converted(self, choice: Any, expected: Any) -> None:
        body = body_of(user(), tools=[ToolSpec(name="read", parameters={})], tool_choice=choice)
        assert body["tool_choice"] == expected
        assert len(body["tools"]) == 1

    def test_without_tools_the_tool_choice_is_omitted(self) -> None:
        assert "tool_choice" not in body_of(user(), tool_choice="none")


class TestThinking:
    @pytest.mark.parametrize(
        ("model", "off", "on"),
        [
            ("claude-haiku-4-5", None, "enabled"),
            ("claude-sonnet-4-5-20250929", None, "enabled"),
            ("claude-opus-4-20250514", None, "enabled"),
            ("claude-3-7-sonnet-20250219", None, "enabled"),
            ("claude-opus-4-6", None, "adaptive"),
            ("claude-sonnet-5", "disabled", "adaptive"),
            ("claude-sonnet-5-5", "between_tools", "adaptive"),
            ("claude-opus-5-5", None, "adaptive"),
            ("our-gateway-s-name", None, "adaptive"),
        ],
    )
    def test_thinking_has_the_type_that_the_model_supports(self, model: str, off: str | None, on: str) -> None:
        assert body_of(user(), model=model).get("thinking", {}).get("type") == off
        config = AnthropicConfig(thinking_budget_tokens=2000)
        assert body_of(user(), model=model, config=config)["thinking"]["type"] == on

    def test_thinking_has_the_configured_budget_or_the_default(self) -> None:
        for config, tokens in [(AnthropicConfig(), 10_000), (AnthropicConfig(thinking_budget_tokens=2000), 2000)]:
            body = body_of(user(), model="claude-haiku-4-5", config=config.with_thinking())
            assert body["thinking"] == {"type": "enabled", "budget_tokens": tokens}

    def test_max_tokens_exceeds_the_thinking_budget(self) -> None:
        config = AnthropicConfig(thinking_budget_tokens=2000)
        assert body_of(user(), model="claude-haiku-4-5", max_output_tokens=1000, config=config)["max_tokens"] == 3000
        assert body_of(user(), model="claude-haiku-4-5", max_output_tokens=4000, config=config)["max_tokens"] == 4000

    def test_effort_is_omitted_for_models_without_it(self) -> None:
        assert "output_config" not in body_of(user(), model="claude-haiku-4-5", reasoning_effort="high")
        assert "output_config" not in body_of(user(), reasoning_effort="none")

    @pytest.mark.parametrize("model", ["claude-sonnet-5", "claude-sonnet-5-5"])
    def test_an_effort_that_needs_thinking_keeps_it_on(self, model: str) -> None:
        assert "thinking" not in body_of(user(), model=model, reasoning_effort="max")


class TestPromptCache:
    def test_four_markers_are_on_the_stable_prefix_and_the_last_user_messages(self) -> None:
        rows = [
            Message(role="system", content="kind"),
            Message(role="system", content="brief"),
            user("one"),
            assistant(TextBlock(text="1")),
            user("two"),
            assistant(call()),
            result(),
            user("three"),
        ]
        tools = [ToolSpec(name="a", parameters={}), ToolSpec(name="b", parameters={})]
        assert marked(body_of(*rows, tools=tools, config=AnthropicConfig())) == [
            said("brief"),
            {"name": "b", "input_schema": {"type": "object"}},
            said("two"),
            said("three"),
        ]

    def test_markers_can_be_disabled(self) -> None:
        assert marked(body_of(Message(role="system", content="kind"), user())) == []


def marked(body: dict[str, Any]) -> list[dict[str, Any]]:
    blocks = [*body.get("system", ()), *body.get("tools", ())]
    blocks += [block for message in body["messages"] for block in message["content"]]
    return [without_marker(block) for block in blocks if "cache_control" in block]


def without_marker(block: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in block.items() if key != "cache_control"}


words = st.text(max_size=8)
user_rows = st.one_of(
    st.builds(user, words.filter(str.strip)),
    st.builds(user, st.lists(st.builds(TextBlock, text=words), max_size=3)),
    st.builds(lambda text: Message(role="developer", content=text), words),
)
thoughts = st.builds(ThinkingBlock, thinking=words, signature=st.none() | words.filter(bool))
spoken = st.lists(st.builds(TextBlock, text=words) | thoughts, max_size=4)


@st.composite
def turns(draw: st.DrawFn, number: int) -> list[Message]:
    """Build one turn: rows before it, text and calls of the model, and results in order of completion."""
    content: list[Any] = draw(spoken)
    calls = [
        call(f"call{draw(st.sampled_from(':_é'))}{number}.{n}", draw(words)) for n in range(draw(st.integers(0, 3)))
    ]
    beside = draw(st.booleans())
    extra = [{"id": c.id, "type": "function", "function": {"name": c.name, "arguments": "{}"}} for c in calls if c.name]
    calls = [c for c in calls if c.name]
    rows = draw(st.lists(user_rows, max_size=2))
    rows.append(assistant(*content, tool_calls=extra) if beside else assistant(*content, *calls))
    rows += [result(c.id, draw(words), is_error=draw(st.booleans())) for c in draw(st.permutations(calls))]
    return rows


@st.composite
def histories(draw: st.DrawFn) -> tuple[list[Message], int]:
    """A history in which a model may be asked now, and how much of it was there at an earlier call."""
    opening = [Message(role="system", content=draw(words)), user("hello")]
    done = [draw(turns(number)) for number in range(draw(st.integers(0, 5)))]
    earlier = sum(map(len, done[: draw(st.integers(0, len(done)))])) + len(opening)
    return [*opening, *(row for turn in done for row in turn), *draw(st.lists(user_rows, max_size=2))], earlier


@given(histories())
@settings(max_examples=300, deadline=None)
def test_any_history_becomes_a_valid_request(drawn: tuple[list[Message], int]) -> None:
    body = body_of(*drawn[0], config=AnthropicConfig())
    messages = body["messages"]
    assert [m["role"] for m in messages] == ["user" if n % 2 == 0 else "assistant" for n in range(len(messages))]
    for n, message in enumerate(messages):
        blocks = message["content"]
        assert blocks
        assert all(block["text"].strip() for block in blocks if block["type"] == "text")
        kinds = [block["type"] for block in blocks]
        assert kinds == sorted(kinds, key=lambda kind: kind != "tool_result")
        called = [block["id"] for block in blocks if block["type"] == "tool_use"]
        answers = messages[n + 1]["content"] if n + 1 < len(messages) else []
        assert sorted(called) == sorted(b["tool_use_id"] for b in answers if b["type"] == "tool_result") or not answers
    assert all(block["type"] in {"text", "tool_result"} or "input_schema" in block for block in marked(body))
    assert len(marked(body)) <= 4
    json.dumps(body, ensure_ascii=False).encode()


@given(histories())
@settings(max_examples=300, deadline=None)
def test_a_longer_history_only_appends(drawn: tuple[list[Message], int]) -> None:
    rows, earlier = drawn
    before, after = prefix_bytes(rows[:earlier]), prefix_bytes(rows)
    assert after.startswith(before)


@given(histories())
@settings(deadline=None)
def test_conversion_does_not_change_the_request(drawn: tuple[list[Message], int]) -> None:
    rows = deepcopy(drawn[0])
    body_of(*rows, config=AnthropicConfig())
    assert rows == drawn[0]


def prefix_bytes(rows: list[Message]) -> bytes:
    """Return the blocks in the order of the prompt cache, without markers."""
    body = body_of(*rows, config=AnthropicConfig())
    blocks: list[Any] = [*body.get("system", ())]
    for message in body["messages"]:
        blocks += [[message["role"], without_marker(block)] for block in message["content"]]
    return b"\n".join(json.dumps(block, ensure_ascii=False).encode() for block in blocks)
