"""The agents' sessions, in this process: one per instance and conversation."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import structlog

from connector.protocols import LeaseLost, QueueFull, Refused, RunFailed, SteeringMessage
from orchestrator_interactive import Injection, InjectionQueueFull, RunFinished
from orchestrator_interactive.interactions.errors import DamagedLog, Fenced
from orchestrator_interactive.interactions.records import Key
from orchestrator_interactive.kernel import AmplifierSession, HookResult
from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.storage.errors import StoreError
from orchestrator_interactive.transcript import framing
from orchestrator_interactive.transcript.rows import delivered_in
from service.config.config import ConfigError
from service.logging import hide_known, hide_secrets
from service.sessions.delivered_ids import DeliveredIds
from service.sessions.module_sources import LocalSources
from service.sessions.mount_plan import keeps_log, mount_plan
from service.sessions.preflight import find_problems
from service.sessions.run import SessionRun
from service.sessions.session_pool import SessionPool
from service.sessions.user_errors import Interrupted, sentence

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Coroutine, Mapping
    from types import TracebackType

    from connector.protocols import MessageAuthor, ProgressCallback
    from orchestrator_interactive.interactions.stores.base import LogStore
    from service.config.config import InstanceConfig
    from service.sessions.workspaces import Workspaces

log = structlog.get_logger(__name__)

_IDLE_EVICT_S = 900.0


class InProcessSessionManager:
    """Runs prompts in sessions that live in this process; the store keeps what was said.

    Args:
        store: of the conversations' logs; it is not closed here.
        idle_evict_s: how long a session stays in memory when nothing runs in it.
        secrets: texts that are hidden from models and from people.
        anthropic_api_key: for each provider of Anthropic's that has none of its own.
    """

    def __init__(  # noqa: PLR0913 - the last three have defaults
        self,
        instances: Mapping[str, InstanceConfig],
        default_provider: str,
        workspaces: Workspaces,
        store: LogStore,
        idle_evict_s: float = _IDLE_EVICT_S,
        *,
        secrets: tuple[str, ...] = (),
        anthropic_api_key: str = "",
    ) -> None:
        self._secrets = secrets
        self._anthropic_api_key = anthropic_api_key
        self._instances = instances
        self._default_provider = default_provider
        self._workspaces = workspaces
        self._store = store
        self._deliveries = DeliveredIds(store)
        self._live = SessionPool(self._new_session, idle_evict_s)
        self._runs: dict[Key, SessionRun] = {}

    async def __aenter__(self) -> Self:
        await self._preflight()
        await self._live.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._live.__aexit__(kind, error, trace)

    async def execute(  # noqa: PLR0913 - what a run consists of
        self,
        instance_name: str,
        conversation_id: str,
        prompt: str,
        on_progress: ProgressCallback | None = None,
        *,
        message_id: str | None = None,
        author: MessageAuthor | None = None,
        files: tuple[str, ...] = (),
        fence: int | None = None,
    ) -> str:
        """Run a prompt in the conversation's session and return the answer.

        Raises:
            RunFailed: there is no answer; the message says why, for the people in the thread.
            CancelledError: the caller was cancelled. The run was suspended then: `resume` goes on with it.
            LeaseLost: somebody with a higher fence has been at the conversation's log.
        """
        if author is not None:  # a foreign loop takes no author, so the prompt names theirs
            prompt = framing.message_text(prompt, _author(author), files)

        async def work(session: AmplifierSession) -> str:
            return await session.execute(prompt, message_id=message_id, on_progress=on_progress)

        return await self._run(Key(conversation_id, instance_name), fence, SessionRun(), work, on_progress)

    async def resume(
        self,
        instance_name: str,
        conversation_id: str,
        on_progress: ProgressCallback | None = None,
        *,
        fence: int | None = None,
    ) -> str:
        """Go on with the run that the conversation's log shows, and return its answer.

        Raises:
            RunFailed: as in `execute`; besides, nothing is left of what was said.
            CancelledError, LeaseLost: as in `execute`.
        """

        async def work(session: AmplifierSession) -> str:
            can_resume = hasattr(session.coordinator.get("orchestrator"), "resume")
            if not can_resume or not await _rows(session):
                raise Interrupted
            return await session.resume(on_progress=on_progress)

        run = SessionRun(is_resumed=True)
        return await self._run(Key(conversation_id, instance_name), fence, run, work, on_progress)

    async def delivered(
        self, instance_name: str, conversation_id: str, ids: Collection[str], *, fence: int | None = None
    ) -> frozenset[str]:
        """Those of the messages that the conversation's log has in a row. No session is set up for that.

        Raises:
            RunFailed: the log is damaged, or the context keeps none and has forgotten: that lasts.
            StoreError: the log cannot be read now.
            LeaseLost: as in `execute`.
        """
        key = Key(conversation_id, instance_name)
        try:
            if keeps_log(self._instances[instance_name]):
                if fence is not None:
                    await self._store.fence(key, fence)
                return await self._deliveries.of(key, ids)
            rows = await _rows(self._here(key))
        except Exception as e:  # the border to the thread
            if isinstance(e, StoreError) and not isinstance(e, DamagedLog):
                raise
            raise _told(e, key) from e
        return frozenset(ids).intersection(each for row in rows for each in delivered_in(row))

    def _here(self, key: Key) -> AmplifierSession:
        """The session of a conversation that is in memory.

        Raises:
            Interrupted: there is none, and its context keeps no log.
        """
        run = self._runs.get(key)
        session = (run.session if run else None) or self._live.resting(key)
        if session is None:
            raise Interrupted
        return session

    def inject(self, instance_name: str, conversation_id: str, steer: SteeringMessage) -> bool:
        """Hand a steer to the running loop; whether it took it.

        Raises:
            QueueFull: it has enough to read for now.
            Refused: the text is blank.
        """
        take = self._door(instance_name, conversation_id, "orchestrator.inject_message")
        if take is None:
            return False
        try:
            take(Injection(steer.text, steer.id, _author(steer.author), steer.files, order=steer.written_s))
        except RunFinished:
            return False
        except InjectionQueueFull as e:
            raise QueueFull from e
        except ValueError as e:
            raise Refused(str(e)) from e
        return True

    def edit(self, instance_name: str, conversation_id: str, message_id: str, text: str) -> bool:
        """Replace the text of a steer that waits in the running loop; whether it did.

        Raises:
            Refused: the text is blank.
        """
        edit = self._door(instance_name, conversation_id, "orchestrator.edit_message")
        try:
            return bool(edit(message_id, text)) if edit else False
        except ValueError as e:
            raise Refused(str(e)) from e

    def withdraw(self, instance_name: str, conversation_id: str, message_id: str) -> bool:
        """Take back a steer that waits in the running loop; whether it did."""
        withdraw = self._door(instance_name, conversation_id, "orchestrator.withdraw_message")
        return bool(withdraw(message_id)) if withdraw else False

    def stop(self, instance_name: str, conversation_id: str, *, immediate: bool = False) -> bool:
        """Stop the run that is on, in whatever state it is; whether that changed anything."""
        run = self._runs.get(Key(conversation_id, instance_name))
        return run.stop(immediate=immediate) if run else False

    def suspend(self, instance_name: str, conversation_id: str) -> bool:
        """Have the run that is on end at its next boundary; whether that changed anything."""
        run = self._runs.get(Key(conversation_id, instance_name))
        return run.suspend() if run else False

    def _door(self, instance_name: str, conversation_id: str, capability: str) -> Any:
        run = self._runs.get(Key(conversation_id, instance_name))
        return run.door(capability) if run else None

    async def _run(
        self,
        key: Key,
        fence: int | None,
        run: SessionRun,
        work: Callable[[AmplifierSession], Coroutine[Any, Any, str]],
        on_progress: ProgressCallback | None,
    ) -> str:
        if key in self._runs:
            raise RunFailed("I am still at work on the message before this one.")
        self._runs[key] = run
        try:
            session = await run.unless_cut(lambda: self._set_up(key, fence))
            if session is None:
                return await run.tell_cut(on_progress)
            try:
                if run.is_cut:
                    return await run.tell_cut(on_progress)
                with run.on(session):
                    return await run.whole(await run.to_its_end(work(session)))
            finally:
                await self._live.give_back(key, session)
        except Exception as e:  # the border to the thread: people read a sentence, the log has the rest
            raise _told(e, key) from e
        finally:
            del self._runs[key]

    async def _set_up(self, key: Key, fence: int | None) -> AmplifierSession:
        await self._workspaces.prepare(key.conversation_id)
        return await self._live.take(key, fence)

    async def _new_session(self, key: Key) -> AmplifierSession:
        instance, folder = self._instances[key.agent_id], self._workspaces.folder(key.conversation_id)
        plan = self._plan(instance, folder, key)
        session = AmplifierSession(plan, is_resumed=await self._store.load(key) is not None)
        session.coordinator.register_capability("interactions.store", self._store)
        session.coordinator.register_capability("secrets.filter", self._without_secrets)
        session.coordinator.mount("module-source-resolver", LocalSources())
        session.coordinator.hooks.register(events.MODULE_LOAD_FAILED, _log_load_failure)
        return session

    def _plan(self, instance: InstanceConfig, folder: Path, key: Key | None = None) -> dict[str, Any]:
        limits = self._workspaces.limits
        return mount_plan(
            instance, self._default_provider, folder, key, limits, anthropic_api_key=self._anthropic_api_key
        )

    def _without_secrets(self, text: str, *, known_only: bool = False) -> str:
        return (hide_known if known_only else hide_secrets)(text, self._secrets)

    async def _preflight(self) -> None:
        """Mount every instance once, so that a wrong configuration is told at the start and not in a thread.

        Raises:
            ConfigError: the folders cannot be made; a module is unknown, of the wrong kind, or cannot be mounted.
        """
        await self._workspaces.check()
        for name, instance in self._instances.items():
            with tempfile.TemporaryDirectory() as folder:
                problems = await find_problems(self._plan(instance, Path(folder)))
            if problems:
                raise ConfigError(f"instances.{name}: {' '.join(problems)}")


def _author(author: MessageAuthor) -> framing.Author:
    return framing.Author(author.id, author.name)


async def _rows(session: AmplifierSession) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = await session.coordinator.get("context").get_messages()
    return rows


async def _log_load_failure(_event: str, data: dict[str, Any]) -> HookResult:
    log.error("module.left_out", module=data["module_id"], error=data["error"])
    return HookResult()


def _told(error: Exception, key: Key) -> RunFailed | LeaseLost:
    """What the connector is to hear of an error."""
    place = {"instance": key.agent_id, "conversation": key.conversation_id}
    if _is_fenced(error):
        log.warning("run.fenced", **place)
        return LeaseLost(f"Another process owns the conversation {key.conversation_id}.")
    log.error("run.failed", **place, exc_info=error)
    return RunFailed(sentence(error))


def _is_fenced(error: BaseException | None) -> bool:
    """Whether it comes from there being another owner, whatever was made of that on its way."""
    while error is not None:
        if isinstance(error, Fenced | LeaseLost):
            return True
        error = error.__cause__ or error.__context__
    return False
