"""Rules for contexts: they return messages in order and unchanged. `compaction` has the rules for compaction."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.validation.context.compaction import COMPACTION_RULES
from orchestrator_interactive.validation.context.conversations import additions, changes, is_as_added, rich_rows
from orchestrator_interactive.validation.context.memory import ContextFactory
from orchestrator_interactive.validation.report import Check
from orchestrator_interactive.validation.runner import Tolerated, kind, rule

if TYPE_CHECKING:
    from orchestrator_interactive.validation.context.memory import ContextProbe, Row
    from orchestrator_interactive.validation.runner import Problems, ValidationRule, Validator
    from orchestrator_interactive.validation.sandbox import SandboxSession


async def check_context(validator: Validator, sandboxes: SandboxSession) -> None:
    await validator.check_all((*RULES, *COMPACTION_RULES), ContextFactory(sandboxes))


@rule(
    Check(
        rule="messages come back in the order of the conversation",
        section="Validation Checklist",
        fix="Append each message, and return them in that order.",
    )
)
async def keeps_order(contexts: ContextFactory) -> Problems:
    rows: list[Row] = [{"role": ("user", "assistant")[n % 2], "content": f"Message {n}"} for n in range(12)]
    said = [row["content"] for row in rows]
    async with contexts.fresh(rows) as memory:
        return [
            f"{name}() gives another order, or other messages."
            for name, got in (
                ("get_messages", await memory.history()),
                ("get_messages_for_request", await _view(memory)),
            )
            if [row.get("content") for row in got if row.get("content") in said] != said
        ]


async def _view(memory: ContextProbe) -> list[Row]:
    return list(await memory.context.get_messages_for_request())


@rule(
    Check(
        rule="every message comes back as it was added",
        section="Message Format",
        fix="Keep the dictionaries as they are: tool calls, thinking with its signature, metadata, a content of None.",
    )
)
async def keeps_rows(contexts: ContextFactory) -> Problems:
    async with contexts.fresh(rich_rows()) as memory:
        got = await memory.history()
    if len(got) != len(rich_rows()):
        return [f"{len(rich_rows())} messages were added, and {len(got)} come back."]
    both = list(zip(rich_rows(), got, strict=True))
    if problems := [f"{_named(row)} came back with {what}." for row, back in both for what in changes(row, back)]:
        return problems
    if more := {name for row, back in both for name in additions(row, back)}:
        raise Tolerated(f"Messages come back with more than they were added with: {', '.join(sorted(more))}.")
    return []


@rule(
    Check(
        rule="a request shows the messages as they were added, while they fit",
        section="get_messages_for_request()",
        fix="Return the rows themselves if all of them fit; a provider needs the signatures and the ids.",
    )
)
async def shows_rows(contexts: ContextFactory) -> Problems:
    async with contexts.fresh(rich_rows()) as memory:
        view = await _view(memory)
    return [
        f"{_named(row)} is missing, or is not as it was added."
        for row in rich_rows()
        if not any(is_as_added(row, back) for back in view)
    ]


def _named(row: Row) -> str:
    return f"A message of the role '{row['role']}'"


@rule(
    Check(
        rule="set_messages() replaces the conversation",
        section="set_messages()",
        fix="Replace the list with a copy of the given one.",
    )
)
async def can_be_set(contexts: ContextFactory) -> Problems:
    async with contexts.fresh([{"role": "user", "content": "Of an earlier session"}]) as memory:
        given = rich_rows()
        await memory.context.set_messages(given)
        given.clear()
        got = list(await memory.context.get_messages())
        kept = [row for row in rich_rows() if any(is_as_added(row, back) for back in got)]
        if len(kept) != len(rich_rows()):
            return [f"After set_messages() with {len(rich_rows())} messages, {len(kept)} are unchanged."]
        old = [row for row in got if row.get("content") == "Of an earlier session"]
        return ["After set_messages() a message from before is still there."] if old else []


@rule(
    Check(
        rule="clear() forgets the conversation",
        section="clear()",
        fix="Empty the list and reset the token count.",
    )
)
async def can_be_cleared(contexts: ContextFactory) -> Problems:
    async with contexts.fresh(rich_rows()) as memory:
        await memory.context.clear()
        got = [*await memory.context.get_messages(), *await _view(memory)]
    left = any(is_as_added(row, back) for row in rich_rows() for back in got)
    return ["After clear() there are still messages."] if left else []


@rule(
    Check(
        rule="the lists that it returns are the caller's",
        section="get_messages()",
        fix="Return list(self._messages), not the list itself.",
    )
)
async def returns_copies(contexts: ContextFactory) -> Problems:
    problems = []
    async with contexts.fresh(rich_rows()) as memory:
        for name, got in (
            ("get_messages", await memory.context.get_messages()),
            ("get_messages_for_request", await memory.context.get_messages_for_request()),
        ):
            if not isinstance(got, list):
                problems.append(f"{name}() returns {kind(got)}, not a list.")
                continue
            there = len(await memory.history())
            got.clear()
            if len(await memory.history()) != there:
                problems.append(f"Emptying what {name}() returned empties the conversation.")
                await memory.context.set_messages(rich_rows())
    return problems


@rule(
    Check(
        rule="it leaves the caller's messages as they are",
        section="add_message()",
        fix="Copy a message before you change anything in it.",
        required=False,
    )
)
async def keeps_callers_rows(contexts: ContextFactory) -> Problems:
    rows: list[Any] = rich_rows()
    before = copy.deepcopy(rows)
    async with contexts.fresh(rows) as memory:
        await memory.context.get_messages_for_request(token_budget=1)
    return ["A message that was added is changed afterwards."] if rows != before else []


@rule(
    Check(
        rule="a message without a role is refused",
        section="add_message()",
        fix="Raise ValueError(\"Message must have 'role' field\").",
        required=False,
    )
)
async def refuses_missing_role(contexts: ContextFactory) -> Problems:
    async with contexts.fresh() as memory:
        try:
            await memory.context.add_message({"content": "Hello"})
        except (ValueError, KeyError, TypeError):
            return []
    return ["add_message() takes a message without 'role'."]


RULES: tuple[ValidationRule[ContextFactory], ...] = (
    keeps_order,
    keeps_rows,
    shows_rows,
    can_be_set,
    can_be_cleared,
    returns_copies,
    keeps_callers_rows,
    refuses_missing_role,
)
