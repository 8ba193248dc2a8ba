"""Rules for compaction: a smaller view that a provider accepts, and an unchanged history."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING

from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.validation.context.conversations import SYSTEM, call_free_ends, long_rows, marks, size
from orchestrator_interactive.validation.context.memory import Window
from orchestrator_interactive.validation.report import Check
from orchestrator_interactive.validation.runner import NotChecked, rule
from orchestrator_interactive.validation.tool_pairs import pair_problems

if TYPE_CHECKING:
    from orchestrator_interactive.validation.context.memory import ContextFactory, ContextProbe, Row
    from orchestrator_interactive.validation.runner import Problems, ValidationRule

_CHECKLIST = "Validation Checklist"
_VIEW = "get_messages_for_request()"
_PAIRS = "Tool Pair Preservation"
_LASTING = "Non-Destructive Compaction"

_BUDGET = 3000
_BUDGETS = (800, 1200, 1700, 2300, _BUDGET, 4000, 5500, 7500)
_CHARS_PER_TOKEN = 4
# Tolerance: each context estimates tokens differently.
_ROUGHLY = 1.5
_COUNTS = ("message_count", "token_count")


async def _view(memory: ContextProbe, budget: int = _BUDGET) -> list[Row]:
    return list(await memory.context.get_messages_for_request(token_budget=budget))


def _is_smaller(view: list[Row]) -> bool:
    return size(view) < size(long_rows())


@rule(
    Check(
        rule="a conversation that outgrows token_budget is compacted",
        section=_VIEW,
        fix="Leave out or summarise older messages in get_messages_for_request() until the rest fits the budget.",
    )
)
async def fits_a_budget(contexts: ContextFactory) -> Problems:
    async with contexts.fresh(long_rows()) as memory:
        view = await _view(memory)
    return [] if _is_smaller(view) else [_size_problem(view, "token_budget")]


@rule(
    Check(
        rule="a conversation that outgrows the provider's window is compacted",
        section=_VIEW,
        fix="Read context_window and max_output_tokens from provider.get_info().defaults, as the contract does.",
    )
)
async def fits_a_provider(contexts: ContextFactory) -> Problems:
    async with contexts.fresh(long_rows()) as memory:
        view = list(await memory.context.get_messages_for_request(provider=Window(_BUDGET)))
    return [] if _is_smaller(view) else [_size_problem(view, "the window of the provider")]


def _size_problem(view: list[Row], limit: str) -> str:
    tokens = size(view) // _CHARS_PER_TOKEN
    return f"{len(view)} messages, about {tokens} tokens, come back where {limit} leaves room for {_BUDGET}."


@rule(
    Check(
        rule="the view roughly fits the budget",
        section=_CHECKLIST,
        fix="Count tokens, a quarter of the characters where you have nothing better, and compact until it fits.",
        required=False,
    )
)
async def fits_about(contexts: ContextFactory) -> Problems:
    async with contexts.fresh(long_rows()) as memory:
        view = await _view(memory)
    return [_size_problem(view, "token_budget")] if size(view) / _CHARS_PER_TOKEN > _BUDGET * _ROUGHLY else []


@rule(
    Check(
        rule="compaction never separates a tool call from its results",
        section=_PAIRS,
        fix="Cut only where no result is waiting for its call: keep an assistant row and all its results, or neither.",
    )
)
async def keeps_pairs(contexts: ContextFactory) -> Problems:
    problems = []
    for budget in _BUDGETS:
        async with contexts.fresh(long_rows()) as memory:
            view = await _view(memory, budget)
            problems += [f"With a budget of {budget} tokens: {problem}" for problem in pair_problems(view)]
    async with contexts.fresh() as memory:
        for row, may_ask in call_free_ends(long_rows()):
            await memory.context.add_message(row)
            if may_ask:
                problems += [f"As the conversation grows: {p}" for p in pair_problems(await _view(memory))]
    return problems


@rule(
    Check(
        rule="compaction keeps the order of the conversation",
        section=_CHECKLIST,
        fix="Leave messages out; do not move them.",
    )
)
async def keeps_order(contexts: ContextFactory) -> Problems:
    order = {mark: number for number, mark in enumerate(marks(long_rows()))}
    for budget in _BUDGETS:
        async with contexts.fresh(long_rows()) as memory:
            places = [order[mark] for mark in marks(await _view(memory, budget)) if mark in order]
        if places != sorted(set(places)):
            return [f"With a budget of {budget} tokens messages are moved or doubled."]
    return []


@rule(
    Check(
        rule="compaction keeps the system messages",
        section=_CHECKLIST,
        fix="Put the rows of the role 'system' into every view.",
        required=False,
    )
)
async def keeps_system_rows(contexts: ContextFactory) -> Problems:
    async with contexts.fresh(long_rows()) as memory:
        view = await _view(memory)
    return [] if any(row.get("content") == SYSTEM for row in view) else ["The system message is left out."]


@rule(
    Check(
        rule="compaction keeps the latest message",
        section="Compaction Strategies",
        fix="Leave out the oldest messages first.",
        required=False,
    )
)
async def keeps_the_latest(contexts: ContextFactory) -> Problems:
    latest: Row = {"role": "user", "content": "And this? [row-latest]"}
    async with contexts.fresh([*long_rows(), latest]) as memory:
        return [] if "latest" in marks(await _view(memory)) else ["The user's last message is left out."]


@rule(
    Check(
        rule="compaction leaves the history as it is",
        section=_LASTING,
        fix="Make the view from a copy; get_messages() returns everything, always.",
    )
)
async def is_not_destructive(contexts: ContextFactory) -> Problems:
    async with contexts.fresh(long_rows()) as memory:
        before = copy.deepcopy(await memory.history())
        await _view(memory)
        after = await memory.history()
    if len(before) != len(after):
        return [f"get_messages() gives {len(before)} messages before a compaction, and {len(after)} after it."]
    return ["get_messages() gives other messages after a compaction than before it."] if before != after else []


@rule(
    Check(
        rule="the same conversation gives the same view",
        section=_LASTING,
        fix="Depend only on the messages and the budget, not on chance or time.",
    )
)
async def is_reproducible(contexts: ContextFactory) -> Problems:
    async with contexts.fresh(long_rows()) as memory:
        one = _shown(await _view(memory))
        two = _shown(await _view(memory))
    async with contexts.fresh(long_rows()) as memory:
        three = _shown(await _view(memory))
    problems = ["Two calls return different views."] if one != two else []
    return [*problems, *(["Two sessions with the same conversation get different views."] if one != three else [])]


def _shown(view: list[Row]) -> list[Row]:
    """Return the rows without metadata, in which contexts may store timestamps."""
    return [{name: copy.deepcopy(value) for name, value in row.items() if name != "metadata"} for row in view]


@rule(
    Check(
        rule="it emits context:pre_compact and context:post_compact",
        section="Observability",
        fix="Emit both, with message_count and token_count, around every compaction.",
        required=False,
    )
)
async def emits_compaction_events(contexts: ContextFactory) -> Problems:
    async with contexts.fresh(long_rows()) as memory:
        if not _is_smaller(await _view(memory)):
            raise NotChecked("It has compacted nothing.", "Let it compact first, see above.")
        problems = []
        for event in (events.CONTEXT_PRE_COMPACT, events.CONTEXT_POST_COMPACT):
            emitted = memory.hooks.of(event)
            missing = [name for name in _COUNTS if emitted and not isinstance(emitted[0].get(name), int)]
            problems += [] if emitted else [f"It compacts and does not emit {event}."]
            problems += [f"{event} lacks {' and '.join(missing)}."] if missing else []
    return problems


@rule(
    Check(
        rule="it contributes its compaction events to observability.events",
        section="Observability",
        fix="Call coordinator.register_contributor('observability.events', 'my-context', lambda: […both names…]).",
        required=False,
    )
)
async def contributes_its_events(contexts: ContextFactory) -> Problems:
    async with contexts.fresh() as memory:
        contributed = await memory.sandbox.contributed_events()
    wanted = (events.CONTEXT_PRE_COMPACT, events.CONTEXT_POST_COMPACT)
    return [f"It does not contribute {event}." for event in wanted if event not in contributed]


COMPACTION_RULES: tuple[ValidationRule[ContextFactory], ...] = (
    fits_a_budget,
    fits_a_provider,
    fits_about,
    keeps_pairs,
    keeps_order,
    keeps_system_rows,
    keeps_the_latest,
    is_not_destructive,
    is_reproducible,
    emits_compaction_events,
    contributes_its_events,
)
