"""What only the Messages API has: redacted thinking, the usage at the start, unknown events, and facts of models."""

import asyncio

import pytest
from agents.milestones import soon
from anthropic_server import AnthropicServer, Gate, message, message_delta, message_start, redacted_thinking, text
from mounted_provider import KEY, MountedProvider, RecordingStream, a_coordinator, a_request

from orchestrator_interactive.kernel.contracts.errors import InvalidRequestError
from orchestrator_interactive.kernel.contracts.messages import (
    ImageBlock,
    Message,
    RedactedThinkingBlock,
    ResponseStream,
    TextBlock,
    ToolCallBlock,
)
from orchestrator_interactive.modules.provider_anthropic import mount


class BeatingStream(ResponseStream):
    def __init__(self) -> None:
        super().__init__()
        self.beats: asyncio.Queue[None] = asyncio.Queue()

    def heartbeat(self) -> None:
        super().heartbeat()
        self.beats.put_nowait(None)


async def test_redacted_thinking_is_returned(server: AnthropicServer, mounted: MountedProvider) -> None:
    server.reply(redacted_thinking("opaque"), text("x"))
    redacted = (await mounted.complete()).content[0]
    assert isinstance(redacted, RedactedThinkingBlock)
    assert redacted.data == "opaque"


async def test_tokens_written_to_the_cache_count_as_input(server: AnthropicServer, mounted: MountedProvider) -> None:
    server.reply(text("hi"), usage={"cache_read_input_tokens": 100, "cache_creation_input_tokens": 20})
    usage = (await mounted.complete()).usage
    assert usage is not None
    assert (usage.input_tokens, usage.cache_read_tokens, usage.cache_write_tokens) == (130, 100, 20)


@pytest.mark.parametrize("reason", ["model_context_window_exceeded", "pause_turn", "stop_sequence"])
async def test_a_stop_reason_of_this_api_is_the_finish_reason(server, mounted, reason: str) -> None:
    server.reply(text("So far"), stop_reason=reason)
    assert (await mounted.complete()).finish_reason == reason


async def test_the_error_names_a_thinking_budget_that_is_too_small() -> None:
    with pytest.raises(ValueError, match="thinking_budget_tokens"):
        await mount(a_coordinator(), {"api_key": KEY, "thinking_budget_tokens": 10})


async def test_a_cancelled_call_keeps_its_usage(server: AnthropicServer, mounted: MountedProvider) -> None:
    server.reply_steps(*message(text("Hello, ", Gate(), "world")))
    stream = RecordingStream()
    call = asyncio.create_task(mounted.complete(stream=stream))
    await stream.spoke.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    assert stream.usage is not None
    assert stream.usage.input_tokens > 0


async def test_a_ping_is_progress(server: AnthropicServer, mounted: MountedProvider) -> None:
    begun, silent = Gate(), Gate()
    start, *rest = message(text("ok"))
    server.reply_steps(start, begun, {"type": "ping"}, silent, *rest)
    stream = BeatingStream()
    call = asyncio.create_task(mounted.complete(stream=stream))
    await soon(stream.beats.get())
    begun.open()
    await soon(stream.beats.get())
    silent.open()
    assert (await call).text == "ok"


async def test_unknown_events_blocks_and_deltas_are_ignored(server, mounted) -> None:
    server.reply_steps(
        message_start(),
        {"type": "weather", "index": 7},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "hologram", "shape": "round"}},
        {"type": "content_block_delta", "index": 0, "delta": {"type": "hologram_delta", "text": "boo"}},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": {"type": "text", "text": "be"}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "sparkle_delta", "text": "boo"}},
        {"type": "content_block_delta", "index": 1, "delta": {"type": "text_delta", "text": "gin"}},
        {"type": "content_block_delta", "index": 9, "delta": {"type": "text_delta", "text": "boo"}},
        {"type": "content_block_stop", "index": 1},
        message_delta("something_new"),
        {"type": "message_stop"},
    )
    stream = RecordingStream()
    response = await mounted.complete(stream=stream)
    assert response.content == [TextBlock(text="begin")]
    assert response.finish_reason == "something_new"
    assert stream.texts == ["be", "gin"]


async def test_images_of_a_refused_request_become_remarks_and_later_ones_are_sent(server, mounted) -> None:
    def image(data: str) -> ImageBlock:
        return ImageBlock(source={"type": "base64", "media_type": "image/png", "data": data})

    rows = [
        Message(role="user", content=[TextBlock(text="look"), image("QUJD")]),
        Message(role="assistant", content=[ToolCallBlock(id="a", name="look", input={})]),
        Message(role="tool", tool_call_id="a", content=[image("REVG")]),
    ]
    server.fail(400, "invalid_request_error", "Could not process image")
    for more in ([], [Message(role="user", content=[image("R0hJ")])]):
        server.reply(text("ok"))
        rows += more
        assert (await mounted.complete(a_request(messages=rows), stream=RecordingStream())).text == "ok"
    shown = [[data for data in ("QUJD", "REVG", "R0hJ") if data in str(body)] for body in server.bodies]
    assert shown == [["QUJD", "REVG"], [], ["R0hJ"]]
    assert str(server.bodies[1]).count("An image that you cannot see") == 2


@pytest.mark.parametrize("said", ["Could not process image", "max_tokens: too large"])
async def test_a_request_without_images_or_with_another_fault_is_sent_once(server, mounted, said: str) -> None:
    image = ImageBlock(source={"type": "base64", "media_type": "image/png", "data": "QUJD"})
    content = [TextBlock(text="look")] if "image" in said else [image]
    server.fail(400, "invalid_request_error", said)
    with pytest.raises(InvalidRequestError, match=said):
        await mounted.complete(a_request(messages=[Message(role="user", content=content)]))
    assert len(server.bodies) == 1


async def test_a_refusal_is_a_response_with_its_reason(server, mounted) -> None:
    details = {"type": "refusal", "category": None, "explanation": "This is not for me."}
    ending = {
        "type": "message_delta",
        "delta": {"stop_reason": "refusal", "stop_sequence": None, "stop_details": details},
        "usage": {"output_tokens": 7, "output_tokens_details": {"thinking_tokens": 3}},
    }
    server.reply_steps(message_start(), ending, {"type": "message_stop"})
    response = await mounted.complete()
    assert response.finish_reason == "refusal"
    assert response.content == []
    assert response.metadata is not None
    assert response.metadata["refusal"] == "This is not for me."
    assert response.usage is not None
    assert (response.usage.output_tokens, response.usage.reasoning_tokens) == (7, 3)


async def test_models_have_their_limits(server: AnthropicServer, mounted: MountedProvider) -> None:
    server.models = [
        {
            "id": "claude-x",
            "type": "model",
            "display_name": "Claude X",
            "created_at": "2026-01-01T00:00:00Z",
            "lifecycle": "active",
            "max_input_tokens": 1_000_000,
            "max_tokens": 128_000,
            "capabilities": {"thinking": {"supported": True}, "image_input": {"supported": True}},
        },
        {"id": "claude-y", "type": "model", "display_name": "Claude Y", "created_at": "2026-01-01T00:00:00Z"},
    ]
    x, y = await mounted.provider.list_models()
    assert (x.id, x.display_name, x.context_window, x.max_output_tokens) == (
        "claude-x",
        "Claude X",
        1_000_000,
        128_000,
    )
    assert {"thinking", "vision"} <= set(x.capabilities)
    assert (y.context_window, y.max_output_tokens) == (200_000, 8192)
