"""Options of Amplifier's provider-anthropic, and their effect on requests to a local Messages API server."""

from typing import Any

import pytest
from anthropic_server import AnthropicServer, text
from mounted_provider import MountedProvider, a_request, mounted_at

from orchestrator_interactive.kernel.contracts.errors import InvalidRequestError
from orchestrator_interactive.kernel.contracts.events import LLM_REQUEST, LLM_RESPONSE
from orchestrator_interactive.kernel.contracts.messages import Message, ToolCallBlock
from orchestrator_interactive.kernel.contracts.models import HookResult


@pytest.mark.parametrize(
    ("config", "expected"),
    [
        ({"default_model": "claude-opus-5"}, {"model": "claude-opus-5"}),
        ({"max_tokens": "1000"}, {"max_tokens": 1000}),
        ({"reasoning_effort": "high"}, {"thinking": "adaptive", "output_config": {"effort": "high"}}),
        ({"effort": "low", "extended_thinking": False}, {"thinking": "disabled", "output_config": {"effort": "low"}}),
        ({"extended_thinking": True}, {"thinking": "adaptive"}),
        ({"inference_geo": "us"}, {"inference_geo": "us"}),
        ({"extra_request_params": {"max_tokens": 7}}, {"max_tokens": 7}),
    ],
)
async def test_an_option_is_in_the_request(server: AnthropicServer, config: Any, expected: dict[str, Any]) -> None:
    server.reply(text("hi"))
    async with mounted_at(server.base_url, **config) as mounted:
        await mounted.complete()
    body = {**server.bodies[0], "thinking": server.bodies[0].get("thinking", {}).get("type")}
    assert {name: body.get(name) for name in expected} == expected


async def test_beta_headers_are_sent_and_the_cache_can_be_disabled(server: AnthropicServer) -> None:
    server.reply(text("hi"))
    betas = {"beta_headers": ["one-2026", "two-2026"], "enable_prompt_caching": False}
    async with mounted_at(server.base_url, **betas) as mounted:
        await mounted.complete()
    assert server.requests[0].headers["anthropic-beta"] == "one-2026,two-2026"
    assert "cache_control" not in str(server.bodies[0])


@pytest.mark.parametrize("raw", [False, True])
async def test_a_call_emits_events_with_the_whole_payload_if_raw_is_set(server: AnthropicServer, *, raw: bool) -> None:
    server.reply(text("the answer"))
    seen: dict[str, dict[str, Any]] = {}

    async def remember(event: str, data: dict[str, Any]) -> HookResult:
        seen[event] = data
        return HookResult()

    async with mounted_at(server.base_url, raw=raw) as mounted:
        for event in (LLM_REQUEST, LLM_RESPONSE):
            mounted.hooks.register(event, remember)
        await mounted.complete(a_request(messages=[Message(role="user", content="the question")]))
    sent, received = seen[LLM_REQUEST], seen[LLM_RESPONSE]
    assert (sent["provider"], sent["model"], sent["message_count"]) == ("anthropic", "claude-sonnet-5", 1)
    assert (received["status"], received["finish_reason"]) == ("ok", "end_turn")
    assert received["usage"]["output_tokens"] > 0
    assert ("the question" in str(sent.get("raw")), "the answer" in str(received.get("raw"))) == (raw, raw)


async def test_the_address_and_the_rank_of_the_provider_come_from_its_options(server: AnthropicServer) -> None:
    async with mounted_at(server.base_url, priority=3, context_window=9000, enable_1m_context=True) as mounted:
        assert mounted.provider.priority == 3
        assert mounted.provider.get_info().defaults["context_window"] == 9000


CALLS = Message(
    role="assistant",
    content=[ToolCallBlock(id="a", name="read", input={}), ToolCallBlock(id="b", name="read", input={})],
)


def result(call_id: str) -> Message:
    return Message(role="tool", tool_call_id=call_id, content="done")


@pytest.mark.parametrize(
    ("rows", "problem"),
    [
        ([CALLS, result("a")], "the call b has no result in the next message"),
        (
            [CALLS, result("a"), result("b"), result("b")],
            "the result of b has no call of its own before it",
        ),
        ([CALLS], "the call a has no result in the next message; the call b has no result"),
        ([result("c")], "the result of c has no call of its own before it"),
        ([CALLS, Message(role="user", content="and?"), result("a")], "the call b has no result"),
    ],
)
async def test_a_direct_call_with_an_incomplete_tool_pair_is_refused_before_it_is_sent(
    server: AnthropicServer, mounted: MountedProvider, rows: list[Message], problem: str
) -> None:
    with pytest.raises(InvalidRequestError, match=problem):
        await mounted.complete(a_request(messages=[Message(role="user", content="look"), *rows]))
    assert server.requests == []


async def test_complete_tool_pairs_are_sent(server: AnthropicServer, mounted: MountedProvider) -> None:
    server.reply(text("ok"))
    rows = [Message(role="user", content="look"), CALLS, result("b"), result("a"), Message(role="user", content="and?")]
    await mounted.complete(a_request(messages=rows))
    assert [len(message["content"]) for message in server.bodies[0]["messages"]] == [1, 2, 3]
