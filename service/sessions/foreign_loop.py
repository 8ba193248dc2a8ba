"""Give an orchestrator without receipts progress, steering and a log of what it read, as far as it allows.

Progress comes from its hook events. A message that arrives while it works goes to its `session.steer` or
`orchestrator.inject_message`, if it has one; else to the next run, which reads all of them at once.
"""

from __future__ import annotations

import asyncio
import inspect
from itertools import count
from typing import TYPE_CHECKING, Any

import structlog

from orchestrator_interactive import Injection, InjectionQueueFull, RunFinished
from orchestrator_interactive.kernel import HookResult
from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.error_boundary import error_text
from orchestrator_interactive.loop.injection_queue import InjectionQueue, Receipt
from orchestrator_interactive.loop.tasks import CancellableTask
from orchestrator_interactive.loop.tool_call import label_of
from orchestrator_interactive.transcript.framing import NOTICE_PREFIX, listed, message_text
from orchestrator_interactive.transcript.rows import is_of_hook, marked, text_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from connector.protocols import ProgressCallback
    from orchestrator_interactive.kernel import AmplifierSession

log = structlog.get_logger(__name__)

_CAPABILITY = "service.foreign_loop"
# Time in which a loop may end by itself after a graceful stop, in seconds; then it is cancelled.
STOP_GRACE_S = 5.0
# After the hooks that may deny or change a call.
_LAST = 1_000_000


async def execute(
    session: AmplifierSession,
    prompt: str,
    message_id: str | None = None,
    on_progress: ProgressCallback | None = None,
) -> str:
    """Run a prompt in an initialized session, whatever its orchestrator is."""
    adapt(session)
    foreign: ForeignLoop | None = session.coordinator.get_capability(_CAPABILITY)
    if foreign is not None:
        return await foreign.execute(prompt, message_id, on_progress)
    return await session.execute(prompt, message_id=message_id, on_progress=on_progress)


def adapt(session: AmplifierSession) -> None:
    """Add the capabilities of `loop-interactive` to an initialized session whose orchestrator lacks them.

    The service's notes replace those of `loop-interactive`, which are lost with the session.
    """
    if (notify := session.coordinator.get_capability("service.notify")) is not None:
        session.coordinator.register_capability("orchestrator.notify", notify)
    if session.coordinator.get_capability("orchestrator.receipts") is None:
        ForeignLoop(session)


class ForeignLoop:
    """The runs of one session with a foreign orchestrator."""

    def __init__(self, session: AmplifierSession) -> None:
        coordinator = session.coordinator
        get = coordinator.get_capability
        self._session = session
        self._steer: Callable[[str], Any] | None = get("session.steer") or get("orchestrator.inject_message")
        # The receipts of all messages, and those that arrive before the loop begins: its prompt contains them.
        self._queue = InjectionQueue()
        self._queue.is_open = False
        # The ids of the messages in the prompt, until its row is added.
        self._prompt, self._prompt_ids = "", list[str]()
        # The texts of messages that were passed to the loop, by id, until their row is added.
        self._steered: dict[str, str] = {}
        self._steering: set[asyncio.Future[object]] = set()
        self._is_working = False
        # Whether the loop emits its own progress events.
        self._reports = "on_progress" in inspect.signature(coordinator.get("orchestrator").execute).parameters
        self._progress: ProgressCallback | None = None
        self._iterations = 0
        self._calls: dict[str, dict[str, Any]] = {}
        self._ids = count(1)
        coordinator.mount_points["context"] = _MarkingContext(coordinator.get("context"), self)
        for name in ("inject_message", "edit_message", "withdraw_message", "receipts"):
            coordinator.register_capability(f"orchestrator.{name}", getattr(self, name))
        coordinator.register_capability(_CAPABILITY, self)
        handlers = {
            events.PROVIDER_REQUEST: self._on_request,
            events.TOOL_PRE: self._on_tool,
            events.TOOL_POST: self._on_result,
            events.TOOL_ERROR: self._on_result,
            events.CONTEXT_PRE_COMPACT: self._on_compaction,
        }
        for event, handler in () if self._reports else handlers.items():
            coordinator.hooks.register(event, handler, _LAST, "service-progress")

    async def execute(self, prompt: str, message_id: str | None, on_progress: ProgressCallback | None) -> str:
        """Run a prompt, together with the messages that wait for it, and return the answer.

        After a stop, the loop may end by itself; one that does not is cancelled, and the answer is empty.
        """
        self._steered.clear()
        self._calls.clear()
        self._iterations, self._progress = 0, on_progress
        self._queue.open()
        await self._emit("executing", prompt=prompt)
        waiting = self._queue.drain()
        self._queue.is_open = False
        notices = [message_text(each.text) for each in waiting if each.is_notice]
        texts = [message_text(each.text, each.author, each.files) for each in waiting if not each.is_notice]
        prompt = "\n".join([*([NOTICE_PREFIX, listed(notices)] if notices else ()), prompt, *texts])
        self._prompt = _plain(prompt)
        self._prompt_ids = [*([] if message_id is None else [message_id]), *(each.id for each in waiting)]
        self._is_working = True
        try:
            answer, status = await self._run(prompt, message_id, on_progress)
        finally:
            self._is_working = False
        if self._reports:
            return answer
        undelivered = sum(each.state == "waiting" for each in self.receipts())
        data = {"iterations": self._iterations, "status": status, "waiting": undelivered}
        await self._emit("complete", **data, tools=list(self._calls.values()))
        return answer

    async def _run(self, prompt: str, message_id: str | None, on_progress: ProgressCallback | None) -> tuple[str, str]:
        token, was_stopped, timers = self._session.coordinator.cancellation, False, list[asyncio.TimerHandle]()
        work = CancellableTask(self._session.execute(prompt, message_id=message_id, on_progress=on_progress))

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
        if was_stopped and not work.is_finished:
            return "", "cancelled"
        return work.result(), "cancelled" if was_stopped else "success"

    # Capabilities

    def inject_message(self, content: str | Injection) -> Receipt:
        """Add a message to the prompt of a run that is about to begin, or pass it to the loop.

        Raises:
            RunFinished: the loop reads no messages while it works, or has ended.
            InjectionQueueFull: the loop's queue is full.
            ValueError: the text is blank.
        """
        injection = Injection.of(content)
        receipts = self._queue.receipts
        if injection.id in receipts or not self._is_working:
            return self._queue.offer(injection)
        if self._steer is None:
            raise RunFinished("This loop reads no messages while it works; the next run reads them.")
        text = message_text(injection.text, injection.author, injection.files)
        try:
            steering = self._steer(text)
        except (asyncio.QueueFull, RuntimeError) as e:  # upstream's SteeringQueueFull is a RuntimeError
            raise InjectionQueueFull(str(e)) from e
        if inspect.isawaitable(steering):
            task = asyncio.ensure_future(steering)
            self._steering.add(task)
            task.add_done_callback(self._on_steered)
        self._steered[injection.id] = _plain(text)
        receipt = receipts[injection.id] = Receipt(injection.id)
        return receipt

    def edit_message(self, message_id: str, text: str) -> bool:
        """Replace the text of a message that the loop does not have yet. Returns False if it has."""
        return self._queue.edit(message_id, text)

    def withdraw_message(self, message_id: str) -> bool:
        """Withdraw a message that the loop does not have, or that it did not read before its run ended."""
        if self._queue.withdraw(message_id):
            return True
        if self._is_working or self._steered.pop(message_id, None) is None:
            return False
        self._queue.receipts[message_id] = Receipt(message_id, "withdrawn")
        return True

    def receipts(self) -> tuple[Receipt, ...]:
        return tuple(self._queue.receipts.values())

    # What the loop does

    def marked(self, row: dict[str, Any]) -> tuple[dict[str, Any], list[str]]:
        """Return a row of the loop, marked with the messages that it delivers, and their ids.

        A message is recognised by its text, whatever its spaces. The first row of a person is the prompt's, even if
        the loop has changed its text.
        """
        if row.get("role") != "user" or is_of_hook(row):
            return row, []
        text, found = _plain(text_of(row)), set[str]()
        if self._prompt_ids and self._prompt in text:
            text = text.replace(self._prompt, "\n", 1)
        # The longest first: one message may contain the text of another. Of the same text, the oldest.
        for message_id, expected in sorted(self._steered.items(), key=lambda each: -len(each[1])):
            if expected in text:
                text = text.replace(expected, "\n", 1)
                found.add(message_id)
        steered = [each for each in self._steered if each in found]
        ids = [] if steered and self._prompt not in _plain(text_of(row)) else self._prompt_ids
        marks: dict[str, Any] = {"message": ids[0]} if ids else {}
        marks |= {"messages": ids[1:]} if ids[1:] else {}
        marks |= {"injections": steered} if steered else {}
        return (marked(row, **marks) if marks else row), [*ids, *steered]

    async def deliver(self, ids: list[str]) -> None:
        """Note that the messages are in a row of the log."""
        steered = [each for each in ids if each in self._queue.receipts]
        self._prompt_ids = [each for each in self._prompt_ids if each not in ids]
        for each in ids:
            self._steered.pop(each, None)
        self._queue.note_delivered(steered, self._iterations + 1)
        if steered:
            await self._emit("injection:applied", ids=steered, count=len(steered), messages=[])

    def _on_steered(self, task: asyncio.Future[object]) -> None:
        self._steering.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("loop.steer_failed", error=error_text(error))  # the next run reads the message

    async def _emit(self, event: str, **data: Any) -> None:
        if self._progress is not None:
            await self._progress(event, data)

    async def _on_request(self, _event: str, _data: dict[str, Any]) -> HookResult:
        self._iterations += 1
        await self._emit("thinking", iteration=self._iterations)
        return HookResult()

    async def _on_tool(self, _event: str, data: dict[str, Any]) -> HookResult:
        name, arguments = str(data.get("tool_name")), data.get("tool_input")
        arguments = arguments if isinstance(arguments, dict) else {}
        call_id = str(data.get("tool_call_id") or f"call-{next(self._ids)}")
        tool = self._session.coordinator.get("tools").get(name)
        label = label_of(tool, arguments) if tool is not None else None
        self._calls[call_id] = {"id": call_id, "tool": name, "label": label or name, "outcome": "unknown"}
        await self._emit("tool:start", tool=name, args=arguments, id=call_id, **({"label": label} if label else {}))
        return HookResult()

    async def _on_result(self, event: str, data: dict[str, Any]) -> HookResult:
        name = data.get("tool_name")
        open_calls = [each for each in self._calls.values() if each["outcome"] == "unknown" and each["tool"] == name]
        call = self._calls.get(str(data.get("tool_call_id"))) or next(iter(open_calls), None)
        if call is not None and call["outcome"] == "unknown":
            result = data.get("tool_result", data.get("result"))
            has_succeeded = event == events.TOOL_POST and getattr(result, "success", True)
            call["outcome"] = "finished" if has_succeeded else "failed"
            await self._emit("tool:end", tool=name, id=call["id"], success=has_succeeded)
        return HookResult()

    async def _on_compaction(self, _event: str, _data: dict[str, Any]) -> HookResult:
        await self._emit("compacting")
        return HookResult()


def _plain(text: str) -> str:
    """Return a text with single spaces, in which a message is recognised."""
    return " ".join(text.split())


class _MarkingContext:
    """The session's context; marks the rows of the loop that deliver messages, so that the log says what was read."""

    def __init__(self, context: Any, loop: ForeignLoop) -> None:
        self._context = context
        self._loop = loop

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    async def add_message(self, message: Any) -> None:
        row, ids = self._loop.marked(message) if isinstance(message, dict) else (message, [])
        await self._context.add_message(row)
        if ids:
            await self._loop.deliver(ids)

    async def get_messages(self) -> Any:
        return await self._context.get_messages()

    async def set_messages(self, messages: Any) -> None:
        await self._context.set_messages(messages)

    async def clear(self) -> None:
        await self._context.clear()

    async def get_messages_for_request(self, *arguments: Any, **options: Any) -> Any:
        return await self._context.get_messages_for_request(*arguments, **options)
