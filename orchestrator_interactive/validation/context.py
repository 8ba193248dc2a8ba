"""Scenarios for contexts: they return messages unchanged, and compact a long conversation without damage."""

from __future__ import annotations

import copy
import json
import re
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.contracts.models import ProviderInfo
from orchestrator_interactive.testing import MockProvider
from orchestrator_interactive.validation.runner import NotCheckedError, ToleratedError, kind
from orchestrator_interactive.validation.tool_pairs import call_ids, pair_problems, result_ids

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Sequence

    from orchestrator_interactive.kernel.contracts.protocols import ContextManager
    from orchestrator_interactive.validation.runner import Validator
    from orchestrator_interactive.validation.sandbox import Sandbox, Sandboxes

    Row = dict[str, Any]
    Scenario = Callable[["Contexts"], Coroutine[Any, Any, list[str]]]

_BUDGET = 3000
_BUDGETS = (800, 1200, 1700, 2300, _BUDGET, 4000, 5500, 7500)
# The contract subtracts both from a model's window.
_SAFETY_MARGIN_TOKENS, _OUTPUT_TOKENS = 1000, 1000
_CHARS_PER_TOKEN = 4
_TOLERANCE = 1.5  # each context estimates tokens differently
_TURNS = 24
_SYSTEM = "You are careful. [row-system]"
_FILLER = "The quick brown fox jumps over the lazy dog, and then it does so again. " * 6
_MARK = re.compile(r"\[row-(\w+)\]")
_EARLIER: Row = {"role": "user", "content": "Of an earlier session"}
_COMPACTION_EVENTS = (events.CONTEXT_PRE_COMPACT, events.CONTEXT_POST_COMPACT)


@dataclass(frozen=True, slots=True)
class ContextProbe:
    """A context in a session. `own_rows` is its number of initial rows, such as a system prompt."""

    context: ContextManager
    sandbox: Sandbox
    own_rows: int

    async def history(self) -> list[Row]:
        """Return all rows except the initial ones."""
        return list(await self.context.get_messages())[self.own_rows :]

    async def view(self, token_budget: int | None = None) -> list[Row]:
        return list(await self.context.get_messages_for_request(token_budget=token_budget))


@dataclass(frozen=True, slots=True)
class Contexts:
    sandboxes: Sandboxes

    @asynccontextmanager
    async def new(self, rows: Sequence[Row] = ()) -> AsyncIterator[ContextProbe]:
        """Open a new session whose context has these rows."""
        async with self.sandboxes.open() as sandbox:
            context: ContextManager = sandbox.all("context")[0].instance
            probe = ContextProbe(context, sandbox, own_rows=len(await context.get_messages()))
            for row in rows:
                await context.add_message(row)
            yield probe

    async def compacted(self, token_budget: int = _BUDGET) -> list[Row]:
        """Return the view of the long conversation."""
        async with self.new(_long_rows()) as probe:
            return await probe.view(token_budget)


class SmallProvider(MockProvider):
    """A provider whose model leaves room for `_BUDGET` tokens."""

    def get_info(self) -> ProviderInfo:
        window = _BUDGET + _OUTPUT_TOKENS + _SAFETY_MARGIN_TOKENS
        defaults = {"model": "small-1", "context_window": window, "max_output_tokens": _OUTPUT_TOKENS}
        return ProviderInfo(id=self.name, display_name="A small model", defaults=defaults)


async def check_context(validator: Validator, sandboxes: Sandboxes) -> None:
    for scenario in SCENARIOS:
        await validator.scenario(scenario.__name__, scenario(Contexts(sandboxes)))


async def keeps_order(contexts: Contexts) -> list[str]:
    rows: list[Row] = [{"role": ("user", "assistant")[n % 2], "content": f"Message {n}"} for n in range(12)]
    said = [row["content"] for row in rows]
    async with contexts.new(rows) as probe:
        both = (("get_messages", await probe.history()), ("get_messages_for_request", await probe.view()))
    return [
        f"{name}() gives another order, or other messages."
        for name, got in both
        if [row.get("content") for row in got if row.get("content") in said] != said
    ]


async def keeps_rows(contexts: Contexts) -> list[str]:
    async with contexts.new(_rich_rows()) as probe:
        got = await probe.history()
    if len(got) != len(_rich_rows()):
        return [f"{len(_rich_rows())} messages were added, and {len(got)} come back."]
    both = list(zip(_rich_rows(), got, strict=True))
    problems = [f"{_named(row)} came back with {what}." for row, back in both for what in _changes(row, back)]
    if not problems and (more := {name for row, back in both for name in _additions(row, back)}):
        raise ToleratedError(f"Messages come back with more than they were added with: {', '.join(sorted(more))}.")
    return problems


async def shows_rows(contexts: Contexts) -> list[str]:
    async with contexts.new(_rich_rows()) as probe:
        missing = _missing(await probe.view())
    return [f"{_named(row)} is missing, or is not as it was added." for row in missing]


async def can_be_set(contexts: Contexts) -> list[str]:
    async with contexts.new([_EARLIER]) as probe:
        given = _rich_rows()
        await probe.context.set_messages(given)
        given.clear()
        got = list(await probe.context.get_messages())
    if missing := _missing(got):
        count = len(_rich_rows())
        return [f"After set_messages() with {count} messages, {count - len(missing)} are unchanged."]
    is_left = any(row.get("content") == _EARLIER["content"] for row in got)
    return ["After set_messages() a message from before is still there."] if is_left else []


async def can_be_cleared(contexts: Contexts) -> list[str]:
    async with contexts.new(_rich_rows()) as probe:
        await probe.context.clear()
        got = [*await probe.context.get_messages(), *await probe.view()]
    return ["After clear() there are still messages."] if len(_missing(got)) < len(_rich_rows()) else []


async def returns_copies(contexts: Contexts) -> list[str]:
    problems = []
    for name in ("get_messages", "get_messages_for_request"):
        async with contexts.new(_rich_rows()) as probe:
            got = await getattr(probe.context, name)()
            before = len(await probe.history())
            if not isinstance(got, list):
                problems.append(f"{name}() returns {kind(got)}, not a list.")
                continue
            got.clear()
            if len(await probe.history()) != before:
                problems.append(f"Emptying what {name}() returned empties the conversation.")
    return problems


async def keeps_callers_rows(contexts: Contexts) -> list[str]:
    rows = _rich_rows()
    async with contexts.new(rows) as probe:
        await probe.view(token_budget=1)
    return ["A message that was added is changed afterwards."] if rows != _rich_rows() else []


async def refuses_missing_role(contexts: Contexts) -> list[str]:
    async with contexts.new() as probe:
        try:
            await probe.context.add_message({"content": "Hello"})
        except (ValueError, KeyError, TypeError):
            return []
    return ["add_message() takes a message without 'role'."]


async def fits_a_budget(contexts: Contexts) -> list[str]:
    view = await contexts.compacted()
    return [] if _is_smaller(view) else [_size_problem(view, "token_budget")]


async def fits_a_provider(contexts: Contexts) -> list[str]:
    async with contexts.new(_long_rows()) as probe:
        view = list(await probe.context.get_messages_for_request(provider=SmallProvider()))
    return [] if _is_smaller(view) else [_size_problem(view, "the window of the provider")]


async def fits_about(contexts: Contexts) -> list[str]:
    view = await contexts.compacted()
    return [_size_problem(view, "token_budget")] if _size(view) > _BUDGET * _CHARS_PER_TOKEN * _TOLERANCE else []


async def keeps_pairs(contexts: Contexts) -> list[str]:
    problems = []
    for budget in _BUDGETS:
        problems += [f"With a budget of {budget} tokens: {p}" for p in pair_problems(await contexts.compacted(budget))]
    waiting: set[str] = set()
    async with contexts.new() as probe:
        for row in _long_rows():
            await probe.context.add_message(row)
            waiting = waiting.union(call_ids(row)).difference(result_ids(row))
            if not waiting:
                problems += [f"As the conversation grows: {p}" for p in pair_problems(await probe.view(_BUDGET))]
    return problems


async def compaction_keeps_order(contexts: Contexts) -> list[str]:
    order = {mark: number for number, mark in enumerate(_marks(_long_rows()))}
    for budget in _BUDGETS:
        places = [order[mark] for mark in _marks(await contexts.compacted(budget)) if mark in order]
        if places != sorted(set(places)):
            return [f"With a budget of {budget} tokens messages are moved or doubled."]
    return []


async def keeps_system_rows(contexts: Contexts) -> list[str]:
    view = await contexts.compacted()
    return [] if any(row.get("content") == _SYSTEM for row in view) else ["The system message is left out."]


async def keeps_the_latest(contexts: Contexts) -> list[str]:
    async with contexts.new([*_long_rows(), {"role": "user", "content": "And this? [row-latest]"}]) as probe:
        shown = "latest" in _marks(await probe.view(_BUDGET))
    return [] if shown else ["The user's last message is left out."]


async def is_not_destructive(contexts: Contexts) -> list[str]:
    async with contexts.new(_long_rows()) as probe:
        before = copy.deepcopy(await probe.history())
        await probe.view(_BUDGET)
        after = await probe.history()
    if len(before) != len(after):
        return [f"get_messages() gives {len(before)} messages before a compaction, and {len(after)} after it."]
    return ["get_messages() gives other messages after a compaction than before it."] if before != after else []


async def is_reproducible(contexts: Contexts) -> list[str]:
    views = []
    for times in (2, 1):
        async with contexts.new(_long_rows()) as probe:
            for _ in range(times):
                # Contexts may store timestamps in the metadata.
                rows = [{name: row[name] for name in row if name != "metadata"} for row in await probe.view(_BUDGET)]
                views.append(copy.deepcopy(rows))
    problems = ["Two calls return different views."] if views[0] != views[1] else []
    return [
        *problems,
        *(["Two sessions with the same conversation get different views."] if views[0] != views[2] else []),
    ]


async def emits_compaction_events(contexts: Contexts) -> list[str]:
    async with contexts.new(_long_rows()) as probe:
        if not _is_smaller(await probe.view(_BUDGET)):
            raise NotCheckedError("It has compacted nothing.", "Let it compact first, see above.")
        problems = []
        for event in _COMPACTION_EVENTS:
            data = next((data for _, data in probe.sandbox.hooks.get_events(event)), None)
            counts = ("message_count", "token_count")
            missing = [name for name in counts if data is not None and not isinstance(data.get(name), int)]
            problems += [f"It compacts and does not emit {event}."] if data is None else []
            problems += [f"{event} lacks {' and '.join(missing)}."] if missing else []
    return problems


async def contributes_its_events(contexts: Contexts) -> list[str]:
    async with contexts.new() as probe:
        contributed = await probe.sandbox.contributed_events()
    return [f"It does not contribute {event}." for event in _COMPACTION_EVENTS if event not in contributed]


SCENARIOS: tuple[Scenario, ...] = (
    *(keeps_order, keeps_rows, shows_rows, can_be_set, can_be_cleared, returns_copies, keeps_callers_rows),
    *(refuses_missing_role, fits_a_budget, fits_a_provider, fits_about, keeps_pairs, compaction_keeps_order),
    *(keeps_system_rows, keeps_the_latest, is_not_destructive, is_reproducible, emits_compaction_events),
    contributes_its_events,
)


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
    rows: list[Row] = [
        {"role": "user", "content": "Read both files.", "metadata": {"injections": ["m-1"], "nested": {"a": [1]}}},
        {"role": "assistant", "content": blocks, "tool_calls": _calls(*read_both)},
        {"role": "tool", "tool_call_id": "call_1", "name": "read_file", "content": "Hello"},
        {**failed, "metadata": {"is_error": True}},
        {"role": "assistant", "content": None, "tool_calls": _calls(("call_3", "list_files", {}))},
        {"role": "tool", "tool_call_id": "call_3", "content": ""},
        {"role": "assistant", "content": "There is only a."},
    ]
    return copy.deepcopy(rows)


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


def _is_smaller(view: list[Row]) -> bool:
    return _size(view) < _size(_long_rows())


def _size_problem(view: list[Row], limit: str) -> str:
    tokens = _size(view) // _CHARS_PER_TOKEN
    return f"{len(view)} messages, about {tokens} tokens, come back where {limit} leaves room for {_BUDGET}."


def _named(row: Row) -> str:
    return f"A message of the role '{row['role']}'"


def _missing(rows: Sequence[Row]) -> list[Row]:
    """Return the rich rows that are not among these, unchanged except for additional fields."""
    return [row for row in _rich_rows() if all(any(_changes(row, back)) for back in rows)]


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
