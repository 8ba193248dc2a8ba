"""Which conversation has a run, and what a new message means for it."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from functools import partial
from typing import TYPE_CHECKING, Self

import structlog

from connector import phrases
from connector.execution import Execution
from connector.inbox import Inbound
from connector.leftovers import take_away
from connector.messages import is_stop_word

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from connector.desk import Desk
    from connector.messages import Message, Reaction
    from connector.protocols import SessionManager
    from connector.routing import Router

log = structlog.get_logger(__name__)

_REMEMBERED = 10_000
_STOP_REACTION = "x"
_CLOSE_WITHIN_S = (10.0, 2.0, 1.0)


class Conversations:
    """The active executions, one per conversation, and the way of each message into one of them.

    What is decided on a message is decided before anything is awaited: so a stop finds the run that it is meant for.
    """

    def __init__(self, sessions: SessionManager, desk: Desk, router: Router, bot_user: str) -> None:
        self._sessions = sessions
        self._desk = desk
        self._router = router
        self._bot_user = bot_user
        self._active: dict[str, Execution] = {}
        self._leading: dict[str, list[Inbound]] = {}
        self._left: dict[tuple[str, str], tuple[Message, int]] = {}
        self._seen: OrderedDict[str, None] = OrderedDict()
        self._runs: set[asyncio.Task[None]] = set()
        self._closing = False

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closing = True
        self._tell_where_messages_wait()
        for execution in self._active.values():
            execution.abort()
        # A run that neither ends nor heeds being cancelled does not keep the process from ending.
        for within_s in _CLOSE_WITHIN_S:
            if self._runs:
                await asyncio.wait(self._runs, timeout=within_s)
            for run in self._runs:
                run.cancel()

    def on_message(self, message: Message) -> None:
        """Take a message in; the second event of one post changes nothing."""
        routed = None if message.id in self._seen else self._router.route(message)
        if routed is None:
            return
        self._remember(message.id)
        instance, prompt = routed
        if is_stop_word(prompt):
            self._stop_by_word(message)
        elif self._closing:
            self._desk.tell(message, phrases.CLOSING)
        elif not prompt and not message.files:
            self._desk.tell(message, phrases.NO_TEXT)
        else:
            is_back = self._router.remember(message, instance)
            self._take(Inbound(message, instance, prompt or ", ".join(message.files)))
            if is_back:
                active = partial(self._active.get, message.place.conversation_id)
                self._desk.spawn(take_away(self._desk.wire, message.place, self._bot_user, active))

    def on_reaction(self, reaction: Reaction) -> None:
        """Stop the run whose status or starting message got an ❌."""
        if reaction.name != _STOP_REACTION or reaction.user == self._bot_user or reaction.id in self._seen:
            return
        self._remember(reaction.id)
        for execution in self._active.values():
            if execution.place.channel != reaction.channel:
                continue
            is_status = execution.view.is_status(reaction.ts)
            if is_status or reaction.ts == execution.first.message.ts:
                execution.stop(reaction.user)
            elif is_status is None:
                # People can react to a status before Slack has told us which message it is.
                self._desk.spawn(_stop_by_status(execution, reaction))

    def _take(self, inbound: Inbound) -> None:
        conversation = inbound.message.place.conversation_id
        execution = self._active.get(conversation)
        if execution is not None:
            execution.add(inbound)
        else:
            leading = self._leading.pop(conversation, [])
            self._start([*leading, inbound], was_waiting=bool(leading))

    def _start(self, messages: Sequence[Inbound], *, was_waiting: bool) -> None:
        first, *rest = messages
        execution = Execution(first, self._sessions, self._desk, was_waiting=was_waiting)
        self._active[execution.place.conversation_id] = execution
        for inbound in rest:
            execution.add(inbound)
        run = asyncio.create_task(self._run(execution))
        self._runs.add(run)
        run.add_done_callback(self._runs.discard)

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
        ending = execution.ending
        log.info(
            "run.ended", conversation=conversation, status=ending.status, reason=ending.reason, **dict(ending.usage)
        )
        self._count_left(execution)
        if execution.goes_on and not self._closing:
            self._start(execution.hand_over(), was_waiting=True)
        elif execution.unread:
            self._leave(conversation, execution)

    def _leave(self, conversation: str, execution: Execution) -> None:
        """Keep what was not read for the next run; those who wrote it know."""
        self._leading[conversation] = execution.unread
        if not execution.unnamed:
            return
        last, count = execution.unnamed[-1].message, len(execution.unnamed)
        self._desk.tell(last, phrases.CLOSING if self._closing else phrases.held_back(count))

    def _count_left(self, execution: Execution) -> None:
        """Remember how many messages wait in a loop that does not run, for as long as they do."""
        key = (execution.place.conversation_id, execution.first.instance.name)
        if execution.waiting and not self._closing:
            self._left[key] = (execution.first.message, execution.waiting)
        elif execution.waiting == 0:
            self._left.pop(key, None)

    def _tell_where_messages_wait(self) -> None:
        """The next run was to take them along, and there is none any more; a run that is on speaks for itself."""
        counts = [(messages[-1].message, len(messages)) for messages in self._leading.values()]
        for (conversation, instance), left in self._left.items():
            running = self._active.get(conversation)
            if running is None or running.first.instance.name != instance:
                counts.append(left)
        for message, count in counts:
            self._desk.tell(message, phrases.lost(count))

    def _stop_by_word(self, message: Message) -> None:
        execution = self._active.get(message.place.conversation_id)
        if execution is None or not execution.stop(message.user):
            self._desk.tell(message, phrases.NOTHING_RUNS)

    def _remember(self, identity: str) -> None:
        self._seen[identity] = None
        if len(self._seen) > _REMEMBERED:
            self._seen.popitem(last=False)


async def _stop_by_status(execution: Execution, reaction: Reaction) -> None:
    if await execution.view.status_ts() == reaction.ts:
        execution.stop(reaction.user)
