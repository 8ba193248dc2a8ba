"""The agents' sessions, in this process: one per instance and conversation."""

from __future__ import annotations

import asyncio
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import structlog

from connector import Refused, RunFailed, Steer
from orchestrator_interactive import Injection, InjectionQueueFull, RunFinished
from orchestrator_interactive.interactions.records import Key
from orchestrator_interactive.kernel import AmplifierSession, HookResult, events
from service.config import ConfigError
from service.failures import sentence
from service.plan import mount_plan
from service.preflight import find_problems
from service.sources import LocalSources

if TYPE_CHECKING:
    from collections.abc import Mapping
    from types import TracebackType

    from connector.protocols import ProgressCallback
    from orchestrator_interactive.interactions.stores.base import LogStore
    from service.config import InstanceConfig
    from service.workspaces import Workspaces

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class _Live:
    session: AmplifierSession
    running: bool = False


async def _stopped(session: AmplifierSession, on_progress: ProgressCallback | None) -> str:
    """Tell the end of a run that was stopped before its loop began, as that would."""
    receipts = session.coordinator.get_capability("orchestrator.receipts")
    waiting = sum(receipt.state == "waiting" for receipt in receipts()) if receipts else 0
    if on_progress is not None:
        await on_progress("complete", {"iterations": 0, "status": "cancelled", "waiting": waiting})
    return ""


async def _log_load_failure(_event: str, data: dict[str, Any]) -> HookResult:
    log.error("module.left_out", module=data["module_id"], error=data["error"])
    return HookResult()


class InProcessSessionManager:
    """Runs prompts in sessions that live in this process, for as long as it lives; the store keeps what was said."""

    def __init__(
        self,
        instances: Mapping[str, InstanceConfig],
        default_provider: str,
        workspaces: Workspaces,
        store: LogStore,
    ) -> None:
        self._instances = instances
        self._default_provider = default_provider
        self._workspaces = workspaces
        self._store = store
        self._kept: dict[Key, None] = {}
        self._live: dict[tuple[str, str], _Live] = {}

    async def __aenter__(self) -> Self:
        await self._preflight()
        self._kept = dict.fromkeys(await self._store.keys())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for (instance, conversation), live in self._live.items():
            try:
                await live.session.cleanup()
            except Exception:  # one session may not keep the others from ending
                log.exception("session.cleanup_failed", instance=instance, conversation=conversation)

    @property
    def known(self) -> dict[str, str]:
        """Which instance each conversation goes on with that the store had at the start: the one that wrote last."""
        known: dict[str, str] = {}
        for key in self._kept:
            if key.agent_id in self._instances:
                known.setdefault(key.conversation_id, key.agent_id)
        return known

    async def execute(
        self, instance_name: str, conversation_id: str, prompt: str, on_progress: ProgressCallback | None = None
    ) -> str:
        """Run a prompt in the conversation's session and return the answer.

        Raises:
            RunFailed: there is no answer; the message says why, for the people in the thread.
        """
        key = (instance_name, conversation_id)
        live = self._live.get(key)
        if live is None:
            live = self._live[key] = _Live(self._new_session(Key(conversation_id, instance_name)))
        if live.running:
            raise RunFailed("I am still at work on the message before this one.")
        live.running = True
        try:
            if not await self._is_set_up(key, live.session):
                return await _stopped(live.session, on_progress)
            return await live.session.execute(prompt, on_progress=on_progress)
        except Exception as e:  # the border to the thread: people read a sentence, the log has the rest
            log.exception("run.failed", instance=instance_name, conversation=conversation_id)
            raise RunFailed(sentence(e)) from e
        finally:
            live.running = False
            # A run that ended in its set-up has not taken its stop along.
            live.session.coordinator.cancellation.reset()

    async def _is_set_up(self, key: tuple[str, str], session: AmplifierSession) -> bool:
        """Make a session ready for its run. False: it was stopped before it was."""

        def cut() -> None:
            if not patience.expired():
                patience.reschedule(0)

        try:
            async with asyncio.timeout(None) as patience:
                with session.coordinator.cancellation.watch(cut):
                    await self._workspaces.prepare(key[1])
                    await self._initialize(key, session)
        except TimeoutError:
            if not patience.expired():
                raise
        return not patience.expired()

    async def _initialize(self, key: tuple[str, str], session: AmplifierSession) -> None:
        try:
            await session.initialize()
        except BaseException:
            # Half a session is of no use to the next message.
            del self._live[key]
            await session.cleanup()
            raise

    def inject(self, instance_name: str, conversation_id: str, steer: Steer) -> bool:
        """Hand a steer to the running loop; whether it took it.

        Raises:
            Refused: the queue is full, or the text is blank.
        """
        live = self._live.get((instance_name, conversation_id))
        take = live.session.coordinator.get_capability("orchestrator.inject_message") if live else None
        if take is None:
            return False
        try:
            take(Injection(text=steer.text, id=steer.id, author=steer.author, files=steer.files))
        except RunFinished:
            return False
        except (InjectionQueueFull, ValueError) as e:
            raise Refused(str(e)) from e
        return True

    def stop(self, instance_name: str, conversation_id: str, *, immediate: bool = False) -> bool:
        """Stop the run that is on, in whatever state it is; whether that changed anything."""
        live = self._live.get((instance_name, conversation_id))
        if live is None or not live.running:
            return False
        token = live.session.coordinator.cancellation
        return token.request_immediate() if immediate else token.request_graceful()

    def _new_session(self, key: Key) -> AmplifierSession:
        instance, folder = self._instances[key.agent_id], self._workspaces.folder(key.conversation_id)
        plan = mount_plan(instance, self._default_provider, folder, key)
        session = AmplifierSession(plan, is_resumed=key in self._kept)
        session.coordinator.register_capability("interactions.store", self._store)
        session.coordinator.mount("module-source-resolver", LocalSources())
        session.coordinator.hooks.register(events.MODULE_LOAD_FAILED, _log_load_failure)
        return session

    async def _preflight(self) -> None:
        """Mount every instance once, so that a wrong configuration is told at the start and not in a thread.

        Raises:
            ConfigError: the folders cannot be made; a module is unknown, of the wrong kind, or cannot be mounted.
        """
        await self._workspaces.check()
        for name, instance in self._instances.items():
            with tempfile.TemporaryDirectory() as folder:
                problems = await find_problems(mount_plan(instance, self._default_provider, Path(folder)))
            if problems:
                raise ConfigError(f"instances.{name}: {' '.join(problems)}")
