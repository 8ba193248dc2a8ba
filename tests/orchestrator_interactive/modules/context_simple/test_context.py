"""The history of `context-simple`, its requests, and their size."""

import asyncio
import inspect
import json
from itertools import pairwise
from typing import Any

import pytest
from context_rows import (
    a_context,
    a_coordinator,
    a_tool_step,
    answered,
    called,
    calls,
    is_note,
    result,
    said,
    steer,
    thinking,
    tool_steps,
    user,
)

from orchestrator_interactive.kernel import AmplifierSession, HookResult, ProviderInfo
from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.contracts.protocols import ContextManager
from orchestrator_interactive.modules import context_simple

Row = dict[str, Any]


class ProviderOf:
    """As much of a provider as a context uses; it fails without defaults."""

    def __init__(self, defaults: dict[str, int] | None) -> None:
        self._defaults = defaults

    def get_info(self) -> ProviderInfo:
        if self._defaults is None:
            raise ConnectionError("offline")
        return ProviderInfo(id="p", display_name="P", defaults=self._defaults)


async def test_it_mounts_as_the_context_and_contributes_its_events() -> None:
    coordinator = a_coordinator()
    context = await context_simple.mount(coordinator, {})
    assert isinstance(context, ContextManager)
    assert coordinator.get("context") is context
    parameters = inspect.signature(context.get_messages_for_request).parameters
    assert {name: each.default for name, each in parameters.items()} == {"token_budget": None, "provider": None}
    assert await coordinator.collect_contributions("observability.events") == [
        [events.CONTEXT_PRE_COMPACT, events.CONTEXT_POST_COMPACT]
    ]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (
            {"max_token": 5},
            "context-simple: there is no 'max_token'; did you mean 'max_tokens'. There are: system_prompt, max_tokens",
        ),
        ({"max_tokens": 0}, "'max_tokens'"),
        ({"compaction_threshold": 1.5}, "'compaction_threshold'"),
        ({"strategy": "forget"}, "'strategy'"),
        ({"summary_max_tokens": 0}, "'summary_max_tokens'"),
        ({"summary_timeout_s": 0}, "'summary_timeout_s'"),
    ],
)
async def test_the_error_names_a_wrong_option(config: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        await a_context(**config)


async def test_rows_are_returned_as_they_were_added() -> None:
    openai = {"id": "c2", "type": "function", "function": {"name": "read", "arguments": "{}"}}
    call = {"role": "assistant", "content": None, "tool_calls": [openai]}
    rows = [user("look"), *a_tool_step(1), call, result("c2"), {"role": "system", "content": "Be kind."}, said("ok")]
    context = await a_context()
    for row in rows:
        await context.add_message(row)
    assert await context.get_messages() == rows
    assert await context.get_messages_for_request() == rows


@pytest.mark.parametrize("row", [{"content": "who am I?"}, {"role": "", "content": "x"}, {}], ids=str)
async def test_a_row_without_a_role_is_refused(row: Row) -> None:
    context = await a_context()
    with pytest.raises(ValueError, match="'role'"):
        await context.add_message(row)
    assert await context.get_messages() == []


async def test_the_configured_system_prompt_leads_requests_and_is_not_in_the_history() -> None:
    plan = {"session": {"orchestrator": "loop-interactive", "context": "context-simple"}}
    async with AmplifierSession({**plan, "context": {"config": {"system_prompt": "Be kind."}}}) as session:
        context = session.coordinator.get("context")
        await context.add_message(user("hello"))
        assert await context.get_messages_for_request() == [{"role": "system", "content": "Be kind."}, user("hello")]
        assert await context.get_messages() == [user("hello")]


async def test_changes_to_a_row_given_or_taken_do_not_change_the_history() -> None:
    context = await a_context()
    given = calls("c1")
    await context.add_message(given)
    given["content"].clear()
    taken = await context.get_messages()
    taken[0]["content"][0]["input"]["at"] = "elsewhere"
    taken.clear()
    (await context.get_messages_for_request()).clear()
    assert await context.get_messages() == [calls("c1")]


async def test_set_messages_replaces_the_history_and_clear_empties_it() -> None:
    context = await a_context(user("forgotten"))
    await context.set_messages([user("before"), said("yes")])
    assert await context.get_messages() == [user("before"), said("yes")]
    await context.clear()
    assert await context.get_messages() == await context.get_messages_for_request() == []


async def test_thinking_is_kept_byte_for_byte_through_compaction_and_resume() -> None:
    redacted = {"type": "redacted_thinking", "data": "cmVkYWN0ZWQ="}
    rows = [user("the task"), *tool_steps(30), calls("t", before=(thinking("One look …"), redacted)), result("t")]
    context = await a_context(*rows)
    view = await context.get_messages_for_request(token_budget=600)
    assert [json.dumps(row) for row in view[-2:]] == [json.dumps(row) for row in rows[-2:]]
    resumed = await a_context(*(await context.get_messages()))
    assert json.dumps(await resumed.get_messages()) == json.dumps(rows)
    assert json.dumps(await resumed.get_messages_for_request(token_budget=600)) == json.dumps(view)


async def test_a_long_conversation_is_cut_and_a_note_gives_the_number_of_messages() -> None:
    rows = [row for n in range(40) for row in (user(f"question {n}"), said("answer " * 20))]
    context = await a_context(*rows)
    view = await context.get_messages_for_request(token_budget=500)
    assert is_note(view[0])
    assert view[1:] == rows[-len(view) + 1 :]
    assert f"{len(rows) - len(view) + 1} earlier messages" in view[0]["content"]
    assert await context.get_messages() == rows


async def test_the_prompt_and_the_injections_of_a_task_are_kept_through_its_many_steps() -> None:
    rows = [user("old"), said("old answer"), user("the task"), *a_tool_step(0), steer("not the cellar")]
    rows += tool_steps(1, 40)
    context = await a_context(*rows)
    view = await context.get_messages_for_request(token_budget=900)
    assert is_note(view[0])
    assert view[1:3] == [user("the task"), steer("not the cellar")]
    assert view[-2:] == rows[-2:]


async def test_system_rows_are_kept() -> None:
    rule = {"role": "system", "content": "Never shout."}
    context = await a_context(user("a"), rule, *(said("words " * 30) for _ in range(30)))
    view = await context.get_messages_for_request(token_budget=300)
    assert is_note(view[0])
    assert view[1:3] == [user("a"), rule]


async def test_the_last_step_is_kept_even_if_it_exceeds_the_budget() -> None:
    context = await a_context(
        user("task"), *a_tool_step(1), calls("a", "b"), result("a", "x" * 9000), result("b"), steer("and the attic")
    )
    view = await context.get_messages_for_request(token_budget=100)
    assert answered(view) == ["a", "b"]
    assert called(view) == ["a", "b"]
    assert view[-1] == steer("and the attic")


async def test_the_beginning_of_the_view_is_stable_between_cuts() -> None:
    context = await a_context(user("the task"))
    heads = []
    for number in range(100):
        for row in a_tool_step(number):
            await context.add_message(row)
        view = await context.get_messages_for_request(token_budget=1500)
        heads.append(json.dumps(view[:3]))
    cuts = sum(1 for one, other in pairwise(heads[1:]) if one != other)
    assert 1 <= cuts <= 30  # a view that moved with every step would be cut about 80 times


async def test_a_new_task_leaves_the_view_unchanged() -> None:
    context = await a_context(user("the task"), *tool_steps(40))
    before = await context.get_messages_for_request(token_budget=1500)
    await context.add_message(said("done"))
    await context.add_message(user("another task"))
    after = await context.get_messages_for_request(token_budget=1500)
    assert after == [*before, said("done"), user("another task")]


async def test_compaction_changes_no_history_and_a_larger_budget_shows_everything_again() -> None:
    rows = [user("the task"), *tool_steps(40)]
    context = await a_context(*rows)
    for budget in (60, 100, 1500, 300):
        view = await context.get_messages_for_request(token_budget=budget)
        assert len(view) < len(rows)
        assert called(view) == answered(view) != []
        assert await context.get_messages() == rows
    assert await context.get_messages_for_request(token_budget=100_000) == rows


@pytest.mark.parametrize(
    ("budget", "defaults", "is_cut"),
    [
        (None, {"context_window": 200_000, "max_output_tokens": 8_000}, False),
        (1_500, {"context_window": 200_000, "max_output_tokens": 8_000}, True),
        (None, {"context_window": 3_000, "max_output_tokens": 1_000}, True),
        (None, {"context_window": 4_000, "max_output_tokens": 1_000}, True),  # a safety margin is subtracted
        (None, {"context_window": 200_000}, True),
        (None, {}, True),
        (None, None, True),
    ],
)
async def test_the_budget_is_the_given_one_or_the_providers_or_the_configured_one(budget, defaults, *, is_cut) -> None:
    rows = [user("the task"), *tool_steps(40)]
    context = await a_context(*rows, max_tokens=1_000)
    view = await context.get_messages_for_request(token_budget=budget, provider=ProviderOf(defaults))
    assert (len(view) < len(rows)) is is_cut


@pytest.mark.parametrize(("threshold", "is_cut"), [(0.1, True), (1.0, False)])
async def test_compaction_starts_at_the_configured_threshold(threshold: float, *, is_cut: bool) -> None:
    rows = [user("the task"), *tool_steps(20)]
    view = await (await a_context(*rows, compaction_threshold=threshold)).get_messages_for_request(token_budget=3_000)
    assert (len(view) < len(rows)) is is_cut


async def test_concurrent_calls_of_many_tasks_keep_every_row() -> None:
    context, rows = await a_context(), [user(f"message {number}") for number in range(50)]
    adding = [context.add_message(row) for row in rows]
    reading = [context.get_messages_for_request(token_budget=200) for _ in rows]
    await asyncio.gather(*(task for pair in zip(adding, reading, strict=True) for task in pair))
    assert await context.get_messages() == rows


async def test_events_before_and_after_a_new_cut_have_its_sizes() -> None:
    coordinator = a_coordinator()
    recorded: list[tuple[str, dict[str, Any]]] = []

    async def listen(event: str, data: dict[str, Any]) -> HookResult:
        recorded.append((event, data))
        return HookResult()

    for event in (events.CONTEXT_PRE_COMPACT, events.CONTEXT_POST_COMPACT):
        coordinator.hooks.register(event, listen)
    context = await context_simple.mount(coordinator, {"max_tokens": 1_000})
    await context.set_messages([user("the task"), *tool_steps(40)])
    for _ in range(3):
        view = await context.get_messages_for_request()
    ((before, whole), (after, cut)) = recorded
    assert [before, after] == [events.CONTEXT_PRE_COMPACT, events.CONTEXT_POST_COMPACT]
    assert [whole["strategy"], cut["strategy"]] == ["drop", "drop"]
    assert whole["message_count"] == 81
    assert cut["message_count"] == len(view)
    assert whole["token_count"] > 800 >= cut["token_count"]
    assert "usage" not in cut


async def test_each_row_is_measured_once() -> None:
    class Measured:
        """Something that JSON does not know, and that counts how often it is written down."""

        times = 0

        def __str__(self) -> str:
            Measured.times += 1
            return "x"

    context = await a_context(max_tokens=300)
    await context.add_message({"role": "user", "content": [{"type": "odd", "holds": Measured()}]})
    for row in tool_steps(40):
        await context.add_message(row)
        await context.get_messages_for_request()
    assert Measured.times == 1
