"""The context: rows in, rows out, and a log under it that outlives the process."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import structlog
from pydantic import Field, field_validator

from orchestrator_interactive.interactions.errors import (
    ConversationFinished,
    Fenced,
    InteractionError,
    InvalidTransition,
    WriteConflict,
)
from orchestrator_interactive.interactions.rendering.policies import UnknownPolicy, policy_named
from orchestrator_interactive.interactions.rendering.render import render_for_llm
from orchestrator_interactive.kernel.hooks import CONTINUE
from orchestrator_interactive.modules.context_simple import ContextOptions, SimpleContext
from orchestrator_interactive.modules.context_stack.rows import (
    fitting,
    reward_of,
    row_of,
    row_of_message,
    states_of,
    unreadable,
)
from orchestrator_interactive.modules.context_stack.states import RowState, ViewState
from orchestrator_interactive.outside_json import MAX_ROW_NESTING, bounded
from orchestrator_interactive.storage.errors import StoreError
from orchestrator_interactive.transcript.rows import is_prompt

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orchestrator_interactive.interactions import InteractionStack
    from orchestrator_interactive.kernel.contracts.models import HookResult
    from orchestrator_interactive.kernel.hooks import HookRegistry

    Row = dict[str, Any]

log = structlog.get_logger(__name__)

_CHANGED = (
    "This conversation was changed from elsewhere while I was at work on it (rewound, or another branch was checked "
    "out). Write again, and I go on from where it stands now."
)


class StackOptions(ContextOptions):
    """Configuration of `context-stack`: where the log is, and the options of `context-simple`.

    Args:
        store: `memory:`, `sqlite:PATH` or `redis://…`; not used where the session brings a store of its own.
        conversation_id: whose log it is; by default the id of the session.
        agent_id: the agent's part in it.
        asked_by: the ref of another agent's request that the conversation answers.
        render_policy: the name of the render policy that says what the model sees. Other than with `default`, that is
            text and calls without thinking, and not made smaller where it outgrows the model's window.
    """

    store: str = "memory:"
    conversation_id: str | None = Field(default=None, min_length=1)
    agent_id: str = Field(default="agent", min_length=1)
    asked_by: str | None = None
    render_policy: str = "default"

    @field_validator("render_policy")
    @classmethod
    def _is_known(cls, name: str) -> str:
        try:
            policy_named(name)
        except UnknownPolicy as e:
            raise ValueError(str(e).rstrip(".")) from e
        return name


class StackContext:
    """The contract's ContextManager over an interaction stack.

    A row is in the log before it is in the history; what the model sees of that is decided as in `context-simple`. The
    log is read at the first use. Where somebody rewinds it or goes on with another branch meanwhile, the next thing
    that people say continues from there, and so does a run that is resumed; a run that is on ends with WriteConflict.
    Where another owner has taken the log over, whoever is at work on it ends with Fenced.
    """

    def __init__(self, options: StackOptions, hooks: HookRegistry, stack: InteractionStack) -> None:
        self._shown = SimpleContext(options, hooks)
        self._stack = stack
        self._policy = options.render_policy
        self._preface = [{"role": "system", "content": options.system_prompt}] if options.system_prompt else []
        self._rewards: dict[str, float] = {}
        self._one_at_a_time = asyncio.Lock()
        self._is_read = False
        self._kept_view = self._shown.views
        self._moves = 0
        # Nothing is amiss when the conversation moves while it rests; a run that it is taken away from is torn.
        self._rests, self._is_torn = True, False
        # What a run goes on with that is resumed is what it reads first.
        self._is_resumed = False

    async def add_message(self, message: Row) -> None:
        """Append a row.

        Raises:
            ValueError: it has no role, or holds what JSON does not know.
            ConversationFinished: nothing can be added any more.
            WriteConflict: the conversation was changed from elsewhere.
            StoreError: the log cannot be written.
        """
        if not message.get("role"):
            raise ValueError("A message needs a 'role': user, assistant, tool or system.")
        message = bounded(message, MAX_ROW_NESTING)
        async with self._one_at_a_time:
            await self._read()
            self._is_read = False  # until it is certain what is in the log
            await self._write(message)
            await self._shown.add_message(message)
            self._is_read = True

    async def get_messages_for_request(self, token_budget: int | None = None, provider: Any | None = None) -> list[Row]:
        """What the model is to see; see `context-simple`, and the option `render_policy`.

        Raises:
            StoreError: the log cannot be read.
            PolicyError: the render policy gave back what cannot be sent.
        """
        async with self._one_at_a_time:
            await self._read()
        if self._policy == "default":
            rows = await self._shown.get_messages_for_request(token_budget, provider)
            await self._keep_view()
            return rows
        return [*self._preface, *map(row_of_message, await render_for_llm(self._stack, policy_name=self._policy))]

    async def get_messages(self) -> list[Row]:
        """The whole history of the current branch; at the beginning of a run, as it is now.

        Raises:
            StoreError: the log cannot be read.
        """
        async with self._one_at_a_time:
            if self._rests:
                await self._stack.refresh()
                self._is_read = self._is_read and self._stack.moves == self._moves
            await self._read()
            self._rests = self._rests and not self._is_resumed
            return await self._shown.get_messages()

    async def set_messages(self, messages: Iterable[Row]) -> None:
        """Replace the history; what was there stays reachable on a branch that is left behind.

        Raises:
            ValueError: a row holds what JSON does not know.
            WriteConflict: the conversation was changed from elsewhere.
            StoreError: the log cannot be written.
        """
        rows = [bounded(row, MAX_ROW_NESTING) for row in messages]
        async with self._one_at_a_time:
            self._is_read = False
            await self._stack.restart(*fitting(rows, self._rewards))
            await self._shown.set_messages(rows)
            self._is_read, self._moves = True, self._stack.moves
            self._rests, self._is_torn = True, False
            self._kept_view = self._shown.views

    async def clear(self) -> None:
        """Begin anew; what was there stays reachable on a branch that is left behind."""
        await self.set_messages([])

    def rest(self) -> None:
        """Take up little memory until the history is asked for again."""
        self._shown.rest()

    async def on_run(self, _event: str, data: dict[str, Any]) -> HookResult:
        """A run begins, or is resumed: wherever the conversation has moved to, it goes on from there."""
        self._rests, self._is_torn = True, False
        self._is_resumed = data.get("resumed") is True
        return CONTINUE

    def reward(self, tool_call_id: str, reward: float) -> None:
        """Say how well the result of a call serves; that is written down with the result."""
        self._rewards[tool_call_id] = reward

    async def _write(self, row: Row) -> None:
        """Push a row; where the conversation has moved, only what a run begins with, from where it stands now."""
        begins = is_prompt(row)
        if self._is_torn and not begins:
            raise WriteConflict(_CHANGED)
        try:
            await self._push(row)
        except Fenced:
            raise
        except WriteConflict as e:
            if not begins and not self._rests:
                self._is_torn = True
                raise WriteConflict(_CHANGED) from e
            await self._read()
            await self._push(row)
        self._rests = self._is_torn = False

    async def _push(self, row: Row) -> None:
        try:
            await self._stack.push(*states_of(row, self._rewards), since=self._moves)
        except ConversationFinished:
            raise
        except InvalidTransition:
            await self._stack.push(RowState(row), since=self._moves)

    async def _keep_view(self) -> None:
        """Write down a smaller view, so that a summary is made once, and the provider's prompt cache keeps it."""
        async with self._one_at_a_time:
            view = self._shown.views
            if view == self._kept_view or not self._is_read:
                return
            try:
                await self._stack.push(ViewState(self._shown.written_view()), since=self._moves)
                self._kept_view = view
            except Fenced:
                raise
            except (InteractionError, StoreError) as e:  # what matters of it, the next row will say
                log.warning("context.view_not_kept", error=str(e))

    async def _read(self) -> None:
        """Read the history, where that has not been done."""
        if self._is_read:
            return
        await self._stack.refresh()
        if self._stack.moves != self._moves and not self._rests:
            self._is_torn = True
        self._moves = self._stack.moves
        rows, view = [], None
        async for entry in self._stack.iter_last_n(await self._stack.length()):
            if entry.state is None:
                log.error("log.state_unreadable", ref=entry.ref, problem=entry.problem)
            elif isinstance(entry.state, ViewState):
                view = entry.state.view
            elif (row := row_of(entry.state)) is not None:
                if problem := unreadable(row):
                    log.error("log.state_unreadable", ref=entry.ref, problem=problem)
                    continue
                rows.append(row)
                self._rewards.update(reward_of(entry.state))
        await self._shown.set_messages(rows)
        self._shown.take_up(view)
        self._is_read, self._kept_view = True, self._shown.views
