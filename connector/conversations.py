"""Which conversation has a run, and what a new message means for it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict, defaultdict
from typing import TYPE_CHECKING, Any, Self

import structlog

from connector import phrases
from connector.execution import Execution, Inbound
from connector.protocols import Refused
from connector.view import ENVELOPE, EYES, best_effort

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from types import TracebackType

    from connector.messages import Message, Reaction
    from connector.protocols import SessionManager
    from connector.routing import Router
    from connector.wire import Wire

log = structlog.get_logger(__name__)

_REMEMBERED_MESSAGES = 10_000
_STOP_REACTION = "x"


class Conversations:
    """The active executions, one per conversation, and the way of each message into one of them."""

    def __init__(self, sessions: SessionManager, wire: Wire, router: Router, bot_user: str) -> None:
        self._sessions = sessions
        self._wire = wire
        self._router = router
        self._bot_user = bot_user
        self._active: dict[str, Execution] = {}
        self._leading: dict[str, list[Inbound]] = {}
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._intake: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._tasks = asyncio.TaskGroup()

    async def __aenter__(self) -> Self:
        await self._tasks.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for execution in self._active.values():
            execution.abort()
        await self._tasks.__aexit__(kind, error, trace)

    async def on_message(self, message: Message) -> None:
        """Take a message in; the second event of one post changes nothing."""
        routed = None if message.id in self._seen else self._router.route(message)
        if routed is None:
            return
        self._remember(message)
        if message.is_stop_word(self._bot_user):
            await self._stop_by_word(message)
            return
        instance, prompt = routed
        prompt = prompt or ", ".join(message.files)
        if not prompt:
            await best_effort(self._tell(message, phrases.NO_TEXT))
            return
        # Looking a name up takes its time: the lock, which is fair, keeps the order of arrival.
        async with self._intake[message.place.conversation_id]:
            author = await self._wire.display_name(message.user)
            self._take(Inbound(message, instance, prompt, author))

    async def on_reaction(self, reaction: Reaction) -> None:
        """Stop the run whose status or starting message got an ❌."""
        if reaction.name != _STOP_REACTION or reaction.user == self._bot_user:
            return
        here = [e for e in self._active.values() if e.place.channel == reaction.channel]
        for execution in here:
            if reaction.ts in (execution.first.message.ts, await execution.view.status_ts()):
                execution.stop(await self._name(reaction.user))

    def _take(self, inbound: Inbound) -> None:
        conversation = inbound.message.place.conversation_id
        execution = self._active.get(conversation)
        if execution is None:
            self._start([*self._leading.pop(conversation, []), inbound])
            return
        try:
            execution.add(inbound)
        except Refused as e:
            self._spawn(best_effort(self._tell(inbound.message, str(e))))
            return
        self._spawn(best_effort(self._wire.react(inbound.message.channel, inbound.message.ts, ENVELOPE)))

    def _start(self, messages: list[Inbound]) -> None:
        first, *rest = messages
        execution = Execution(first, self._sessions, self._wire, self._mark_delivered)
        self._active[execution.place.conversation_id] = execution
        for inbound in rest:
            execution.add(inbound)
        self._tasks.create_task(self._run(execution))

    async def _run(self, execution: Execution) -> None:
        conversation = execution.place.conversation_id
        log.info("run.started", conversation=conversation, instance=execution.first.instance.name)
        try:
            await execution.go()
        except Exception:  # a Slack handler's border: one run may not take the others down
            log.exception("run.crashed", conversation=conversation)
        finally:
            # No await between here and the next start: a message finds either this run or the next one.
            del self._active[conversation]
        log.info("run.ended", conversation=conversation)
        if execution.goes_on:
            self._start(execution.unread)
        elif execution.unread:
            self._leading[conversation] = execution.unread

    async def _stop_by_word(self, message: Message) -> None:
        execution = self._active.get(message.place.conversation_id)
        if execution is None or not execution.stop(await self._name(message.user)):
            await best_effort(self._tell(message, phrases.NOTHING_RUNS))

    def _mark_delivered(self, message_id: str) -> None:
        _team, channel, ts = message_id.split(":")
        self._spawn(best_effort(self._wire.react(channel, ts, EYES)))

    async def _name(self, user: str) -> str:
        return await self._wire.display_name(user) or "someone"

    async def _tell(self, message: Message, text: str) -> None:
        await self._wire.post(message.place, text, f"{message.id}:reply")

    def _remember(self, message: Message) -> None:
        self._seen[message.id] = None
        if len(self._seen) > _REMEMBERED_MESSAGES:
            self._seen.popitem(last=False)

    def _spawn(self, call: Coroutine[Any, Any, None]) -> None:
        self._tasks.create_task(call)
