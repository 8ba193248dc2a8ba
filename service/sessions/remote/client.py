"""Sessions in another process; `GrpcSessionManager` implements `connector.protocols.SessionManager`."""

from __future__ import annotations

import asyncio
from itertools import count
from typing import TYPE_CHECKING, Self, TypeVar

import grpc
import grpc.aio
import structlog

from connector.protocols import NO_TALK, RunFailed
from connector.slack_api.errors import Backoff
from orchestrator_interactive.interactions.records import Key
from orchestrator_interactive.storage.errors import StoreError, StoreUnavailable
from service.sessions.history import LogHistory
from service.sessions.logged_ids import DeliveredIds
from service.sessions.mount_plan import keeps_log
from service.sessions.remote import sessions_pb2 as pb
from service.sessions.remote.credentials import channel_credentials
from service.sessions.remote.remote_run import RemoteRun
from service.sessions.remote.replies import serve_host
from service.sessions.remote.sessions_pb2_grpc import SessionServiceStub
from service.sessions.remote.wire import OPTIONS, Disconnected, error_of, file_of, message, session_of
from service.sessions.user_errors import connector_errors

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
    from pathlib import Path

    from connector.protocols import MessageAuthor, MessageFile, People, ProgressCallback, ThreadTalk
    from orchestrator_interactive.interactions.stores import LogStore
    from service.config.config import InstanceConfig
    from service.config.sessions import SessionsConfig
    from service.sessions.host import SessionHost

log = structlog.get_logger(__name__)

T = TypeVar("T")

_BACKOFF = Backoff(0.1, 2.0, jitter=0.5)
_DELIVERED_WITHIN_S = 10.0
_CLOSED_WITHIN_S = 0.2
_KEPT_WITHIN_S = 120.0
_PART_BYTES = 256 * 1024
_ATTEMPTS = 8
_NOT_LOGGED = "The process of this agent ended, so I lost my work. Send a message to try again."
_CHANNEL_OPTIONS = (*OPTIONS, ("grpc.initial_reconnect_backoff_ms", 100), ("grpc.max_reconnect_backoff_ms", 2_000))


class GrpcSessionManager:
    """Runs prompts in sessions of another process, whose logs are in the same store.

    If that process ends, the run resumes from its log as soon as one is back at the address.

    Args:
        address: host and port.
        credentials: of a channel with TLS; `None`: it is not encrypted.
        store: the log store; the caller closes it.
        host: the functions that sessions may call.
    """

    def __init__(
        self,
        address: str,
        credentials: grpc.ChannelCredentials | None,
        instances: Mapping[str, InstanceConfig],
        store: LogStore,
        host: SessionHost,
    ) -> None:
        self._address = address
        self._credentials = credentials
        self._instances = instances
        self._store = store
        self._host = host
        self.history = LogHistory(store)
        self._delivered_ids = DeliveredIds(store)
        self._runs: dict[Key, RemoteRun] = {}
        self._channel: grpc.aio.Channel
        self._attaching: asyncio.Task[None]
        # Whether the process of the agents answers.
        self.is_attached = False

    async def __aenter__(self) -> Self:
        self._channel = (
            grpc.aio.insecure_channel(self._address, _CHANNEL_OPTIONS)
            if self._credentials is None
            else grpc.aio.secure_channel(self._address, self._credentials, _CHANNEL_OPTIONS)
        )
        self._stub = SessionServiceStub(self._channel)
        self._attaching = asyncio.create_task(self._stay_attached())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._attaching.cancel()
        await asyncio.wait((self._attaching,))
        await self._channel.close(_CLOSED_WITHIN_S)

    async def _stay_attached(self) -> None:
        """Answer the calls of sessions that have no run, and log whether their process is there."""
        failures = 0

        def on_attached() -> None:
            nonlocal failures
            failures = 0
            self.is_attached = True
            log.info("sessions.connected", address=self._address)

        while True:
            try:
                await serve_host(self._host, self._stub.Attach(), on_attached)
            except grpc.aio.AioRpcError as e:
                error = f"{e.code().name}: {e.details()}"
            else:
                error = "the process ends"
            self.is_attached = False
            failures += 1
            if failures == 1:
                log.warning("sessions.unreachable", address=self._address, error=error)
            await asyncio.sleep(_BACKOFF.delay_s(failures))

    def configure(self, instances: Mapping[str, InstanceConfig], _secrets: tuple[str, ...]) -> None:
        """Replace the instances. The other process reads its configuration itself."""
        self._instances = instances

    async def execute(  # noqa: PLR0913 - the parts of a run
        self,
        instance_name: str,
        conversation_id: str,
        prompt: str,
        on_progress: ProgressCallback | None = None,
        *,
        message_id: str | None = None,
        author: MessageAuthor | None = None,
        written_s: float | None = None,
        files: tuple[MessageFile, ...] = (),
        notes: Mapping[str, str] | None = None,
        talk: ThreadTalk = NO_TALK,
        people: People | None = None,
        fence: int | None = None,
    ) -> str:
        """Run a prompt and return the answer; see `SessionManager`."""
        key = Key(conversation_id, instance_name)
        sent = message(prompt, message_id=message_id, author=author, written_s=written_s, files=files, talk=talk)
        request = pb.ExecuteRequest(
            session=session_of(key, fence),
            prompt=sent,
            notes=[pb.Note(id=id_, text=text) for id_, text in (notes or {}).items()],
        )
        return await self._run(key, pb.Start(execute=request), on_progress, people, fence)

    async def resume(
        self,
        instance_name: str,
        conversation_id: str,
        on_progress: ProgressCallback | None = None,
        *,
        people: People | None = None,
        fence: int | None = None,
    ) -> str:
        """Resume a run and return its answer; see `SessionManager`."""
        key = Key(conversation_id, instance_name)
        return await self._run(key, _resumption(key, fence), on_progress, people, fence)

    async def delivered(
        self, instance_name: str, conversation_id: str, ids: Collection[str], *, fence: int | None = None
    ) -> frozenset[str]:
        """Return which of the messages are delivered; see `SessionManager`.

        The log tells; of an agent without a log, the other process, for which this waits.
        """
        key, instance = Key(conversation_id, instance_name), self._instances.get(instance_name)
        if instance is None or keeps_log(instance):
            with connector_errors(key, transient=(StoreError,)):
                if fence is not None:
                    await self._store.fence(key, fence)
                return await self._delivered_ids.of(key, ids)
        request = pb.DeliveredRequest(session=session_of(key, fence), ids=ids)
        failures = 0
        while True:
            try:
                return frozenset((await self._stub.Delivered(request, timeout=_DELIVERED_WITHIN_S)).ids)
            except grpc.aio.AioRpcError as e:
                failures += 1
                if not isinstance(error := error_of(e), Disconnected):
                    raise error from e
            await asyncio.sleep(_BACKOFF.delay_s(failures))

    def inject(  # noqa: PLR0913 - the parts of a message
        self,
        instance_name: str,
        conversation_id: str,
        prompt: str,
        *,
        message_id: str,
        author: MessageAuthor,
        written_s: float,
        files: tuple[MessageFile, ...] = (),
        talk: ThreadTalk = NO_TALK,
    ) -> bool:
        """Inject a message into the active run; see `SessionManager`."""
        run = self._runs.get(Key(conversation_id, instance_name))
        return run is not None and run.inject(
            message(prompt, message_id=message_id, author=author, written_s=written_s, files=files, talk=talk)
        )

    async def keep_file(  # noqa: PLR0913, PLR0917 - the parts of a file
        self, instance_name: str, conversation_id: str, file_id: str, name: str, mimetype: str, content: Path
    ) -> MessageFile:
        """Store and read a file of a message in the other process; see `SessionManager`.

        Raises:
            Disconnected: the process is gone, also after several attempts.
        """
        session = session_of(Key(conversation_id, instance_name), None)

        async def parts() -> AsyncIterator[pb.FilePart]:
            yield pb.FilePart(start=pb.FileStart(session=session, id=file_id, name=name, mimetype=mimetype))
            with content.open("rb") as file:
                while data := await asyncio.to_thread(file.read, _PART_BYTES):
                    yield pb.FilePart(content=data)

        return file_of(await self._insist(lambda: self._stub.KeepFile(parts(), timeout=_KEPT_WITHIN_S)))

    async def drop_files(self, instance_name: str, conversation_id: str, file_ids: Collection[str]) -> None:
        """Remove files in the other process; see `SessionManager`.

        Raises:
            Disconnected: the process is gone, also after several attempts.
        """
        request = pb.DropFilesRequest(session=session_of(Key(conversation_id, instance_name), None), ids=file_ids)
        await self._insist(lambda: self._stub.DropFiles(request, timeout=_DELIVERED_WITHIN_S))

    async def _insist(self, call: Callable[[], Awaitable[T]]) -> T:
        """Call the other process, again if it is gone."""
        for failures in count(1):
            try:
                return await call()
            except grpc.aio.AioRpcError as e:
                error = error_of(e)
                if failures == _ATTEMPTS or not isinstance(error, Disconnected):
                    raise error from e
            await asyncio.sleep(_BACKOFF.delay_s(failures))
        raise AssertionError("endless")

    async def edit(
        self,
        instance_name: str,
        conversation_id: str,
        message_id: str,
        text: str,
        files: tuple[MessageFile, ...] = (),
    ) -> bool:
        """Replace the text of a pending injection; see `SessionManager`."""
        run = self._runs.get(Key(conversation_id, instance_name))
        return run is not None and await run.edit(message_id, text, files)

    async def withdraw(self, instance_name: str, conversation_id: str, message_id: str) -> bool:
        """Withdraw a pending injection; see `SessionManager`."""
        run = self._runs.get(Key(conversation_id, instance_name))
        return run is not None and await run.withdraw(message_id)

    def stop(self, instance_name: str, conversation_id: str, *, immediate: bool = False, agent: str = "") -> bool:
        """Stop the active run, or only its sub-agents of a name. Return whether this changed anything."""
        run = self._runs.get(Key(conversation_id, instance_name))
        return run is not None and run.stop(immediate=immediate, agent=agent)

    def suspend(self, instance_name: str, conversation_id: str) -> bool:
        """Suspend the active run at its next turn boundary. Return whether this changed its state."""
        run = self._runs.get(Key(conversation_id, instance_name))
        return run is not None and run.suspend()

    async def _run(
        self, key: Key, start: pb.Start, on_progress: ProgressCallback | None, people: People | None, fence: int | None
    ) -> str:
        """Run at the other process; whenever that is gone, wait for it and resume."""
        if key in self._runs:
            raise RunFailed("I am still working on the previous message.")
        run = self._runs[key] = RemoteRun(key, on_progress, people, self._host)
        failures = 0
        try:
            while True:
                try:
                    return await run.go(self._stub.ExecuteStream, start)
                except Disconnected as e:
                    failures = 1 if run.has_answered else failures + 1
                    log.warning("sessions.disconnected", address=self._address, error=str(e), attempt=failures)
                if failures == 1:
                    await run.report("disconnected", {})
                if await run.is_suspended(_BACKOFF.delay_s(failures)):
                    return ""
                start = await self._next(key, start, run, fence)
        finally:
            del self._runs[key]

    async def _next(self, key: Key, start: pb.Start, run: RemoteRun, fence: int | None) -> pb.Start:
        """Return how the run begins again, by the ids in the log.

        Raises:
            RunFailed: the log does not have the run.
            LeaseLost: another process owns the conversation.
        """
        prompt = start.execute.prompt.id
        notes = {each.id: each for each in start.execute.notes}
        if start.WhichOneof("kind") == "execute" and not prompt:
            raise RunFailed(_NOT_LOGGED)
        try:
            read = await self.delivered(
                key.agent_id, key.conversation_id, {prompt, *notes, *run.pending} - {""}, fence=fence
            )
        except StoreUnavailable:  # it is asked again
            return start
        await run.note_delivered(read)
        if start.WhichOneof("kind") == "resume" or prompt in read:
            return _resumption(key, fence)
        left = [each for each in notes.values() if each.id not in read]
        return pb.Start(
            execute=pb.ExecuteRequest(session=start.execute.session, prompt=start.execute.prompt, notes=left)
        )


def _resumption(key: Key, fence: int | None) -> pb.Start:
    return pb.Start(resume=pb.ResumeRequest(session=session_of(key, fence)))


def connected_sessions(
    config: SessionsConfig, instances: Mapping[str, InstanceConfig], store: LogStore, host: SessionHost
) -> GrpcSessionManager:
    """Create the manager of the sessions at the address of a configuration.

    Raises:
        ConfigError: a certificate cannot be used.
    """
    return GrpcSessionManager(config.target, channel_credentials(config), instances, store, host)
