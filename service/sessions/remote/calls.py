"""Calls from a session's process to the connector, over one stream: its progress, its people and its host."""

from __future__ import annotations

import asyncio
import json
from dataclasses import asdict
from itertools import count
from typing import TYPE_CHECKING, Any

from pydantic import TypeAdapter

from connector.protocols import PersonAnswer, Sharing
from orchestrator_interactive.storage.errors import StoreUnavailable
from service.sessions.remote import sessions_pb2 as pb
from service.sessions.remote.wire import to_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from connector.protocols import PersonRequest, SharedFile

PROGRESS = "progress"

_FAIL_AFTER_S = 60.0
_GONE = "The process that could do this is gone; it may have been done."
_ANSWER, _SHARING = TypeAdapter(PersonAnswer), TypeAdapter(Sharing)


class ConnectorCalls:
    """The calls over one stream, each with a number and a reply.

    Args:
        send: puts an event on the stream.
    """

    def __init__(self, send: Callable[[pb.ExecutionEvent], None]) -> None:
        self._send = send
        self._numbers = count(1)
        self._replies: dict[int, asyncio.Future[dict[str, Any]]] = {}
        self._progress: set[int] = set()
        self._is_closed = False

    def close(self) -> None:
        """End the calls, because the stream has ended.

        Progress counts as processed. Other calls fail late: an active run is cancelled before, so that it logs no
        failure of a call that the resumed run makes again.
        """
        self._is_closed = True
        for number in tuple(self._progress):
            self.on_reply(pb.Reply(number=number, result="{}"))
        asyncio.get_running_loop().call_later(_FAIL_AFTER_S, self._fail)

    def _fail(self) -> None:
        for number in tuple(self._replies):
            self.on_reply(pb.Reply(number=number, unavailable=_GONE))

    async def call(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call a function of the connector; cancelling the caller cancels the call there.

        Raises:
            ValueError: it is refused; the message is a sentence for the model.
            StoreUnavailable: it cannot be called now.
        """
        number = next(self._numbers)
        if name == PROGRESS:
            self._progress.add(number)
        reply: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._replies[number] = reply
        self._send(pb.ExecutionEvent(call=pb.Call(number=number, name=name, arguments=to_json(arguments))))
        try:
            return await reply
        finally:
            self._progress.discard(number)
            if self._replies.pop(number, None) is not None and (reply.cancelled() or not reply.done()):
                self._send(pb.ExecutionEvent(cancel=number))

    def on_reply(self, sent: pb.Reply) -> None:
        """Pass a reply to its caller, if that still waits."""
        reply = self._replies.get(sent.number)
        if reply is None or reply.done():
            return
        match sent.WhichOneof("kind"):
            case "result":
                reply.set_result(dict(json.loads(sent.result)))
            case "refused":
                reply.set_exception(ValueError(sent.refused))
            case _:
                reply.set_exception(StoreUnavailable(sent.unavailable))

    async def progress(self, event: str, data: dict[str, Any]) -> None:
        """Report progress; it is processed on return."""
        if self._is_closed:
            return
        await self.call(PROGRESS, {"event": event, "data": data})


class RemotePeople:
    """The people in the thread of a run, through the connector; implements `connector.protocols.People`.

    Args:
        unbegun: as in the protocol, when the run starts.
    """

    def __init__(self, calls: ConnectorCalls, owner: str, unbegun: Iterable[str]) -> None:
        self._calls = calls
        self.owner = owner
        self.unbegun = frozenset(unbegun)
        self._answering: set[asyncio.Task[dict[str, Any]]] = set()

    async def ask(self, request: PersonRequest) -> PersonAnswer:
        """Ask, and return the answer once it is stored."""
        self.unbegun |= {request.id}
        return _ANSWER.validate_python(await self._calls.call("people.ask", asdict(request)))

    async def asked_s(self, request_id: str) -> float | None:
        """Return when a request that waits for its answer was shown; see `connector.protocols.People`."""
        found: float | None = (await self._calls.call("people.asked_s", {"request_id": request_id}))["asked_s"]
        return found

    def answer_by_message(self, request_id: str) -> None:
        """Answer a request that takes text: the agent reads the answer as a message."""
        answering = asyncio.create_task(self._calls.call("people.answer_by_message", {"request_id": request_id}))
        self._answering.add(answering)
        answering.add_done_callback(self._answering.discard)

    async def start(self, request_id: str, digest: str, *, repeatable: bool = False) -> str | None:
        """Record that the subject of a request begins now; see `connector.protocols.People`."""
        self.unbegun -= {request_id}
        arguments = {"request_id": request_id, "digest": digest, "repeatable": repeatable}
        found = await self._calls.call("people.start", arguments)
        return str(found["objection"]) if found.get("objection") is not None else None

    async def sharing(self) -> Sharing:
        """Return the files that the run has shared, and the time of its first message."""
        return _SHARING.validate_python(await self._calls.call("people.sharing", {}))

    async def share(self, share_id: str, files: Sequence[SharedFile], comment: str) -> None:
        """Share files in the thread; see `connector.protocols.People`."""
        arguments = {"share_id": share_id, "files": [asdict(each) for each in files], "comment": comment}
        await self._calls.call("people.share", arguments)
