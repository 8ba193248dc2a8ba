"""The connector's side of the calls over one stream: it answers them."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import grpc.aio
import structlog

from connector.protocols import LeaseLost
from orchestrator_interactive.interactions.records import Key
from orchestrator_interactive.storage.errors import StoreError
from service.sessions.remote import sessions_pb2 as pb
from service.sessions.remote.wire import to_json

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from service.sessions.host import SessionHost

    Stream = grpc.aio.StreamStreamCall[pb.ExecuteInput, pb.ExecutionEvent]
    Answer = Callable[[str, dict[str, Any]], Awaitable[Mapping[str, Any]]]

log = structlog.get_logger(__name__)

_UNKNOWN = "There is no function {!r}."
_FAILED = "It failed; the log of the service has the reason."


class Replies:
    """Answers the calls over one stream, each in a task.

    Args:
        answer: returns the result of a call, by the name of the function and its arguments.
        send: puts an input on the stream.
    """

    def __init__(self, answer: Answer, send: Callable[[pb.ExecuteInput], None]) -> None:
        self._answer = answer
        self._send = send
        self.tasks: dict[int, asyncio.Task[None]] = {}

    def on_event(self, event: pb.ExecutionEvent) -> None:
        """Answer a call, or cancel one that is no longer waited for."""
        match event.WhichOneof("kind"):
            case "call":
                number = event.call.number
                task = self.tasks[number] = asyncio.create_task(self._reply(event.call))
                task.add_done_callback(lambda _: self.tasks.pop(number, None))
            case "cancel" if (cancelled := self.tasks.get(event.cancel)) is not None:
                cancelled.cancel()

    async def _reply(self, call: pb.Call) -> None:
        reply = pb.Reply(number=call.number)
        try:
            reply.result = to_json(await self._answer(call.name, json.loads(call.arguments)))
        except ValueError as e:
            reply.refused = str(e)
        except (StoreError, LeaseLost) as e:
            reply.unavailable = str(e)
        except Exception:  # a tool call's border
            log.exception("sessions.call_failed", function=call.name)
            reply.unavailable = _FAILED
        self._send(pb.ExecuteInput(reply=reply))


async def call_host(host: SessionHost, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
    """Call a function of the host, as `RemoteHost` asks for it.

    Raises:
        ValueError: there is no such function, or it refuses.
        StoreError: the store cannot be used.
    """
    if name not in host.names:
        raise ValueError(_UNKNOWN.format(name))
    return await host.call(Key(*arguments["key"]), name, arguments["arguments"])


async def write_inputs(stream: Stream, inputs: asyncio.Queue[pb.ExecuteInput]) -> None:
    """Write inputs until the stream ends, which its reader notices."""
    with suppress(grpc.aio.AioRpcError, asyncio.InvalidStateError):
        while True:
            await stream.write(await inputs.get())


async def serve_host(host: SessionHost, stream: Stream, on_attached: Callable[[], None]) -> None:
    """Answer the calls of sessions without a run until the stream ends.

    Raises:
        AioRpcError: the process of the sessions is gone.
    """
    inputs: asyncio.Queue[pb.ExecuteInput] = asyncio.Queue()
    inputs.put_nowait(pb.ExecuteInput(start=pb.Start(functions=sorted(host.names))))
    replies = Replies(lambda name, arguments: call_host(host, name, arguments), inputs.put_nowait)
    writing = asyncio.create_task(write_inputs(stream, inputs))
    try:
        async for event in stream:
            if event.WhichOneof("kind") is None:
                on_attached()
            replies.on_event(event)
    finally:
        stream.cancel()
        ending = [writing, *replies.tasks.values()]
        for task in ending:
            task.cancel()
        await asyncio.wait(ending)
