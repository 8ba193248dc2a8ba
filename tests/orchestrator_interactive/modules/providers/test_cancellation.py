"""A cancelled call leaves no connection, task or warning."""

import asyncio
import gc

import pytest
from anthropic_server import AnthropicServer, Gate, Step, message, message_start, text, tool_call
from mounted_provider import Api, MountedProvider, RecordingStream, mounted_at

CALLS = 100


def held_before_the_answer(gate: Gate) -> list[Step]:
    return [gate]


def held_after_its_start(gate: Gate) -> list[Step]:
    return [message_start(), gate]


def held_within_a_text(gate: Gate) -> list[Step]:
    return message(text("Hello, ", gate, "world"))


def held_within_an_event(gate: Gate) -> list[Step]:
    return [message_start(), b'event: content_block_start\ndata: {"type": "cont', gate]


def held_within_the_input_of_a_tool(gate: Gate) -> list[Step]:
    return message(text("I look."), tool_call("read", None, '{"path": "a', gate, '.md"}'))


HELD = [
    held_before_the_answer,
    held_after_its_start,
    held_within_a_text,
    held_within_an_event,
    held_within_the_input_of_a_tool,
]


def open_transports() -> int:
    gc.collect()  # an unclosed transport warns now, and a warning is a failure
    return sum(isinstance(found, asyncio.Transport) and not found.is_closing() for found in gc.get_objects())


async def cancelled(mounted: MountedProvider, gate: Gate) -> None:
    stream = RecordingStream()
    call = asyncio.create_task(mounted.complete(stream=stream))
    await gate.reached.wait()
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


@pytest.mark.parametrize("held", HELD)
async def test_a_cancelled_call_closes_its_connection(server: AnthropicServer, mounted: MountedProvider, held) -> None:
    gate = Gate()
    server.reply_steps(*held(gate))
    await cancelled(mounted, gate)
    await server.requests[0].ended.wait()
    assert server.requests[0].left


async def test_many_concurrent_cancelled_calls_leave_nothing_open(server, mounted) -> None:
    gates = [Gate() for _ in range(CALLS)]
    for number, gate in enumerate(gates):
        server.reply_steps(*HELD[number % len(HELD)](gate))
    calls = [asyncio.create_task(mounted.complete(stream=RecordingStream())) for _ in gates]
    for gate in gates:
        await gate.reached.wait()
    for call in calls:
        call.cancel()
    ended = await asyncio.gather(*calls, return_exceptions=True)
    assert {type(end) for end in ended} == {asyncio.CancelledError}
    await nothing_is_left_open(server, mounted)


async def nothing_is_left_open(server: AnthropicServer, mounted: MountedProvider) -> None:
    for request in server.requests:
        await request.ended.wait()
    assert all(request.left for request in server.requests)
    assert len({request.peer for request in server.requests}) == CALLS
    server.reply(text("still here"))
    assert (await mounted.complete()).text == "still here"
    # Both ends of the one kept connection, and the server's task for it.
    assert open_transports() == 2
    assert len(asyncio.all_tasks() - {asyncio.current_task()}) == 1


async def test_cancellation_ends_the_wait_before_a_retry(server: AnthropicServer, api: Api) -> None:
    server.fail(529, "overloaded_error")
    async with mounted_at(server.base_url, api, retry_base_delay_s=3600) as mounted:
        call = asyncio.create_task(mounted.complete())
        await mounted.retrying.wait()
        call.cancel()
        with pytest.raises(asyncio.CancelledError):
            await call
    assert len(server.requests) == 1
