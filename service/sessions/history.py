"""Read and branch conversation logs for people in Slack; implements `connector.protocols.ConversationHistory`."""

from __future__ import annotations

import asyncio
from contextlib import contextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any
from weakref import WeakValueDictionary

from connector.protocols import AGAIN, LeaseLost, LeftBehind, LogBranch, LogPlace, Refused, Usage
from orchestrator_interactive.interactions import InteractionStack, StackEntry
from orchestrator_interactive.interactions.errors import BranchExists, Fenced, InteractionError, NoSuchBranch
from orchestrator_interactive.interactions.export import as_markdown
from orchestrator_interactive.interactions.feedback import FeedbackState, rate
from orchestrator_interactive.interactions.rows import row_of
from orchestrator_interactive.interactions.stack import entry_fields, nodes
from orchestrator_interactive.interactions.states import RunFinishedState, ToolCallState, ToolResultState
from orchestrator_interactive.loop.outcome import usage_in
from orchestrator_interactive.transcript.answer_parts import InterimTexts
from orchestrator_interactive.transcript.framing import read_messages
from orchestrator_interactive.transcript.rows import delivered_ids_in, is_prompt, metadata_of, text_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from connector.protocols import Rating
    from orchestrator_interactive.interactions.records import Key
    from orchestrator_interactive.interactions.stores import LogStore

    Row = dict[str, Any]

_NOT_READ = "I have not read that message."
_ELSEWHERE = "Another branch of this conversation has that message. `!branches` lists them."
_OCCUPIED = "A person wrote in the new thread first, so that its agent does not know this conversation."
_NO_LOG = "I have no conversation here yet."
# A conversation begins within so many states.
_TITLE_STATES = 20
# Tools that write a file, by the words in their names, and the names of their argument.
_WRITES, _PATHS = ("write", "edit", "create"), ("path", "file_path")


class LogHistory:
    """The conversations in a log store; the caller closes it."""

    def __init__(self, store: LogStore) -> None:
        self._store = store
        # Ratings of one conversation are stored one after the other: they have a log in common.
        self._ratings: WeakValueDictionary[Key, asyncio.Lock] = WeakValueDictionary()

    async def branches(self, instance_name: str, conversation_id: str) -> tuple[LogBranch, ...]:
        """Return the branches in order of creation."""
        found = await (await self._stack(instance_name, conversation_id)).get_branch_info()
        return tuple(LogBranch(each.name, each.length, each.is_current, each.created, each.origin) for each in found)

    async def begin_anew(self, instance_name: str, conversation_id: str, name: str, *, fence: int) -> str:
        """Continue on a new, empty branch of this name; return the name of the earlier one."""
        stack = await self._stack(instance_name, conversation_id, fence)
        with _sentences():
            branches = await stack.get_branch_info()
            if all(each.name != name for each in branches):
                await stack.begin_anew(name)
                return next(each.name for each in branches if each.is_current)
        log = await self._store.load(stack.key)
        origin = log.tree.segments[log.tree.named(name)].origin if log is not None else ""
        return origin.removeprefix("forked from ").rpartition(" with ")[0]

    async def checkout(self, instance_name: str, conversation_id: str, name: str, *, fence: int) -> int:
        """Continue on another branch; return its number of states."""
        stack = await self._stack(instance_name, conversation_id, fence)
        with _sentences():
            await stack.checkout(name)
            return await stack.length()

    async def rewind(
        self, instance_name: str, conversation_id: str, to: int | LogPlace, name: str, *, fence: int
    ) -> LeftBehind:
        """Remove the last exchanges (their number), or a message and all after it; branch `name` keeps them."""
        stack = await self._stack(instance_name, conversation_id, fence)
        with _sentences():
            if all(each.name != name for each in await stack.get_branch_info()):
                entries = await self._entries(stack.key)
                if isinstance(to, LogPlace):
                    length = await self._before(stack, entries, to)
                else:
                    length = _before_last(entries, to)
                await stack.truncate(length, name)
            kept = await stack.length()
            return replace(_summary((await self._entries(stack.key, name))[kept:]), branch=name)

    async def since(self, instance_name: str, conversation_id: str, place: LogPlace) -> LeftBehind:
        """Return the part that a rewind to before a message would remove."""
        stack = await self._stack(instance_name, conversation_id)
        entries = await self._entries(stack.key)
        return _summary(entries[await self._before(stack, entries, place) :])

    async def fork(self, instance_name: str, conversation_id: str, upto: LogPlace | None, into: str) -> None:
        """Copy a conversation, up to a place included, into a new one; `None`: up to its latest answer.

        With a blank `into`, only check that this is possible. The place may be on any branch.
        """
        stack = await self._stack(instance_name, conversation_id)
        async for entries in self._each_branch(stack):
            end = _latest_answer(entries) if upto is None else _end(entries, upto)
            if end is not None:
                break
        else:
            raise Refused(_NOT_READ)
        states = [each.state for each in entries[:end] if each.state is not None]
        if not into or not states:
            return
        copy = self._of(instance_name, into)
        with _sentences():
            if not await copy.length():
                await copy.push(*states)
            elif await copy.at(0) != states[0]:
                raise Refused(_OCCUPIED)

    async def export(self, instance_name: str, conversation_id: str) -> str:
        """Return the current branch as Markdown."""
        stack = await self._stack(instance_name, conversation_id)
        with _sentences():
            return "".join([piece async for piece in as_markdown(self._store, stack.key)])

    async def rate(self, instance_name: str, conversation_id: str, rating: Rating) -> None:
        """Store a rating of an answer, once, with the ref of the answer if a branch has it."""
        stack, ref = await self._stack(instance_name, conversation_id), ""
        async for entries in self._each_branch(stack):
            if (end := _end(entries, rating.place)) is not None:
                answers = [each for each in entries[:end] if (_row(each) or {}).get("role") == "assistant"]
                ref = answers[-1].ref if answers else ""
                break
        state = FeedbackState(
            rating.id, rating.message, ref, rating.user, float(rating.reward), rating.at_s, rating.comment
        )
        lock = self._ratings.setdefault(stack.key, asyncio.Lock())
        with _sentences():
            async with lock:
                await rate(self._store, stack.key, state)

    async def usage(self, instance_name: str, conversation_id: str) -> tuple[Usage, Usage]:
        """Return the usage of the current branch, and of its latest run."""
        stack = await self._stack(instance_name, conversation_id)
        rows = [row for row in map(_row, await self._entries(stack.key)) if row is not None]
        latest = max((number for number, row in enumerate(rows) if is_prompt(row)), default=0)
        return _usage(rows), _usage(rows[latest:])

    async def title(self, instance_name: str, conversation_id: str) -> str:
        """Return the first line of the first message; blank: there is none, or it was erased."""
        stack = self._of(instance_name, conversation_id)
        log = await self._store.load(stack.key)
        if log is None:
            return ""
        with _sentences():
            pieces = log.tree.pieces(log.tree.current, 0, min(log.tree.head.end, _TITLE_STATES))
            async for node in nodes(self._store, stack.key, pieces):
                row = _row(StackEntry(**entry_fields(stack.key, node)))
                if is_prompt(row):
                    text = text_of(row or {})
                    messages = read_messages(text)
                    return (messages[-1].text if messages else text).partition("\n")[0]  # without its files
        return ""

    def _of(self, instance_name: str, conversation_id: str) -> InteractionStack:
        return InteractionStack(self._store, conversation_id, instance_name)

    async def _stack(self, instance_name: str, conversation_id: str, fence: int | None = None) -> InteractionStack:
        stack = self._of(instance_name, conversation_id)
        with _sentences():
            if await self._store.load(stack.key) is None:
                raise Refused(_NO_LOG)
            if fence is not None:
                await stack.fence(fence)
        return stack

    async def _each_branch(self, stack: InteractionStack) -> AsyncIterator[list[StackEntry]]:
        """Yield the entries of each branch, of the current one first."""
        for branch in sorted(await stack.get_branch_info(), key=lambda branch: not branch.is_current):
            yield await self._entries(stack.key, branch.name)

    async def _before(self, stack: InteractionStack, current: Sequence[StackEntry], place: LogPlace) -> int:
        """Return the number of states of the current branch before a message."""
        index = _index(current, place.message_id)
        if index is not None:
            return index
        async for entries in self._each_branch(stack):
            if _index(entries, place.message_id) is not None:
                raise Refused(_ELSEWHERE)
        raise Refused(_NOT_READ)

    async def _entries(self, key: Key, branch: str | None = None) -> list[StackEntry]:
        """Return the entries of a branch; `None`: the current one."""
        log = await self._store.load(key)
        if log is None:
            return []
        with _sentences():
            number = log.tree.current if branch is None else log.tree.named(branch)
            pieces = log.tree.pieces(number, 0, log.tree.segments[number].end)
            return [StackEntry(**entry_fields(key, node)) async for node in nodes(self._store, key, pieces)]


def _row(entry: StackEntry) -> Row | None:
    return None if entry.state is None else row_of(entry.state)


def _index(entries: Sequence[StackEntry], message_id: str, *, or_again: bool = True) -> int | None:
    """Return the place of the row that delivers a message, or its latest repetition."""
    for number in range(len(entries) - 1, -1, -1):
        for each in delivered_ids_in(_row(entries[number])):
            if each == message_id or (or_again and each.startswith(f"{message_id}{AGAIN}")):
                return number
    return None


def _before_last(entries: Sequence[StackEntry], exchanges: int) -> int:
    """Return the number of states before the last exchanges."""
    prompts = [number for number, entry in enumerate(entries) if is_prompt(_row(entry))]
    if not prompts:
        raise Refused("There is nothing to rewind.")
    return prompts[-min(exchanges, len(prompts))]


def _end(entries: Sequence[StackEntry], place: LogPlace) -> int | None:
    """Return the number of states up to a place, included; `None`: it is not among them.

    The last text of a run includes the end of the run.
    """
    begin = _index(entries, place.message_id, or_again=place.part is None)
    if begin is None or place.part is None:
        return None if begin is None else begin + 1
    texts, end, found = InterimTexts(), begin + 1, begin + 1
    for number in range(begin, len(entries)):
        row = _row(entries[number])
        if number > begin and is_prompt(row):
            break
        end = number + 1
        if isinstance(entries[number].state, RunFinishedState):
            break
        if row is None:
            continue
        if texts.is_visible(row):
            if texts.next_number > place.part:
                return found
            found = end
        texts.add(row)
    return end


def _latest_answer(entries: Sequence[StackEntry]) -> int:
    """Return the number of states up to the end of the last finished run; all if none is recorded."""
    ends = [number + 1 for number, entry in enumerate(entries) if isinstance(entry.state, RunFinishedState)]
    return ends[-1] if ends else len(entries)


def _summary(entries: Sequence[StackEntry]) -> LeftBehind:
    """Count the messages of people and the answers, and list the files that tool calls have written to."""
    rows = [row for row in map(_row, entries) if row is not None]
    messages = {each for row in rows if "talk" not in metadata_of(row) for each in delivered_ids_in(row)}
    texts = [row for row in rows if row.get("role") == "assistant" and text_of(row).strip()]
    calls = [entry.state for entry in entries if isinstance(entry.state, ToolCallState)]
    results = (entry.state for entry in entries if isinstance(entry.state, ToolResultState))
    failed = {each.tool_call_id for each in results if isinstance(each.meta, dict) and each.meta.get("is_error")}
    paths = [
        str(call.arguments[name])
        for call in calls
        if call.id not in failed and any(word in call.function_name for word in _WRITES)
        for name in _PATHS
        if name in call.arguments
    ]
    workers = tuple(filter(None, map(_worker_title, calls)))
    return LeftBehind(len(messages), len(texts), tuple(dict.fromkeys(paths)), workers=workers)


def _worker_title(call: ToolCallState) -> str:
    """Return the title of the worker that a call dispatches; blank: it dispatches none."""
    match call.function_name, call.arguments:
        case "dispatch_worker", arguments:
            return str(arguments.get("title"))
        case "recipes", {"operation": "run", "recipe": recipe}:
            return f"Recipe {recipe}"
    return ""


def _usage(rows: Sequence[Row]) -> Usage:
    total = usage_in(rows)
    cost = None if total.cost_usd is None else float(total.cost_usd)
    return Usage(total.input_tokens, total.output_tokens, cost, total.cache_read_tokens)


@contextmanager
def _sentences() -> Iterator[None]:
    """Turn errors of the log into the connector's.

    Raises:
        Refused: the log does not allow the request.
        LeaseLost: another process owns the conversation.
    """
    try:
        yield
    except Fenced as e:
        raise LeaseLost from e
    except (NoSuchBranch, BranchExists) as e:
        raise Refused(str(e)) from e
    except InteractionError as e:
        raise Refused(f"The log of this conversation cannot be changed: {e}") from e
