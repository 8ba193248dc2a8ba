"""The context manager: a history in memory and its persistent log."""

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
from orchestrator_interactive.interactions.render import image_block, render_for_llm
from orchestrator_interactive.interactions.render_policies import UnknownPolicy, policy_named
from orchestrator_interactive.interactions.rows import RowState, ViewState, row_of, states_of, valid_states
from orchestrator_interactive.interactions.states import RunFinishedState, ToolResultState
from orchestrator_interactive.interactions.tree import MAX_STATES
from orchestrator_interactive.kernel.hooks import CONTINUE
from orchestrator_interactive.modules.context_simple import ContextOptions, SimpleContext
from orchestrator_interactive.modules.context_simple.history import checked_row, own_row
from orchestrator_interactive.storage.errors import StoreError
from orchestrator_interactive.transcript.rows import is_of_hook, is_prompt

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orchestrator_interactive.interactions import InteractionStack
    from orchestrator_interactive.interactions.states import RunEnd
    from orchestrator_interactive.kernel.contracts.models import HookResult
    from orchestrator_interactive.modules.context_simple.context import Announce

    Row = dict[str, Any]

log = structlog.get_logger(__name__)

_CHANGED = (
    "This conversation was changed elsewhere while I was working on it (rewound, or switched to another branch). "
    "Write again, and I continue from its current state."
)


class StackOptions(ContextOptions):
    """Configuration of `context-stack`: the log, and the options of `context-simple`.

    Args:
        store: `memory:`, `sqlite:PATH` or `redis://…`; ignored if the session provides a store.
        conversation_id: id of the log; by default the session's id.
        agent_id: id of the agent in the conversation.
        asked_by: ref of another agent's request that the conversation answers.
        render_policy: name of the render policy for the model's messages. Policies other than `default` render text and
            calls without thinking, and are not compacted.
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
    """Implementation of the ContextManager contract over an interaction stack.

    A row is written to the log before it is added to the history. The log is read at the first use. After a rewind or
    a checkout elsewhere, the next prompt or a resumed run continues from there, and a running run ends with
    WriteConflict. After a takeover by another owner, a running run ends with Fenced.
    """

    def __init__(self, options: StackOptions, announce: Announce, stack: InteractionStack) -> None:
        self._shown = SimpleContext(options, announce)
        self._stack = stack
        self._policy = options.render_policy
        self._preface = [{"role": "system", "content": options.system_prompt}] if options.system_prompt else []
        self._rewards: dict[str, float] = {}
        self._lock = asyncio.Lock()
        self._is_read = False
        self._kept_view = self._shown.views
        self._moves = 0
        # A move of the conversation is expected between runs; during a run it is a conflict.
        self._is_idle, self._has_conflict = True, False
        # A resumed run continues from the history that it reads first.
        self._is_resumed = False
        self._is_new_run = False  # until it has written a row
        # How the last run ended: `None` if its end is not recorded, "" if there was no run.
        self._run_end: str | None = ""

    async def add_message(self, message: Row) -> None:
        """Append a row.

        Raises:
            ValueError: it has no role, or is not representable as JSON.
            ConversationFinished: the conversation is finished.
            WriteConflict: another writer changed the conversation.
            StoreError: the log cannot be written.
        """
        await self.add_messages([message])

    async def add_messages(self, messages: Iterable[Row]) -> None:
        """Append rows to the log in one step: all or none.

        Raises:
            ValueError, ConversationFinished, WriteConflict, StoreError: as in `add_message`.
        """
        rows = [own_row(checked_row(each)) for each in messages]
        async with self._lock:
            await self._read()
            self._is_read = False  # until the outcome of the write is known
            await self._write(rows)
            for row in rows:
                self._shown.append(row)
            self._note_rows(rows)
            self._is_read = True

    async def get_messages_for_request(self, token_budget: int | None = None, provider: Any | None = None) -> list[Row]:
        """Return the rows for the model; see `context-simple` and the option `render_policy`.

        Raises:
            StoreError: the log cannot be read.
            PolicyError: the render policy returned messages that cannot be sent.
        """
        async with self._lock:
            await self._read()
        if self._policy == "default":
            rows = await self._shown.get_messages_for_request(token_budget, provider)
            await self._keep_view()
            return rows
        return [*self._preface, *map(_as_row, await render_for_llm(self._stack, policy_name=self._policy))]

    async def get_messages(self) -> list[Row]:
        """Return the history of the current branch; re-read the log at the start of a run.

        Raises:
            StoreError: the log cannot be read.
        """
        async with self._lock:
            if self._is_idle:
                await self._stack.refresh()
                self._is_read = self._is_read and self._stack.moves == self._moves
            await self._read()
            self._is_idle = self._is_idle and not self._is_resumed
            return await self._shown.get_messages()

    async def set_messages(self, messages: Iterable[Row]) -> None:
        """Replace the history; the former one is kept on a new branch.

        Raises:
            ValueError: a row is not representable as JSON.
            WriteConflict: another writer changed the conversation.
            StoreError: the log cannot be written.
        """
        rows = [own_row(row) for row in messages]
        async with self._lock:
            self._is_read = False
            await self._stack.restart(*valid_states(rows, self._rewards))
            self._shown.replace(rows)
            self._note_rows(rows)
            self._is_read, self._moves = True, self._stack.moves
            self._is_idle, self._has_conflict = True, False
            self._is_new_run = False
            self._kept_view = self._shown.views

    async def clear(self) -> None:
        """Start an empty history; the former one is kept on a new branch."""
        await self.set_messages([])

    def compress(self) -> None:
        """Compress the history in memory until its next use."""
        self._shown.compress()

    async def on_run(self, _event: str, data: dict[str, Any]) -> HookResult:
        """Handle the start or resumption of a run: it continues from the conversation's current state."""
        self._is_idle, self._has_conflict = True, False
        self._is_resumed = data.get("resumed") is True
        self._is_new_run = not self._is_resumed
        return CONTINUE

    async def on_run_end(self, _event: str, data: dict[str, Any]) -> HookResult:
        """Record the end of a run in the log, once. A suspended run has not ended."""
        if not data.get("suspended"):
            status = data.get("status")
            await self.end_run(status if status in ("cancelled", "error") else "completed")
        return CONTINUE

    async def end_run(self, status: RunEnd) -> None:
        """Record the end of the run in the log, unless the log has it. A failure is only logged."""
        async with self._lock:
            try:
                await self._read()
                if self._run_end is None and not self._is_new_run and not self._has_conflict:
                    self._is_read = False  # until the outcome of the write is known
                    await self._stack.push(RunFinishedState(status), since=self._moves)
                    self._is_read, self._run_end = True, status
            except (InteractionError, StoreError) as e:
                log.warning("context.run_end_not_saved", error=str(e))

    async def run_end(self) -> str | None:
        """Return how the last run ended, as the log has it; `None` if the log has no end of it."""
        async with self._lock:
            await self._read()
            return self._run_end or None

    def reward(self, tool_call_id: str, reward: float) -> None:
        """Set the reward of a call's result; it is stored with the result."""
        self._rewards[tool_call_id] = reward

    async def _write(self, rows: list[Row]) -> None:
        """Push rows; after a move of the conversation, accept only the first rows of a run."""
        begins = any(map(is_prompt, rows))
        if self._has_conflict and not begins:
            raise WriteConflict(_CHANGED)
        try:
            await self._push(rows)
        except Fenced:
            raise
        except WriteConflict as e:
            if not begins and not self._is_idle:
                self._has_conflict = True
                raise WriteConflict(_CHANGED) from e
            await self._read()
            self._is_read = False  # the outcome of this write is unknown, too
            await self._push(rows)
        self._is_idle = self._has_conflict = False

    async def _push(self, rows: list[Row]) -> None:
        # A crash, or an outage of the store, has prevented the record of the earlier run's end.
        end = [RunFinishedState("unknown")] if self._is_new_run and self._run_end is None else []
        try:
            states = [state for row in rows for state in states_of(row, self._rewards)]
            await self._stack.push(*end, *states, since=self._moves)
        except ConversationFinished:
            raise
        except InvalidTransition:
            await self._stack.push(*end, *map(RowState, rows), since=self._moves)
        self._is_new_run = False

    def _note_rows(self, rows: Iterable[Row]) -> None:
        """Note the rows that begin a run or continue one; a late result after the end only settles its call."""
        for row in rows:
            continues = row.get("role") == "assistant" and not is_of_hook(row)
            if is_prompt(row) or (continues and self._run_end):
                self._run_end = None

    async def _keep_view(self) -> None:
        """Store a smaller view, so that a summary is made once and the provider's prompt cache stays valid."""
        async with self._lock:
            view = self._shown.views
            if view == self._kept_view or not self._is_read:
                return
            try:
                await self._stack.push(ViewState(self._shown.view_to_dict()), since=self._moves)
                self._kept_view = view
            except Fenced:
                raise
            except (InteractionError, StoreError) as e:  # not fatal; the next row raises it if it persists
                log.warning("context.view_not_saved", error=str(e))

    async def _read(self) -> None:
        """Read the history from the log unless it is already read."""
        if self._is_read:
            return
        await self._stack.refresh()
        if self._stack.moves != self._moves and not self._is_idle:
            self._has_conflict = True
        self._moves = self._stack.moves
        rows, view = [], None
        self._run_end = ""
        async for entry in self._stack.iter_last_n(MAX_STATES):
            state, problem = entry.state, entry.problem
            row = row_of(state) if state is not None else None
            if isinstance(state, ViewState):
                view = state.view
            elif row is not None and not (isinstance(row, dict) and isinstance(row.get("role"), str)):
                problem = "It is not a row: an object with a role."
            elif row is not None:
                rows.append(row)
                self._note_rows([row])
            elif isinstance(state, RunFinishedState):
                self._run_end = state.status
            if isinstance(state, ToolResultState) and state.reward is not None:
                self._rewards[state.tool_call_id] = state.reward
            if problem is not None:
                log.error("log.state_unreadable", ref=entry.ref, problem=problem)
        self._shown.replace(rows)
        self._shown.restore_view(view)
        self._is_read, self._kept_view = True, self._shown.views


def _as_row(message: Row) -> Row:
    """Convert a message from OpenAI's format to a row; only images differ."""
    content = message.get("content")
    return {**message, "content": [image_block(part) for part in content]} if isinstance(content, list) else message
