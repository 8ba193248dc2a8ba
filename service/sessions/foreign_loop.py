"""Give an orchestrator without receipts progress, steering and a log of the messages it read, where it allows that.

Progress comes from its hook events. A message that arrives while it works goes to its `session.steer` or
`orchestrator.inject_message`, if it has one; else to the next run, which reads them all at once.
"""

from __future__ import annotations

import asyncio
import inspect
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import structlog

from orchestrator_interactive import Injection, InjectionQueueFull, RunFinished, Talk
from orchestrator_interactive.kernel import HookResult
from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.contracts.messages import TextBlock
from orchestrator_interactive.kernel.error_boundary import convert_exits, error_text
from orchestrator_interactive.loop.injection_queue import NO_TALK, InjectionQueue, Receipt, notice_text
from orchestrator_interactive.loop.run import injected_row
from orchestrator_interactive.loop.tasks import CancellableTask
from orchestrator_interactive.transcript.framing import message_text
from orchestrator_interactive.transcript.rows import assistant_row, marked, user_row
from service.sessions.foreign_run import ForeignRun

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping

    from connector.protocols import ProgressCallback
    from orchestrator_interactive.kernel import AmplifierSession

log = structlog.get_logger(__name__)

_CAPABILITY = "service.foreign_loop"
# Time in which a loop may end by itself after a graceful stop, in seconds; then it is cancelled.
STOP_GRACE_S = 5.0
# After the hooks that may deny or change a call.
_LAST = 1_000_000

Row = dict[str, Any]


async def execute(  # noqa: PLR0913, PLR0917 - the parts of a run
    session: AmplifierSession,
    prompt: str,
    message_id: str | None = None,
    on_progress: ProgressCallback | None = None,
    order: float | None = None,
    notices: Mapping[str, str] | None = None,
    talk: Talk = NO_TALK,
    options: Mapping[str, Any] = MappingProxyType({}),
) -> str:
    """Run a prompt in an initialized session with any orchestrator.

    `order` is when the prompt was written; the run reads the `notices` (by id) and the `talk` before it. `options` are
    further ones for the interactive loop.
    """
    adapt(session)
    foreign: ForeignLoop | None = session.coordinator.get_capability(_CAPABILITY)
    if foreign is not None:
        async with _recorded_end(session, foreign):
            return await foreign.execute(prompt, message_id, on_progress, order, notices or {}, talk)
    contract = {"message_id": message_id, "on_progress": on_progress, "order": order, "notices": notices or {}}
    return await session.execute(prompt, **contract, talk=talk, **options)


@asynccontextmanager
async def _recorded_end(session: AmplifierSession, loop: ForeignLoop) -> AsyncIterator[None]:
    """Let the context record how a run ends. A run that a shutdown interrupts has no end."""
    begin, end = map(session.coordinator.get_capability, ("context.begin_run", "context.end_run"))
    if begin is None or end is None:
        yield
        return
    await begin()
    stops = list[bool]()
    try:
        with session.coordinator.cancellation.watch(lambda: stops.append(True)):
            yield
    except Exception:
        await end("cancelled" if stops else "error")
        raise
    await end("completed" if loop.run.has_succeeded else "cancelled")


def adapt(session: AmplifierSession) -> None:
    """Add the capabilities of `loop-interactive` to an initialized session whose orchestrator lacks them.

    The service's notes replace those of `loop-interactive`, which are lost with the session.
    """
    if (notify := session.coordinator.get_capability("service.notify")) is not None:
        session.coordinator.register_capability("orchestrator.notify", notify)
    if session.coordinator.get_capability("orchestrator.receipts") is None:
        ForeignLoop(session)


def abandoned_run(session: AmplifierSession) -> asyncio.Task[Any] | None:
    """Return the run of this session that ignores its stop and continues; the session cannot be used again."""
    foreign: ForeignLoop | None = session.coordinator.get_capability(_CAPABILITY)
    return foreign.abandoned if foreign is not None else None


class ForeignLoop:
    """The runs of one session with a foreign orchestrator.

    `run`: the active run, or the last one. `abandoned`: a run that continues after its stop.
    """

    def __init__(self, session: AmplifierSession) -> None:
        coordinator = session.coordinator
        get = coordinator.get_capability
        self._session = session
        self._steer: Callable[[str], Any] | None = get("session.steer") or get("orchestrator.inject_message")
        # The receipts of all messages, and those that arrive before the loop begins: its prompt contains them.
        self._queue = InjectionQueue()
        self._queue.is_open = False
        self._steering: set[asyncio.Future[object]] = set()
        # Whether the loop emits its own progress events.
        self._reports = "on_progress" in inspect.signature(coordinator.get("orchestrator").execute).parameters
        self._marks: list[tuple[str, dict[str, Any]]] = []
        self.run = ForeignRun(coordinator, None, self._marks)
        self.abandoned: asyncio.Task[Any] | None = None
        self._context = coordinator.get("context")
        coordinator.mount_points["context"] = _MarkingContext(self._context, self)
        for name in ("inject_message", "edit_message", "withdraw_message", "receipts"):
            coordinator.register_capability(f"orchestrator.{name}", getattr(self, name))
        coordinator.register_capability(_CAPABILITY, self)
        reported = (
            events.PROVIDER_REQUEST,
            events.TOOL_PRE,
            events.TOOL_POST,
            events.TOOL_ERROR,
            events.CONTEXT_PRE_COMPACT,
        )
        for event in () if self._reports else reported:
            coordinator.hooks.register(event, self._on_event, _LAST, "service-progress")

    async def execute(  # noqa: PLR0913, PLR0917 - the parts of a run
        self,
        prompt: str,
        message_id: str | None,
        on_progress: ProgressCallback | None,
        order: float | None,
        notices: Mapping[str, str],
        talk: Talk,
    ) -> str:
        """Run a prompt, together with the messages that wait for it, and return the answer.

        After a stop, the loop may end by itself; one that does not is cancelled, and the answer is empty.
        """
        run = self.run = ForeignRun(self._session.coordinator, on_progress, self._marks)
        self._queue.open()
        await run.emit("executing", prompt=prompt)
        waiting = self._queue.drain()
        self._queue.is_open = False
        messages = [(each.id, _text_of(each)) for each in waiting]
        messages.insert(sum(each.is_older(order) for each in waiting), (message_id or "", _after(talk, prompt)))
        overheard = [each for source in (talk, *(each.talk for each in waiting)) for each in source.ids]
        prompt = "\n".join([*([notice_text(notices.values())] if notices else ()), *(text for _, text in messages)])
        run.begin(prompt, [*(each for each, _ in messages if each), *notices], overheard)
        try:
            answer, status = await self._work(prompt, message_id, on_progress)
            run.has_succeeded = status == "success"
            if run.has_succeeded:
                await self._record(prompt, answer)
        finally:
            run.is_working = False
        if not self._reports:
            if not run.iterations:
                await run.emit("thinking", iteration=1)  # the loop emits no `provider:request`
            undelivered = sum(each.state == "waiting" for each in self.receipts())
            data = {"iterations": run.iterations, "status": status, "waiting": undelivered}
            await run.emit("complete", **data, tools=list(run.calls.values()))
        return answer

    async def _work(self, prompt: str, message_id: str | None, on_progress: ProgressCallback | None) -> tuple[str, str]:
        token, was_stopped, timers = self._session.coordinator.cancellation, False, list[asyncio.TimerHandle]()

        async def answer() -> Any:
            with convert_exits():
                return await self._session.execute(prompt, message_id=message_id, on_progress=on_progress)

        work = CancellableTask(answer())

        def on_stop() -> None:
            nonlocal was_stopped
            was_stopped = True
            if token.is_immediate:
                work.cancel()
            else:
                timers.append(asyncio.get_running_loop().call_later(STOP_GRACE_S, work.cancel))

        try:
            with token.watch(on_stop):
                await work.wait()
        finally:
            for timer in timers:
                timer.cancel()
            if not work.task.done():
                self.abandoned = work.task
        if was_stopped and not work.is_finished:
            return "", "cancelled"
        found = work.result()
        return "" if found is None else str(found), "cancelled" if was_stopped else "success"

    async def _record(self, prompt: str, answer: str) -> None:
        """Record the prompt, and the answer, if the loop keeps a history of its own: it has read all of the prompt."""
        run = self.run
        if not run.prompt_ids:
            return
        row, ids = run.marked(user_row(prompt))
        await self._context.add_message(row)
        if answer and not run.has_answer_row:
            await self._context.add_message(assistant_row([TextBlock(text=answer)]))
        await self.deliver(ids)

    # Capabilities

    def inject_message(self, content: str | Injection) -> Receipt:
        """Add a message to the prompt of a run that is about to begin, or pass it to the loop.

        Raises:
            RunFinished: the loop reads no messages while it works, or has ended.
            InjectionQueueFull: the loop's queue is full.
            ValueError: the text is blank.
        """
        injection = Injection.of(content)
        run = self.run
        if self._queue.known(injection.id) is not None or not run.is_working:
            return self._queue.offer(injection)
        if self._steer is None:
            raise RunFinished("This loop reads no messages while it works; the next run reads them.")
        text = _text_of(injection)
        try:
            steering = self._steer(text)
        except (asyncio.QueueFull, RuntimeError) as e:  # upstream's SteeringQueueFull is a RuntimeError
            raise InjectionQueueFull(str(e)) from e
        except Exception as e:
            log.warning("loop.steer_failed", error=error_text(e))
            raise RunFinished("This loop does not take the message; the next run reads it.") from e
        if inspect.isawaitable(steering):
            task = asyncio.ensure_future(steering)
            self._steering.add(task)
            task.add_done_callback(self._on_steered)
        run.expect(injection.id, text, injection.talk.ids)
        return self._queue.new_receipt(injection.id)

    def edit_message(self, message_id: str, text: str) -> bool:
        """Replace the text of a message that the loop does not have yet. Returns False if it has."""
        return self._queue.edit(message_id, text)

    def withdraw_message(self, message_id: str) -> bool:
        """Withdraw a message that the loop does not have, or that it did not read before its run ended."""
        if self._queue.withdraw(message_id):
            return True
        if self.run.is_working or not self.run.forget(message_id):
            return False
        self._queue.receipts[message_id] = Receipt(message_id, "withdrawn")
        return True

    def receipts(self) -> tuple[Receipt, ...]:
        return tuple(self._queue.receipts.values())

    # Events of the loop

    async def deliver(self, ids: list[str]) -> None:
        """Note that the messages are in a row of the log."""
        run = self.run
        known = [each for each in ids if each in self._queue.receipts]
        run.delivered(ids)
        self._queue.note_delivered(known, run.iterations + 1)
        if known:
            await run.emit("injection:applied", ids=known, count=len(known), messages=[])

    def _on_steered(self, task: asyncio.Future[object]) -> None:
        self._steering.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("loop.steer_failed", error=error_text(error))  # the next run reads the message

    async def _on_event(self, event: str, data: dict[str, Any]) -> HookResult:
        await self.run.on_event(event, data)
        return HookResult()


def _text_of(injection: Injection) -> str:
    return _after(injection.talk, message_text(injection.text, injection.author, injection.files))


def _after(talk: Talk, text: str) -> str:
    return f"{talk.text}\n{text}" if talk else text


class _MarkingContext:
    """The session's context; marks the rows of the loop that deliver messages, so that the log names them.

    It adds the ephemeral injections of hooks to the next request, and refuses the rows of a run that was abandoned.
    """

    def __init__(self, context: Any, loop: ForeignLoop) -> None:
        self._context = context
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def add_message(self, message: Row) -> None:
        row, ids = self._run.marked(message)
        await self._context.add_message(row)
        await self._loop.deliver(ids)

    async def set_messages(self, messages: Iterable[Row]) -> None:
        rows, ids = self._run.marked_again(list(messages))
        await self._context.set_messages(rows)
        await self._loop.deliver(ids)

    async def get_messages(self) -> Any:
        return await self._context.get_messages()

    async def clear(self) -> None:
        await self._context.clear()

    async def get_messages_for_request(self, *arguments: Any, **options: Any) -> Any:
        rows = await self._context.get_messages_for_request(*arguments, **options)
        ephemeral = self._loop.run.coordinator.ephemeral
        added = [marked(injected_row(each), source="hook") for each in ephemeral]
        ephemeral.clear()
        return [*rows, *added]

    @property
    def _run(self) -> ForeignRun:
        """The run that writes to the context.

        Raises:
            RuntimeError: it was abandoned.
        """
        if self._loop.abandoned is not None:
            raise RuntimeError("This run was stopped and did not end in time; its rows are not stored.")
        return self._loop.run
