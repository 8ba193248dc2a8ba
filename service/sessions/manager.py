"""Agent sessions in this process: one per instance and conversation."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
from functools import partial
from typing import TYPE_CHECKING, Any, Self

import structlog

from connector.protocols import NO_TALK, MessageFile, QueueFull, Refused, RunFailed
from orchestrator_interactive import Injection, InjectionQueueFull, RunFinished, Talk
from orchestrator_interactive.delegation.child_sessions import CHILDREN, ChildSessions, child_config
from orchestrator_interactive.interactions.records import Key
from orchestrator_interactive.kernel import AmplifierSession, HookResult
from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.tool_support import CALLERS, current_call
from orchestrator_interactive.loop.resume import logged_run
from orchestrator_interactive.storage.errors import StoreError
from orchestrator_interactive.transcript import framing
from orchestrator_interactive.transcript.rows import delivered_ids_in
from service.config.config import AGENT_PARTS
from service.logging import hide_known, hide_secrets
from service.sessions.attachments import drop, image_block, keep, place_of
from service.sessions.foreign_loop import execute
from service.sessions.history import LogHistory
from service.sessions.host import DISPATCH, MODEL, NOTIFY, OVERLAY
from service.sessions.logged_ids import DeliveredIds, logged_texts, texts_in
from service.sessions.mount_plan import NO_KEYS, keeps_log, mount_plan, new_session
from service.sessions.people import SessionPeople
from service.sessions.run import SessionRun
from service.sessions.session_pool import SessionPool, log_of
from service.sessions.user_errors import Interrupted, connector_errors
from service.store.base import thread_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Coroutine, Mapping, Sequence
    from contextlib import AbstractContextManager
    from pathlib import Path

    from connector.protocols import MessageAuthor, People, ProgressCallback, ThreadTalk
    from orchestrator_interactive.interactions.stores import LogStore
    from service.config.config import InstanceConfig
    from service.observe.sessions import SessionObserver
    from service.sessions.host import SessionHost
    from service.sessions.people import AlwaysRules
    from service.sessions.workspaces import Workspaces

    Work = Callable[[], Coroutine[Any, Any, str]]

log = structlog.get_logger(__name__)

_IDLE_EVICT_S = 900.0
# The capability of a session that is the configuration of its instance.
_INSTANCE = "service.instance"
_NO_ROOM = "there is no room for files here. The operator of this bot finds the reason in its log."
# Images of one message that the model sees; each costs about 1,600 tokens in every request.
_MOST_IMAGES = 8


class InProcessSessionManager:
    """Runs prompts in sessions in this process; conversation logs are kept in the store.

    Args:
        store: the log store; the caller closes it.
        idle_evict_s: time that an idle session stays in memory.
        secrets: texts to hide from models and users.
        provider_keys: as in `mount_plan`.
        observe: follows the model and tool calls of every session.
        host: the functions that sessions may call, such as `service.notify`; `None`: none.
        rules: the rules that people made by “Always allow”; `None`: sessions cannot ask people.
    """

    def __init__(  # noqa: PLR0913 - the last four have defaults
        self,
        instances: Mapping[str, InstanceConfig],
        default_provider: str,
        workspaces: Workspaces,
        store: LogStore,
        idle_evict_s: float = _IDLE_EVICT_S,
        *,
        secrets: tuple[str, ...] = (),
        provider_keys: Mapping[str, str] = NO_KEYS,
        host: SessionHost | None = None,
        observe: SessionObserver | None = None,
        rules: AlwaysRules | None = None,
    ) -> None:
        self._host = host
        self._observe = observe
        self._rules = rules
        self._noting: set[asyncio.Task[Mapping[str, Any]]] = set()
        self._secrets = secrets
        self._provider_keys = provider_keys
        self._instances = instances
        self._default_provider = default_provider
        self._workspaces = workspaces
        self._store = store
        self.history = LogHistory(store)
        self._delivered_ids = DeliveredIds(store)
        self._pool = SessionPool(self._new_session, idle_evict_s, self._is_current)
        self._runs: dict[Key, SessionRun] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._pool.aclose()

    def configure(self, instances: Mapping[str, InstanceConfig], secrets: tuple[str, ...]) -> None:
        """Replace the instances, and the secrets to hide.

        Active runs keep their sessions, and so does a conversation whose context keeps no log; every other
        conversation gets a new session with its next run.
        """
        self._instances = instances
        self._secrets = secrets
        self._pool.evict_outdated()

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
        """Run a prompt in the conversation's session and return the answer.

        Raises:
            RunFailed: there is no answer; the message is the reason, for users.
            CancelledError: the caller was cancelled. The run is suspended and can be continued with `resume`.
            LeaseLost: a process with a higher fencing token has written to the conversation's log.
        """
        key, prompt = Key(conversation_id, instance_name), with_files(prompt, files)
        if author is not None:  # a foreign loop has no author parameter, so the prompt contains the author
            prompt = framing.message_text(prompt, _author(author), [each.name for each in files])

        async def prepare(session: AmplifierSession, progress: ProgressCallback | None) -> Work:
            author_id = None if author is None else author.id
            images = (
                await asyncio.to_thread(self._images, conversation_id, author_id, files)
                if any(each.image for each in files)
                else ()
            )
            options = {"author": author_id, "images": images, **await self._chosen_model(key, session)}
            given = (prompt, message_id, progress, written_s, notes, _talk(talk), options)
            return partial(execute, session, *given)

        return await self._run(key, fence, SessionRun(people), prepare, on_progress)

    async def resume(
        self,
        instance_name: str,
        conversation_id: str,
        on_progress: ProgressCallback | None = None,
        *,
        people: People | None = None,
        fence: int | None = None,
    ) -> str:
        """Continue the run recorded in the conversation's log, and return its answer.

        Raises:
            RunFailed: as in `execute`, or the log is empty or the loop cannot resume.
            CancelledError, LeaseLost: as in `execute`.
        """

        async def prepare(session: AmplifierSession, progress: ProgressCallback | None) -> Work:
            can_resume = hasattr(session.coordinator.get("orchestrator"), "resume")
            run_end = session.coordinator.get_capability("context.run_end")
            has_failed = run_end is not None and await run_end() == "error"
            rows = await _rows(session)
            if has_failed and rows and progress is not None:  # the error's notice was lost; it names these calls
                tools = (session.coordinator.get("tools") or {}).values()
                ends = logged_run(rows).ends({each.name: each for each in tools})
                await progress("complete", {"status": "error", "tools": [each.to_event() for each in ends]})
            if not can_resume or not rows or has_failed:
                raise Interrupted
            return partial(session.resume, on_progress=progress, **await self._chosen_model(key, session))

        key, run = Key(conversation_id, instance_name), SessionRun(people, is_resumed=True)
        return await self._run(key, fence, run, prepare, on_progress)

    async def delivered(
        self, instance_name: str, conversation_id: str, ids: Collection[str], *, fence: int | None = None
    ) -> frozenset[str]:
        """Return those of the message ids that are in a committed row of the conversation's log.

        Does not create a session.

        Raises:
            RunFailed: the log is damaged, or the context keeps no log and its session is gone. Permanent.
            StoreError: the log cannot be read now.
            LeaseLost: as in `execute`.
        """
        key = Key(conversation_id, instance_name)
        with connector_errors(key, transient=(StoreError,)):
            run, instance = self._runs.get(key), self._instances.get(instance_name)
            session = (run.session if run else None) or self._pool.idle(key)
            # The configuration may have changed since the session was created.
            if log_of(session) is not None if session else instance is None or keeps_log(instance):
                if fence is not None:
                    await self._store.fence(key, fence)
                return await self._delivered_ids.of(key, ids)
            if session is None:
                raise Interrupted
            rows = await _rows(session)
        return frozenset(ids).intersection(each for row in rows for each in delivered_ids_in(row))

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
        """Inject a message into the running loop. Return False if there is no loop that accepts it.

        Raises:
            QueueFull: the loop's injection queue is full.
            Refused: the text is blank.
        """
        offer = self._capability(instance_name, conversation_id, "orchestrator.inject_message")
        if offer is None:
            return False
        children: ChildSessions | None = self._capability(instance_name, conversation_id, CHILDREN)
        try:
            names, images = tuple(each.name for each in files), self._images(conversation_id, author.id, files)
            text = with_files(prompt, files)
            injection = Injection(text, message_id, _author(author), names, written_s, _talk(talk), images)
            if children is None or not children.inject(injection):
                offer(injection)
        except RunFinished:
            return False
        except InjectionQueueFull as e:
            raise QueueFull from e
        except ValueError as e:
            raise Refused(str(e)) from e
        return True

    async def keep_file(  # noqa: PLR0913, PLR0917 - the parts of a file
        self, instance_name: str, conversation_id: str, file_id: str, name: str, mimetype: str, content: Path
    ) -> MessageFile:
        """Store a file of a message in the workspace of its conversation, and read it for the model.

        Raises:
            RunFailed: the instance is no longer configured.
        """
        self._instance(instance_name)
        try:
            await self._workspaces.prepare(conversation_id)
        except OSError as e:
            log.warning("file.no_workspace", conversation=conversation_id, error=str(e))
            return MessageFile(name, f"The file {name} cannot be stored: {_NO_ROOM}", problem=_NO_ROOM)
        folder, limits = self._workspaces.folder(conversation_id), self._workspaces.limits
        return await keep(folder, file_id, name, content, declared=mimetype, limits=limits)

    async def drop_files(self, instance_name: str, conversation_id: str, file_ids: Collection[str]) -> None:  # noqa: ARG002
        """Remove stored files of messages from the workspace of their conversation, except those that an agent knows.

        Raises:
            StoreError: a log cannot be read now; nothing is removed.
        """
        folder, places = self._workspaces.folder(conversation_id), {place_of(each): each for each in file_ids}
        for name in self._instances:
            for known in await self._named_in(Key(conversation_id, name), places):
                del places[known]
        for each in places.values():
            await drop(folder, each)

    async def _named_in(self, key: Key, texts: Collection[str]) -> frozenset[str]:
        """Return those of the texts that messages in a conversation have."""
        run = self._runs.get(key)
        session = (run.session if run else None) or self._pool.idle(key)
        if session is None or log_of(session) is not None:
            return await logged_texts(self._store, key, texts)
        return texts_in(await _rows(session), texts)

    def _images(self, conversation_id: str, author_id: str | None, files: Sequence[MessageFile]) -> tuple[Any, ...]:
        """Return the images of a message as blocks; a person's are erased with the person's messages."""
        folder, shown = self._workspaces.folder(conversation_id), [each for each in files if each.image][:_MOST_IMAGES]
        blocks = [block for each in shown if (block := image_block(folder, each)) is not None]
        return tuple(blocks if author_id is None else [{**each, "by": author_id} for each in blocks])

    async def edit(
        self,
        instance_name: str,
        conversation_id: str,
        message_id: str,
        text: str,
        files: tuple[MessageFile, ...] = (),
    ) -> bool:
        """Replace the text of a pending injection in the running loop. Return whether it was pending.

        Raises:
            Refused: the text is blank.
        """
        edit, children = (
            self._capability(instance_name, conversation_id, each) for each in ("orchestrator.edit_message", CHILDREN)
        )
        try:
            text = with_files(text, files)
            return bool((edit and edit(message_id, text)) or (children and children.edit(message_id, text)))
        except ValueError as e:
            raise Refused(str(e)) from e

    async def withdraw(self, instance_name: str, conversation_id: str, message_id: str) -> bool:
        """Withdraw a pending injection from the running loop. Return whether it was pending."""
        withdraw, children = (
            self._capability(instance_name, conversation_id, each)
            for each in ("orchestrator.withdraw_message", CHILDREN)
        )
        return bool((withdraw and withdraw(message_id)) or (children and children.withdraw(message_id)))

    def stop(self, instance_name: str, conversation_id: str, *, immediate: bool = False, agent: str = "") -> bool:
        """Stop the active run, gracefully or immediately, or only its sub-agents of a name.

        Return whether this changed anything.
        """
        run = self._runs.get(Key(conversation_id, instance_name))
        if run is not None and agent:
            children: ChildSessions | None = run.capability(CHILDREN)
            return children is not None and children.stop(agent, immediate=immediate)
        return run.stop(immediate=immediate) if run else False

    def suspend(self, instance_name: str, conversation_id: str) -> bool:
        """Suspend the active run at its next turn boundary. Return whether this changed its state."""
        run = self._runs.get(Key(conversation_id, instance_name))
        return run.suspend() if run else False

    def _capability(self, instance_name: str, conversation_id: str, name: str) -> Any:
        run = self._runs.get(Key(conversation_id, instance_name))
        return run.capability(name) if run else None

    async def _run(
        self,
        key: Key,
        fence: int | None,
        run: SessionRun,
        prepare: Callable[[AmplifierSession, ProgressCallback | None], Awaitable[Work]],
        on_progress: ProgressCallback | None,
    ) -> str:
        async def set_up() -> AmplifierSession:
            await self._workspaces.prepare(key.conversation_id)
            return await self._pool.take(key, fence)

        if key in self._runs:
            raise RunFailed("I am still working on the previous message.")
        self._instance(key.agent_id)
        self._runs[key] = run
        try:
            following: AbstractContextManager[ProgressCallback | None] = (
                nullcontext(on_progress)
                if self._observe is None
                else self._observe.following(key, on_progress, is_resumed=run.is_resumed)
            )
            with connector_errors(key), following as progress:
                session = await run.unless_aborted(set_up)
                if session is None:
                    return await run.emit_aborted(progress)
                try:
                    if run.is_aborted:
                        return await run.emit_aborted(progress)
                    if (children := session.coordinator.get_capability(CHILDREN)) is not None:
                        children.on_progress = progress
                        await children.begin_run()
                    # Not as a part of the run's work: a suspension then meets no loop, and would have no effect.
                    work = await run.unless_aborted(partial(prepare, session, progress))
                    if work is None or run.is_aborted:
                        return await run.emit_aborted(progress)
                    answer = await run.run_to_end(session, work)
                    if answer is None:
                        return await run.emit_aborted(progress)
                    share = session.coordinator.get_capability("files.share_referred")
                    if share is not None and answer and not run.was_stopped:
                        await share(answer)
                    return answer
                finally:
                    await self._pool.give_back(key, session)
        finally:
            del self._runs[key]

    def _is_current(self, key: Key, session: AmplifierSession) -> bool:
        return bool(session.coordinator.get_capability(_INSTANCE) == self._instances.get(key.agent_id))

    def _instance(self, name: str) -> InstanceConfig:
        """Return the configuration of an instance.

        Raises:
            RunFailed: it is no longer configured.
        """
        if name not in self._instances:
            raise RunFailed(
                f"{name} is no longer one of my agents. Begin your message with the name of another one, such as "
                f"`{next(iter(self._instances))}: …`."
            )
        return self._instances[name]

    async def _new_session(self, key: Key) -> AmplifierSession:
        instance, folder = self._instance(key.agent_id), self._workspaces.folder(key.conversation_id)
        base = self._plan(instance, folder, key)
        base, plan, authors = await self._of_worker(key, base)
        session = new_session(plan, self._store, is_resumed=await self._store.load(key) is not None)
        session.coordinator.register_capability(_INSTANCE, instance)
        session.coordinator.register_capability("secrets.filter", self._without_secrets)
        if authors:

            async def callers() -> frozenset[str]:
                return authors

            session.coordinator.register_capability(CALLERS, callers)
        await self._prepare(key, session)
        ChildSessions(session, base, partial(self._prepare, key)).register()
        return session

    async def _prepare(self, key: Key, session: AmplifierSession, child_id: str = "") -> None:
        """Connect a session of a conversation, or a child of it, with the service."""
        scope = f"{child_id}/" if child_id else ""  # its calls may have the same ids as those of its parent
        if self._rules is not None:
            people = SessionPeople(key, partial(self._people, key), self._rules, self._without_secrets, scope)
            people.register(session.coordinator)
        folder = str(self._workspaces.folder(key.conversation_id))
        session.coordinator.register_capability("session.working_dir", folder)
        if self._workspaces.template is not None:
            session.coordinator.register_capability("workspace.template", str(self._workspaces.template))
        for name in self._host.names if self._host is not None else ():
            call = self._note if name == NOTIFY else partial(self._call_host, name, scope)
            session.coordinator.register_capability(name, partial(call, key))
        session.coordinator.hooks.register(events.MODULE_LOAD_FAILED, _log_load_failure)
        if self._observe is not None:
            self._observe.attach(session.coordinator, key)

    def _people(self, key: Key) -> People | None:
        run = self._runs.get(key)
        return None if run is None else run.people

    def _note(self, key: Key, text: str, note_id: str | None = None) -> asyncio.Task[Mapping[str, Any]]:
        """Start to store a note; it is durable once the task is done."""
        task = asyncio.create_task(self._call_host(NOTIFY, "", key, text=text, id=note_id))
        self._noting.add(task)
        task.add_done_callback(self._noting.discard)
        return task

    async def _of_worker(self, key: Key, plan: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], frozenset[str]]:
        """Return the plan for the children of a session, and its own; that of a worker has what its order adds.

        Also return the authors of the messages that led to the worker.
        """
        is_worker = thread_of(key.conversation_id) != key.conversation_id
        if self._host is None or OVERLAY not in self._host.names or not is_worker:
            return plan, plan, frozenset()
        worker = await self._host.call(key, OVERLAY, {})
        plan = child_config(plan, plan["agents"].get(worker["agent"], {}))
        own = worker["overlay"]
        own_plan = child_config(plan, {"replace": [each for each in AGENT_PARTS if each in own], **own})
        return plan, own_plan, frozenset(worker["authors"])

    async def _chosen_model(self, key: Key, session: AmplifierSession) -> dict[str, str]:
        """Return the option of the loop for the model that people have chosen in the thread, if it is mounted."""
        if self._host is None or MODEL not in self._host.names:
            return {}
        chosen = (await self._host.call(key, MODEL, {}))["model"]
        return {"provider": chosen} if chosen in session.coordinator.get("providers") else {}

    async def _call_host(self, name: str, scope: str, key: Key, /, **arguments: Any) -> Mapping[str, Any]:
        assert self._host is not None  # noqa: S101 - the capability exists only then
        call = current_call.get()
        if name == DISPATCH and call is not None and call.authors is not None:
            arguments["authors"] = sorted(await call.authors())
        if "call_id" in arguments:
            arguments["call_id"] = f"{scope}{arguments['call_id']}"
        return await self._host.call(key, name, arguments)

    def _plan(self, instance: InstanceConfig, folder: Path, key: Key | None = None) -> dict[str, Any]:
        limits = self._workspaces.limits
        return mount_plan(instance, self._default_provider, folder, key, limits, provider_keys=self._provider_keys)

    def _without_secrets(self, text: str, *, known_only: bool = False) -> str:
        return (hide_known if known_only else hide_secrets)(text, self._secrets)


def with_files(prompt: str, files: Sequence[MessageFile]) -> str:
    """Return a prompt with the notes and texts of its files."""
    notes = (f"({each.note})\n{each.text}".rstrip() for each in files if each.note or each.text)
    return "\n\n".join(filter(None, (prompt, *notes)))


def _author(author: MessageAuthor) -> framing.Author:
    return framing.Author(author.id, author.name, author.tz)


def _talk(talk: ThreadTalk) -> Talk:
    texts = (
        framing.message_text(each.text, _author(each.author), each.files, each.written_s) for each in talk.messages
    )
    return Talk(tuple(zip((each.id for each in talk.messages), texts, strict=True)), talk.left_out)


async def _rows(session: AmplifierSession) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = await session.coordinator.get("context").get_messages()
    return rows


async def _log_load_failure(_event: str, data: dict[str, Any]) -> HookResult:
    log.error("module.load_failed", module=data["module_id"], error=data["error"])
    return HookResult()
