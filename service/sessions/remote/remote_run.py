"""One run in another process, as the connector sees it: its stream, and a mirror of its injection queue."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from dataclasses import asdict
from itertools import count
from typing import TYPE_CHECKING, Any

import grpc.aio
import structlog
from pydantic import TypeAdapter

from connector.protocols import PersonRequest, QueueFull, Refused, SharedFile
from orchestrator_interactive import Injection
from orchestrator_interactive.kernel.cancellation import CancellationToken
from orchestrator_interactive.kernel.error_boundary import ErrorBoundary
from service.sessions.remote import sessions_pb2 as pb
from service.sessions.remote.calls import PROGRESS
from service.sessions.remote.replies import Replies, call_host, write_inputs
from service.sessions.remote.wire import Disconnected, error_of, sent_file

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from connector.protocols import MessageFile, People, ProgressCallback
    from orchestrator_interactive.interactions.records import Key
    from service.sessions.host import SessionHost
    from service.sessions.remote.replies import Stream

log = structlog.get_logger(__name__)

# A receipt that takes longer counts as "too late": the connector then sends a correction.
_RECEIPT_WITHIN_S = 5.0
_REQUEST = TypeAdapter(PersonRequest)


class RemoteRun:
    """A run that continues when its process is replaced.

    Args:
        host: the functions that sessions may call.

    Attributes:
        pending: the injections that are not known to be delivered, by id.
        has_answered: whether the process has sent an event since the last connection.
    """

    def __init__(
        self, key: Key, on_progress: ProgressCallback | None, people: People | None, host: SessionHost
    ) -> None:
        self._key = key
        self._on_progress = on_progress
        self._people = people
        self._host = host
        self.pending: dict[str, pb.Message] = {}
        self.has_answered = False
        # Those of `pending` for which the run has no room.
        self._held: list[str] = []
        self._stop = CancellationToken()
        self._suspended = asyncio.Event()
        # The run accepts injections.
        self._is_open = False
        # `None`: no process is connected.
        self._inputs: asyncio.Queue[pb.ExecuteInput] | None = None
        self._numbers = count(1)
        self._receipts: dict[int, asyncio.Future[pb.Receipt]] = {}
        self._replies = Replies(self._result, self._send)
        # The names of the sub-agents at work, by id.
        self._agents: dict[str, str] = {}

    # Requests of the connector.

    def inject(self, sent: pb.Message) -> bool:
        """Inject a message. Returns False if the run accepts none now.

        Raises:
            Refused: it is blank.
            QueueFull: the run has no room.
        """
        try:
            Injection(sent.text)
        except ValueError as e:
            raise Refused(str(e)) from e
        if not self._is_open:
            return False
        if self._held:
            raise QueueFull
        if sent.id not in self.pending:
            self.pending[sent.id] = sent
            self._offer(sent.id)
        return True

    async def edit(self, message_id: str, text: str, files: tuple[MessageFile, ...] = ()) -> bool:
        """Replace the text of a pending injection. Returns False if it may be delivered, or is unknown.

        Raises:
            Refused: the text is blank.
        """
        if message_id not in self.pending:
            return False
        receipt = await self._receipt(
            pb.ExecuteInput(edit=pb.Edit(id=message_id, text=text, files=map(sent_file, files)))
        )
        if receipt.outcome == pb.Receipt.REFUSED:
            raise Refused(receipt.reason)
        is_edited = receipt.outcome == pb.Receipt.ACCEPTED or message_id in self._held
        if is_edited and message_id in self.pending:
            self.pending[message_id].text = text
        return is_edited

    async def withdraw(self, message_id: str) -> bool:
        """Withdraw a pending injection. Returns False if it may be delivered, or is unknown."""
        if message_id not in self.pending:
            return False
        receipt = await self._receipt(pb.ExecuteInput(withdraw=message_id))
        is_withdrawn = receipt.outcome == pb.Receipt.ACCEPTED or message_id in self._held
        if is_withdrawn:
            self._forget([message_id])
        return is_withdrawn

    def stop(self, *, immediate: bool, agent: str = "") -> bool:
        """Stop the run, or its sub-agents with a name or id. Return whether this changed anything."""
        if agent:
            self._send(pb.ExecuteInput(stop=pb.Stop(immediate=immediate, agent=agent)))
            return agent.lower() in {each.lower() for each in (*self._agents, *self._agents.values())}
        has_changed = self._stop.request_immediate() if immediate else self._stop.request_graceful()
        if has_changed:
            self._send(pb.ExecuteInput(stop=pb.Stop(immediate=immediate)))
        return has_changed

    def suspend(self) -> bool:
        """Suspend the run at its next turn boundary. Return whether this changed its state."""
        if self._suspended.is_set():
            return False
        self._suspended.set()
        self._send(pb.ExecuteInput(suspend=pb.Suspend()))
        return True

    # Its stream.

    async def go(self, connect: Callable[[], Stream], start: pb.Start) -> str:
        """Run at the process that `connect` reaches, and return the answer.

        Raises:
            Disconnected: the process is gone, or ends.
            RunFailed, LeaseLost: as in `SessionManager.execute`.
        """
        self.has_answered = False
        if self._people is not None:
            start.owner = self._people.owner
            start.unbegun[:] = sorted(self._people.unbegun)
        start.functions[:] = sorted(self._host.names)
        inputs = self._inputs = asyncio.Queue()
        self._send(pb.ExecuteInput(start=start))
        if self._suspended.is_set():
            self._send(pb.ExecuteInput(suspend=pb.Suspend()))
        if self._stop.is_cancelled:
            self._send(pb.ExecuteInput(stop=pb.Stop(immediate=self._stop.is_immediate)))
        progress: asyncio.Queue[pb.Call] = asyncio.Queue()
        reporting = asyncio.create_task(self._report_in_order(progress))
        stream = connect()
        writing = asyncio.create_task(write_inputs(stream, inputs))
        try:
            async for event in stream:
                self.has_answered = True
                if event.WhichOneof("kind") == "answer":
                    await progress.join()
                    return str(event.answer)
                self._on_event(event, progress)
            raise Disconnected("the stream has ended")
        except grpc.aio.AioRpcError as e:
            raise error_of(e) from e
        finally:
            self._inputs, self._is_open = None, False
            stream.cancel()
            ending = [reporting, writing, *self._replies.tasks.values()]
            for task in ending:
                task.cancel()
            for receipt in self._receipts.values():
                receipt.cancel()
            await asyncio.wait(ending)

    def _on_event(self, event: pb.ExecutionEvent, progress: asyncio.Queue[pb.Call]) -> None:
        match event.WhichOneof("kind"):
            case "call" if event.call.name == PROGRESS:
                progress.put_nowait(event.call)
            case "call" | "cancel":
                self._replies.on_event(event)
            case "receipt" if (receipt := self._receipts.get(event.receipt.number)) is not None and not receipt.done():
                receipt.set_result(event.receipt)

    async def _report_in_order(self, progress: asyncio.Queue[pb.Call]) -> None:
        while True:
            call = await progress.get()
            given = json.loads(call.arguments)
            await self.report(given["event"], given["data"])
            self._send(pb.ExecuteInput(reply=pb.Reply(number=call.number, result="{}")))
            progress.task_done()

    async def report(self, event: str, data: dict[str, Any]) -> None:
        """Report progress to the connector; errors are logged."""
        if event == "executing":
            self._is_open, self._held, self._agents = True, [], {}
            for message_id in self.pending:
                self._offer(message_id)
        if event == "agent":
            self._agents.pop(data["id"], None)
            self._agents |= {data["id"]: data["name"]} if data["state"] == "running" else {}
        if event == "injection:applied":
            held, self._held = self._held, []
            self._forget(data.get("ids", ()))
            for message_id in held:
                self._offer(message_id)
        if self._on_progress is not None:
            with ErrorBoundary(log, "progress.failed", progress_event=event):
                await self._on_progress(event, data)

    async def _result(  # noqa: PLR0911 - a case for each call
        self, name: str, arguments: dict[str, Any]
    ) -> Mapping[str, Any]:
        people = self._people
        match name:
            case "people.ask" if people is not None:
                return asdict(await people.ask(_REQUEST.validate_python(arguments)))
            case "people.asked_s" if people is not None:
                return {"asked_s": await people.asked_s(**arguments)}
            case "people.start" if people is not None:
                return {"objection": await people.start(**arguments)}
            case "people.sharing" if people is not None:
                return asdict(await people.sharing())
            case "people.share" if people is not None:
                files = [SharedFile(**each) for each in arguments["files"]]
                await people.share(arguments["share_id"], files, arguments["comment"])
                return {}
            case "people.answer_by_message" if people is not None:
                people.answer_by_message(**arguments)
                return {}
        return await call_host(self._host, name, arguments)

    def _send(self, sent: pb.ExecuteInput) -> None:
        if self._inputs is not None:
            self._inputs.put_nowait(sent)

    def _offer(self, message_id: str) -> None:
        """Send an injection; its receipt may close the run to further ones, or ask to offer it again."""
        receipt = self._sent(pb.ExecuteInput(inject=self.pending[message_id]))
        receipt.add_done_callback(lambda done: self._on_offered(message_id, done))

    def _on_offered(self, message_id: str, done: asyncio.Future[pb.Receipt]) -> None:
        if done.cancelled():
            return
        match done.result().outcome:
            case pb.Receipt.TOO_LATE:
                self._is_open = False
            case pb.Receipt.FULL if message_id in self.pending:
                self._held.append(message_id)

    async def _receipt(self, sent: pb.ExecuteInput) -> pb.Receipt:
        """Send an input and return its receipt: too late, if there is none in time."""
        if self._inputs is not None:
            receipt = self._sent(sent)
            if (await asyncio.wait((receipt,), timeout=_RECEIPT_WITHIN_S))[0] and not receipt.cancelled():
                return receipt.result()
            if sent.WhichOneof("kind") == "withdraw":
                receipt.add_done_callback(lambda done: self._on_late_withdrawal(sent.withdraw, done))
        return pb.Receipt()

    def _on_late_withdrawal(self, message_id: str, done: asyncio.Future[pb.Receipt]) -> None:
        """Offer a message again that the run no longer has: the connector's correction is to be read after it."""
        if not done.cancelled() and done.result().outcome == pb.Receipt.ACCEPTED and message_id in self.pending:
            self._offer(message_id)

    def _sent(self, sent: pb.ExecuteInput) -> asyncio.Future[pb.Receipt]:
        sent.number = next(self._numbers)
        receipt = self._receipts[sent.number] = asyncio.get_running_loop().create_future()
        receipt.add_done_callback(lambda _: self._receipts.pop(sent.number, None))
        self._send(sent)
        return receipt

    def _forget(self, message_ids: Collection[str]) -> None:
        for each in message_ids:
            self.pending.pop(each, None)
            with suppress(ValueError):
                self._held.remove(each)

    # Without a process.

    async def is_suspended(self, delay_s: float) -> bool:
        """Wait before the next attempt. Return whether the run is suspended: then its next owner resumes it.

        A stop waits for the process: the log may have text that is not shown yet.
        """
        with suppress(TimeoutError):
            async with asyncio.timeout(delay_s):
                await self._suspended.wait()
        if self._suspended.is_set():
            await self.report("complete", {"iterations": 0, "status": "suspended", "waiting": len(self.pending)})
        return self._suspended.is_set()

    async def note_delivered(self, read: Collection[str]) -> None:
        """Report the pending injections that the log has; the others are offered again."""
        ids = [each for each in self.pending if each in read]
        if ids:
            await self.report("injection:applied", {"ids": ids, "count": len(ids), "messages": []})
