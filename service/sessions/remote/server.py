"""The service `SessionService`: runs the sessions of this process for connectors in other ones."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc
import structlog

from connector.protocols import LeaseLost, QueueFull, Refused, RunFailed
from orchestrator_interactive.storage.errors import StoreError, StoreUnavailable
from service.sessions.remote import sessions_pb2 as pb
from service.sessions.remote.calls import ConnectorCalls, RemotePeople
from service.sessions.remote.sessions_pb2_grpc import SessionServiceServicer
from service.sessions.remote.wire import arguments_of, fence_of, file_of, key_of, sent_file, status_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Collection, Coroutine, Mapping

    from orchestrator_interactive.interactions.records import Key
    from service.sessions.manager import InProcessSessionManager

log = structlog.get_logger(__name__)

_LEAVING = "This process ends; the run resumes at another one, or once it is back."
_NO_CONNECTOR = "No connector is connected, so that the service cannot be asked."
_EMPTY = "The first input must be `start`, with `execute` or `resume`."
_AT_WORK = "I am still working on the previous message."
_OTHER_OWNER = "Another process owns the conversation {}."


class RemoteHost:
    """The functions of the connectors, for the sessions of this process; implements `SessionHost`.

    A session calls them over the stream of its run; without a run, over that of any connector.

    Attributes:
        attached: the calls of connectors, and the queues of their events; `None` ends one.
    """

    def __init__(self) -> None:
        self.names: Collection[str] = ()
        self.streams: dict[Key, _Stream] = {}
        self.attached: dict[ConnectorCalls, asyncio.Queue[pb.ExecutionEvent | None]] = {}

    async def call(self, key: Key, name: str, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Call a function; see the protocol."""
        stream = self.streams.get(key)
        calls = next(reversed(self.attached), None) if stream is None else stream.calls
        if calls is None:
            raise StoreUnavailable(_NO_CONNECTOR)
        return await calls.call(name, {"key": [key.conversation_id, key.agent_id], "arguments": arguments})


class _Stream:
    """One stream: a run, its inputs from the connector, and its events."""

    def __init__(self, key: Key, fence: int | None) -> None:
        self.key = key
        self.fence = fence
        # `None`: the last event is before it.
        self.events: asyncio.Queue[pb.ExecutionEvent | None] = asyncio.Queue()
        self.calls = ConnectorCalls(self.events.put_nowait)
        self.task: asyncio.Task[str] | None = None
        self._is_asked_to_suspend = False
        # The run was suspended, and its connector did not ask for that.
        self.is_interrupted = False

    async def progress(self, event: str, data: dict[str, Any]) -> None:
        """Report progress, but not that this process suspends the run: for the connector, it continues."""
        if event == "complete" and data.get("status") == "suspended" and not self._is_asked_to_suspend:
            self.is_interrupted = True
        else:
            await self.calls.progress(event, data)

    async def on_input(self, sent: pb.ExecuteInput, sessions: InProcessSessionManager) -> None:
        """Apply an input to the run; those with a number get a receipt."""
        where, outcome, reason = (self.key.agent_id, self.key.conversation_id), pb.Receipt.TOO_LATE, ""
        try:
            is_accepted = False
            match sent.WhichOneof("kind"):
                case "inject":
                    is_accepted = sessions.inject(*where, sent.inject.text, **arguments_of(sent.inject))
                case "edit":
                    is_accepted = await sessions.edit(
                        *where, sent.edit.id, sent.edit.text, tuple(map(file_of, sent.edit.files))
                    )
                case "withdraw":
                    is_accepted = await sessions.withdraw(*where, sent.withdraw)
                case "stop":
                    sessions.stop(*where, immediate=sent.stop.immediate, agent=sent.stop.agent)
                case "suspend":
                    self._is_asked_to_suspend = True
                    sessions.suspend(*where)
                case "reply":
                    self.calls.on_reply(sent.reply)
            outcome = pb.Receipt.ACCEPTED if is_accepted else pb.Receipt.TOO_LATE
        except QueueFull:
            outcome = pb.Receipt.FULL
        except Refused as e:
            outcome, reason = pb.Receipt.REFUSED, str(e)
        if sent.number:
            receipt = pb.Receipt(number=sent.number, outcome=outcome, reason=reason)
            self.events.put_nowait(pb.ExecutionEvent(receipt=receipt))


class SessionServer(SessionServiceServicer):
    """The sessions of this process, as a gRPC service.

    Args:
        sessions: runs the agents; its `host` is the given one.
    """

    def __init__(self, sessions: InProcessSessionManager, host: RemoteHost) -> None:
        self._sessions = sessions
        self._host = host
        self._runs: dict[Key, _Stream] = {}
        self._is_leaving = False

    async def leave(self, within_s: float) -> None:
        """Accept no more runs, and suspend the active ones. After this time, in seconds, cancel them."""
        self._is_leaving = True
        running = [stream.task for stream in self._runs.values() if stream.task is not None]
        for stream in self._runs.values():
            self._sessions.suspend(stream.key.agent_id, stream.key.conversation_id)
        if running:
            _, late = await asyncio.wait(running, timeout=within_s)
            for task in late:
                task.cancel()
        for events in self._host.attached.values():
            events.put_nowait(None)

    async def Execute(self, request: pb.ExecuteRequest, context: Any) -> pb.RunResult:  # noqa: N802 - the protocol's name
        """Run a prompt to its end."""
        return await self._run_alone(pb.Start(execute=request), request.session, context)

    async def Resume(self, request: pb.ResumeRequest, context: Any) -> pb.RunResult:  # noqa: N802
        """Resume a run to its end."""
        return await self._run_alone(pb.Start(resume=request), request.session, context)

    async def Delivered(self, request: pb.DeliveredRequest, context: Any) -> pb.DeliveredResponse:  # noqa: N802
        """Return the delivered ones of the messages."""
        key = await self._key(request.session, context)
        try:
            found = await self._sessions.delivered(
                key.agent_id, key.conversation_id, request.ids, fence=fence_of(request.session)
            )
        except (RunFailed, LeaseLost) as e:
            await context.abort(*status_of(e))
        except StoreError as e:
            await context.abort(grpc.StatusCode.UNAVAILABLE, str(e))
        return pb.DeliveredResponse(ids=sorted(found))

    async def KeepFile(self, parts: AsyncIterator[pb.FilePart], context: Any) -> pb.File:  # noqa: N802
        """Store a file of a message, and read it."""
        start = (await anext(parts, pb.FilePart())).start
        key = await self._key(start.session, context)
        with tempfile.TemporaryDirectory(prefix="slack-file-") as folder:
            content = Path(folder) / "content"
            with content.open("wb") as file:
                async for part in parts:
                    await asyncio.to_thread(file.write, part.content)
            where = (key.agent_id, key.conversation_id)
            return sent_file(await self._sessions.keep_file(*where, start.id, start.name, start.mimetype, content))

    async def DropFiles(self, request: pb.DropFilesRequest, context: Any) -> pb.DropFilesResponse:  # noqa: N802
        """Remove files of messages."""
        key = await self._key(request.session, context)
        await self._sessions.drop_files(key.agent_id, key.conversation_id, request.ids)
        return pb.DropFilesResponse()

    async def ExecuteStream(  # noqa: N802
        self, inputs: AsyncIterator[pb.ExecuteInput], context: Any
    ) -> AsyncIterator[pb.ExecutionEvent]:
        """Run or resume while applying the inputs; suspend the run if the stream breaks."""
        start = (await anext(inputs, pb.ExecuteInput())).start
        kind = start.WhichOneof("kind")
        if kind is None:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, _EMPTY)
        session = start.execute.session if kind == "execute" else start.resume.session
        stream = await self._begin(start, session, context)
        self._host.names = tuple(start.functions)
        self._host.streams[stream.key] = stream
        reading = asyncio.create_task(self._read(stream, inputs))
        try:
            while (event := await stream.events.get()) is not None:
                yield event
            yield pb.ExecutionEvent(answer=await self._answer(stream, context))
        finally:
            if self._host.streams.get(stream.key) is stream:
                del self._host.streams[stream.key]
            reading.cancel()
            stream.calls.close()
            self._give_up(stream)
            await asyncio.wait((reading,))

    async def Attach(  # noqa: N802
        self, inputs: AsyncIterator[pb.ExecuteInput], _context: Any
    ) -> AsyncIterator[pb.ExecutionEvent]:
        """Call the functions of a connector for sessions without a run, until its stream ends."""
        events: asyncio.Queue[pb.ExecutionEvent | None] = asyncio.Queue()
        calls = ConnectorCalls(events.put_nowait)
        self._host.names = tuple((await anext(inputs, pb.ExecuteInput())).start.functions)
        self._host.attached[calls] = events
        reading = asyncio.create_task(_read_replies(calls, inputs))
        try:
            yield pb.ExecutionEvent()
            while (event := await events.get()) is not None:
                yield event
        finally:
            del self._host.attached[calls]
            reading.cancel()
            calls.close()
            await asyncio.wait((reading,))

    async def _run_alone(self, start: pb.Start, session: pb.Session, context: Any) -> pb.RunResult:
        stream = await self._begin(start, session, context, is_alone=True)
        assert stream.task is not None  # noqa: S101 - it has begun
        try:
            await asyncio.wait((stream.task,))
            return pb.RunResult(answer=await self._answer(stream, context))
        finally:
            self._give_up(stream)

    def _give_up(self, stream: _Stream) -> None:
        """Suspend the run of a stream that has ended, so that running tools may finish before the next owner comes."""
        if stream.task is None or stream.task.done():
            return
        if not self._sessions.suspend(stream.key.agent_id, stream.key.conversation_id):
            stream.task.cancel()

    async def _begin(self, start: pb.Start, session: pb.Session, context: Any, *, is_alone: bool = False) -> _Stream:
        """Begin the run of a stream, after the one that it replaces has ended."""
        stream = _Stream(await self._key(session, context), fence_of(session))
        while (older := self._runs.get(stream.key)) is not None and older.task is not None:
            if stream.fence is None:
                await context.abort(*status_of(RunFailed(_AT_WORK)))
            elif (older.fence or 0) > stream.fence:
                await context.abort(*status_of(LeaseLost(_OTHER_OWNER.format(stream.key.conversation_id))))
            log.info("run.replaced", conversation=stream.key.conversation_id)
            older.task.cancel()
            await asyncio.wait((older.task,))
        if self._is_leaving:
            await context.abort(grpc.StatusCode.UNAVAILABLE, _LEAVING)
        self._runs[stream.key] = stream
        task = stream.task = asyncio.create_task(self._run(stream, start, is_alone=is_alone))
        task.add_done_callback(lambda _: self._on_end(stream))
        return stream

    def _on_end(self, stream: _Stream) -> None:
        del self._runs[stream.key]
        stream.events.put_nowait(None)

    def _run(self, stream: _Stream, start: pb.Start, *, is_alone: bool) -> Coroutine[Any, Any, str]:
        where, on_progress = (stream.key.agent_id, stream.key.conversation_id), stream.progress
        people = RemotePeople(stream.calls, start.owner, start.unbegun) if start.HasField("owner") else None
        if start.WhichOneof("kind") == "resume":
            return self._sessions.resume(*where, None if is_alone else on_progress, people=people, fence=stream.fence)
        prompt = start.execute.prompt
        return self._sessions.execute(
            *where,
            prompt.text,
            None if is_alone else on_progress,
            **arguments_of(prompt),
            notes={each.id: each.text for each in start.execute.notes},
            people=people,
            fence=stream.fence,
        )

    async def _read(self, stream: _Stream, inputs: AsyncIterator[pb.ExecuteInput]) -> None:
        with suppress(grpc.RpcError):  # the stream is broken, which ends its handler
            async for sent in inputs:
                await stream.on_input(sent, self._sessions)

    async def _answer(self, stream: _Stream, context: Any) -> str:
        """Return the answer of a run that has ended; else end the call with its error."""
        assert stream.task is not None  # noqa: S101 - it has begun
        try:
            answer = await stream.task
        except (RunFailed, LeaseLost) as e:
            await context.abort(*status_of(e))
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            await context.abort(grpc.StatusCode.UNAVAILABLE, _LEAVING)
        if stream.is_interrupted:
            await context.abort(grpc.StatusCode.UNAVAILABLE, _LEAVING)
        return answer

    async def _key(self, session: pb.Session, context: Any) -> Key:
        try:
            return key_of(session)
        except ValueError as e:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(e))
            raise


async def _read_replies(calls: ConnectorCalls, inputs: AsyncIterator[pb.ExecuteInput]) -> None:
    with suppress(grpc.RpcError):  # the stream is broken, which ends its handler
        async for sent in inputs:
            calls.on_reply(sent.reply)
