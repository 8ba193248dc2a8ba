"""Scenarios for contexts: they return messages unchanged, and compact a long conversation without damage."""

from __future__ import annotations

import copy
import json
import re
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.contracts.models import ProviderInfo
from orchestrator_interactive.testing import MockProvider
from orchestrator_interactive.validation.runner import NotCheckedError, ToleratedError, kind, pair_problems

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator, Sequence

    from orchestrator_interactive.kernel.contracts.protocols import ContextManager
    from orchestrator_interactive.validation.runner import Sandbox, Sandboxes, Validator, Verdict

    Row = dict[str, Any]
    Verdicts = AsyncIterator[tuple[str, Verdict]]

_BUDGET = 3000
_OTHER_BUDGETS = (800, 1200, 1700, 2300, 4000, 5500, 7500)
# The contract subtracts both from a model's window.
_SAFETY_MARGIN_TOKENS, _OUTPUT_TOKENS = 1000, 1000
_CHARS_PER_TOKEN = 4
_TOLERANCE = 1.5  # each context estimates tokens differently
_TURNS = 24
_SYSTEM = "You are careful. [row-system]"
_FILLER = "The quick brown fox jumps over the lazy dog, and then it does so again. " * 6
_MARK = re.compile(r"\[row-(\w+)\]")
_EARLIER: Row = {"role": "user", "content": "Of an earlier session"}


class SmallProvider(MockProvider):
    """A provider whose model leaves room for `_BUDGET` tokens."""

    def get_info(self) -> ProviderInfo:
        window = _BUDGET + _OUTPUT_TOKENS + _SAFETY_MARGIN_TOKENS
        defaults = {"model": "small-1", "context_window": window, "max_output_tokens": _OUTPUT_TOKENS}
        return ProviderInfo(id=self.name, display_name="A small model", defaults=defaults)


async def check_context(validator: Validator, sandboxes: Sandboxes) -> None:
    await validator.scenario("keeps_rows", _kept(sandboxes))
    await validator.scenario("shows_rows returns_copies keeps_callers_rows", _shown(sandboxes))
    await validator.scenario("can_be_replaced", _replaced(sandboxes))
    await validator.scenario("refuses_missing_role", _without_role(sandboxes))
    await validator.scenario("fits_a_budget fits_a_provider fits_about", _limits(sandboxes))
    await validator.scenario("is_not_destructive is_reproducible emits_compaction_events", _repeated(sandboxes))
    await validator.scenario("keeps_pairs compaction_keeps_order keeps_the_latest", _budgets(sandboxes))


@asynccontextmanager
async def _session(sandboxes: Sandboxes, rows: Sequence[Row] = ()) -> AsyncIterator[tuple[ContextManager, Sandbox]]:
    """Open a new session whose context has these rows."""
    async with sandboxes.open() as sandbox:
        context: ContextManager = sandbox.all("context")[0].instance
        for row in rows:
            await context.add_message(row)
        yield context, sandbox


async def _view(context: ContextManager, token_budget: int | None = None) -> list[Row]:
    return list(await context.get_messages_for_request(token_budget=token_budget))


async def _kept(sandboxes: Sandboxes) -> Verdicts:
    async with _session(sandboxes) as (context, _):
        own = len(await context.get_messages())  # such as a system prompt
        for row in _rich_rows():
            await context.add_message(row)
        got = list(await context.get_messages())[own:]
    if len(got) != len(_rich_rows()):
        yield "keeps_rows", f"{len(_rich_rows())} messages were added, and {len(got)} come back."
        return
    pairs = list(zip(_rich_rows(), got, strict=True))
    for row, back in pairs:
        for change in _changes(row, back):
            yield "keeps_rows", f"A message of the role '{row['role']}' came back with {change}."
    if more := ", ".join(sorted({name for row, back in pairs for name in _additions(row, back)})):
        yield "keeps_rows", ToleratedError(f"Messages come back with more than they were added with: {more}.")


async def _shown(sandboxes: Sandboxes) -> Verdicts:
    rows = _rich_rows()
    async with _session(sandboxes, rows) as (context, _):
        for problem in _missing(await _view(context)):
            yield "shows_rows", f"In a request {problem}"
        for name in ("get_messages", "get_messages_for_request"):
            returned = await getattr(context, name)()
            if not isinstance(returned, list):
                yield "returns_copies", f"{name}() returns {kind(returned)}, not a list."
                continue
            copied, before = list(returned), len(await context.get_messages())
            returned.clear()
            if len(await context.get_messages()) != before:
                yield "returns_copies", f"Emptying what {name}() returned empties the conversation."
                returned.extend(copied)
        await _view(context, token_budget=1)
    if rows != _rich_rows():
        yield "keeps_callers_rows", "A message that was added is changed afterwards."


async def _replaced(sandboxes: Sandboxes) -> Verdicts:
    async with _session(sandboxes, [_EARLIER]) as (context, _):
        given = _rich_rows()
        await context.set_messages(given)
        given.clear()
        got = list(await context.get_messages())
        for problem in _missing(got):
            yield "can_be_replaced", f"After set_messages() {problem}"
        if any(row.get("content") == _EARLIER["content"] for row in got):
            yield "can_be_replaced", "After set_messages() a message from before is still there."
        await context.set_messages(_rich_rows())
        await context.clear()
        left = [*await context.get_messages(), *await _view(context)]
        if any(not any(_changes(row, back)) for row in _rich_rows() for back in left):
            yield "can_be_replaced", "After clear() there are still messages."


async def _without_role(sandboxes: Sandboxes) -> Verdicts:
    async with _session(sandboxes) as (context, _):
        try:
            await context.add_message({"content": "Hello"})
        except (ValueError, KeyError, TypeError):
            return
    yield "refuses_missing_role", "add_message() takes a message without 'role'."


async def _limits(sandboxes: Sandboxes) -> Verdicts:
    async with _session(sandboxes, _long_rows()) as (context, _):
        view = await _view(context, _BUDGET)
        of_provider = list(await context.get_messages_for_request(provider=SmallProvider()))
        limits = (("fits_a_budget", view, "token_budget"), ("fits_a_provider", of_provider, "the provider's window"))
        for key, rows, limit in limits:
            if _size(rows) >= _size(_long_rows()):
                yield key, _size_problem(rows, limit)
        if _size(view) > _BUDGET * _CHARS_PER_TOKEN * _TOLERANCE:
            yield "fits_about", _size_problem(view, "token_budget")


async def _repeated(sandboxes: Sandboxes) -> Verdicts:
    views = []
    for _ in range(2):
        async with _session(sandboxes, _long_rows()) as (context, sandbox):
            before = copy.deepcopy(await context.get_messages())
            views.append(_without_metadata(await _view(context, _BUDGET)))
            after = await context.get_messages()
            if len(before) != len(after):
                counts = f"{len(before)} messages before a compaction, and {len(after)} after it"
                yield "is_not_destructive", f"get_messages() gives {counts}."
            elif before != after:
                problem = "get_messages() gives other messages after a compaction than before it."
                yield "is_not_destructive", problem
            if views[-1] != _without_metadata(await _view(context, _BUDGET)):
                yield "is_reproducible", "Two calls return different views."
    if views[0] != views[1]:
        yield "is_reproducible", "Two sessions with the same conversation get different views."
    for verdict in await _event_verdicts(sandbox, compacts=_size(views[0]) < _size(_without_metadata(_long_rows()))):
        yield "emits_compaction_events", verdict


async def _event_verdicts(sandbox: Sandbox, *, compacts: bool) -> list[Verdict]:
    if not compacts:
        return [NotCheckedError("It has compacted nothing.", "Let it compact first, see above.")]
    verdicts: list[Verdict] = []
    contributed = await sandbox.contributed_events()
    for event in (events.CONTEXT_PRE_COMPACT, events.CONTEXT_POST_COMPACT):
        data = next((data for _, data in sandbox.recorded.get_events(event)), None)
        missing = [name for name in ("message_count", "token_count") if not isinstance((data or {}).get(name), int)]
        if data is None:
            verdicts.append(f"It compacts and does not emit {event}.")
        elif missing:
            verdicts.append(f"{event} lacks {' and '.join(missing)}.")
        if event not in contributed:
            verdicts.append(f"It does not contribute {event}.")
    return verdicts


async def _budgets(sandboxes: Sandboxes) -> Verdicts:
    """Compact the conversation while it grows, then by several budgets."""
    rows = _long_rows()
    order = {mark: number for number, mark in enumerate(_marks(rows))}
    views: list[tuple[str, list[Row]]] = []
    async with _session(sandboxes) as (context, _):
        for number, row in enumerate(_long_rows()):
            await context.add_message(row)
            if not any(pair_problems(rows[: number + 1])):
                view = await _view(context, _BUDGET)
                views.append(("As the conversation grows", view))
                if row["role"] == "user" and _marks([rows[number]])[0] not in _marks(view):
                    yield "keeps_the_latest", "The user's last message is left out."
        views += [(f"With a budget of {each} tokens", await _view(context, each)) for each in _OTHER_BUDGETS]
        if not any(row.get("content") == _SYSTEM for row in await _view(context, _BUDGET)):
            yield "keeps_the_latest", "The system message is left out."
    for when, view in views:
        for problem in pair_problems(view):
            yield "keeps_pairs", f"{when}: {problem}"
        places = [order[mark] for mark in _marks(view) if mark in order]
        if places != sorted(set(places)):
            yield "compaction_keeps_order", f"{when}: messages are moved or doubled."


def _calls(*named: tuple[str, str, dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the `tool_calls` of an assistant row for (id, tool, input) tuples."""
    return [
        {"id": call_id, "type": "function", "function": {"name": tool, "arguments": json.dumps(given)}}
        for call_id, tool, given in named
    ]


def _rich_rows() -> list[Row]:
    """Return a conversation with calls, signed thinking, metadata, and content of every form."""
    read_both = (("call_1", "read_file", {"path": "a"}), ("call_2", "read_file", {"path": "b"}))
    blocks = [
        {"type": "thinking", "thinking": "Two files, two calls.", "signature": "c2lnbmF0dXJl=="},
        {"type": "redacted_thinking", "data": "cmVkYWN0ZWQ="},
        {"type": "text", "text": "I read them. ✓"},
        *({"type": "tool_call", "id": call_id, "name": tool, "input": given} for call_id, tool, given in read_both),
    ]
    failed = {"role": "tool", "tool_call_id": "call_2", "name": "read_file", "content": "There is no file b."}
    return [
        {"role": "user", "content": "Read both files.", "metadata": {"injections": ["m-1"], "nested": {"a": [1]}}},
        {"role": "assistant", "content": blocks, "tool_calls": _calls(*read_both)},
        {"role": "tool", "tool_call_id": "call_1", "name": "read_file", "content": "Hello"},
        {**failed, "metadata": {"is_error": True}},
        {"role": "assistant", "content": None, "tool_calls": _calls(("call_3", "list_files", {}))},
        {"role": "tool", "tool_call_id": "call_3", "content": ""},
        {"role": "assistant", "content": "There is only a."},
    ]


def _long_rows() -> list[Row]:
    """Return a system row, then turns of a prompt, one to three parallel calls, their results, and an answer.

    About 120 rows and 12,000 tokens. Each row contains a mark that identifies it in a view.
    """
    rows: list[Row] = []
    for turn in range(_TURNS):
        ids = [f"call_{turn}_{number}" for number in range(turn % 3 + 1)]
        named = _calls(*((call_id, "read_file", {"path": call_id[-1]}) for call_id in ids))
        rows.append({"role": "user", "content": f"Question {turn}. {_FILLER}"})
        rows.append({"role": "assistant", "content": f"Looking {turn}.", "tool_calls": named})
        result: Row = {"role": "tool", "name": "read_file", "content": f"Found. {_FILLER}"}
        rows += [{**result, "tool_call_id": call_id} for call_id in ids]
        rows.append({"role": "assistant", "content": f"Answer {turn}. {_FILLER}"})
    marked = [{**row, "content": f"{row['content']} [row-{number}]"} for number, row in enumerate(rows)]
    return [{"role": "system", "content": _SYSTEM}, *marked]


def _marks(rows: Sequence[Row]) -> list[str]:
    """Return the marks of the rows, in order; rows with several marks are skipped."""
    found = [_MARK.findall(json.dumps(row.get("content"), default=str)) for row in rows]
    return [each[0] for each in found if len(each) == 1]


def _size(rows: Sequence[Row]) -> int:
    """Return the size of rows in characters of JSON."""
    return sum(len(json.dumps(row, default=str, ensure_ascii=False)) for row in rows)


def _size_problem(view: list[Row], limit: str) -> str:
    tokens = _size(view) // _CHARS_PER_TOKEN
    return f"{len(view)} messages, about {tokens} tokens, come back where {limit} leaves room for {_BUDGET}."


def _without_metadata(view: list[Row]) -> list[Row]:
    """Return a copy without metadata, in which contexts may store timestamps."""
    return copy.deepcopy([{name: row[name] for name in row if name != "metadata"} for row in view])


def _missing(rows: Sequence[Row]) -> Iterator[str]:
    """Yield each rich row that is not among these in the same order, unchanged except for additional fields."""
    start = 0
    for row in _rich_rows():
        same = (place for place in range(start, len(rows)) if not any(_changes(row, rows[place])))
        if (place := next(same, None)) is not None:
            start = place + 1
        else:
            yield f"a message of the role '{row['role']}' is missing, out of order, or not as it was added."


def _changes(row: Row, back: Row) -> Iterator[str]:
    """Yield descriptions of the changed fields of a row."""
    for name, value in row.items():
        got = back.get(name)
        if name == "metadata" and isinstance(got, dict):
            yield from (f"other metadata: {key}" for key in value if key not in got or got[key] != value[key])
        elif name not in back or got != value:
            yield f"another '{name}': {got!r} instead of {value!r}"


def _additions(row: Row, back: Row) -> Iterator[str]:
    """Yield the names of added fields."""
    yield from (name for name in back if name not in row and name != "metadata")
    yield from (f"metadata.{name}" for name in back.get("metadata") or () if name not in (row.get("metadata") or ()))
