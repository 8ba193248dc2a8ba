"""What `context-simple` keeps and shows, and when it shows less."""

from __future__ import annotations

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

from orchestrator_interactive.kernel import HookResult, ProviderInfo
from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.modules import context_simple

Row = dict[str, Any]


class ProviderOf:
    def __init__(self, **defaults: int) -> None:
        self._defaults = defaults

    def get_info(self) -> ProviderInfo:
        return ProviderInfo(id="p", display_name="P", defaults=self._defaults)


async def test_it_mounts_as_the_context_and_announces_its_events() -> None:
    coordinator = a_coordinator()
    context = await context_simple.mount(coordinator, {})
    assert coordinator.get("context") is context
    assert await coordinator.collect_contributions("observability.events") == [
        [events.CONTEXT_PRE_COMPACT, events.CONTEXT_POST_COMPACT]
    ]


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"max_token": 5}, "context-simple: there is no 'max_token'; there are: system_prompt, max_tokens"),
        ({"max_tokens": 0}, "'max_tokens'"),
        ({"compaction_threshold": 1.5}, "'compaction_threshold'"),
        ({"strategy": "forget"}, "'strategy'"),
        ({"summary_max_tokens": 0}, "'summary_max_tokens'"),
        ({"summary_timeout_s": 0}, "'summary_timeout_s'"),
    ],
)
async def test_a_wrong_option_is_named(config: dict[str, Any], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        await a_context(**config)


async def test_rows_come_back_as_they_were_added() -> None:
    context = await a_context()
    rows = [user("look"), *a_tool_step(1), said("all fine")]
    for row in rows:
        await context.add_message(row)
    assert await context.get_messages() == rows
    assert await context.get_messages_for_request() == rows


async def test_a_row_without_a_role_is_refused() -> None:
    context = await a_context()
    with pytest.raises(ValueError, match="'role'"):
        await context.add_message({"content": "who am I?"})


async def test_the_system_prompt_leads_requests_and_is_not_part_of_the_history() -> None:
    context = await a_context(user("hello"), system_prompt="Be kind.")
    assert (await context.get_messages_for_request())[0] == {"role": "system", "content": "Be kind."}
    assert await context.get_messages() == [user("hello")]


async def test_nobody_can_damage_the_history_through_a_row_given_or_taken() -> None:
    context = await a_context()
    given = calls("c1")
    await context.add_message(given)
    given["content"].clear()
    taken = await context.get_messages()
    taken[0]["content"][0]["input"]["at"] = "elsewhere"
    taken.clear()
    (await context.get_messages_for_request()).clear()
    assert await context.get_messages() == [calls("c1")]


async def test_set_messages_resumes_and_clear_forgets() -> None:
    context = await a_context(user("before"), said("yes"))
    assert await context.get_messages() == [user("before"), said("yes")]
    await context.clear()
    assert await context.get_messages_for_request() == []


async def test_thinking_survives_compaction_and_a_resumed_session_byte_for_byte() -> None:
    redacted = {"type": "redacted_thinking", "data": "cmVkYWN0ZWQ="}
    rows = [user("the task"), *tool_steps(30), calls("t", before=(thinking("One look …"), redacted)), result("t")]
    context = await a_context(*rows)
    view = await context.get_messages_for_request(token_budget=600)
    assert [json.dumps(row) for row in view[-2:]] == [json.dumps(row) for row in rows[-2:]]
    resumed = await a_context(*(await context.get_messages()))
    assert json.dumps(await resumed.get_messages()) == json.dumps(rows)
    assert json.dumps(await resumed.get_messages_for_request(token_budget=600)) == json.dumps(view)


async def test_a_long_conversation_is_cut_and_a_note_says_how_much() -> None:
    rows = [row for n in range(40) for row in (user(f"question {n}"), said("answer " * 20))]
    context = await a_context(*rows)
    view = await context.get_messages_for_request(token_budget=500)
    assert is_note(view[0])
    assert view[1:] == rows[-len(view) + 1 :]
    assert f"{len(rows) - len(view) + 1} earlier messages" in view[0]["content"]
    assert await context.get_messages() == rows


async def test_the_prompt_of_the_task_and_what_was_steered_outlast_its_many_steps() -> None:
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


async def test_the_last_step_stays_even_where_it_is_larger_than_the_budget() -> None:
    context = await a_context(
        user("task"), *a_tool_step(1), calls("a", "b"), result("a", "x" * 9000), result("b"), steer("and the attic")
    )
    view = await context.get_messages_for_request(token_budget=100)
    assert answered(view) == ["a", "b"]
    assert called(view) == ["a", "b"]
    assert view[-1] == steer("and the attic")


async def test_the_beginning_of_the_view_rests_between_cuts() -> None:
    context = await a_context(user("the task"))
    heads = []
    for number in range(100):
        for row in a_tool_step(number):
            await context.add_message(row)
        view = await context.get_messages_for_request(token_budget=1500)
        heads.append(json.dumps(view[:3]))
    cuts = sum(1 for one, other in pairwise(heads[1:]) if one != other)
    assert 1 <= cuts <= 30  # a view that moved with every step would be cut about 80 times


async def test_a_new_task_does_not_disturb_the_view() -> None:
    context = await a_context(user("the task"), *tool_steps(40))
    before = await context.get_messages_for_request(token_budget=1500)
    await context.add_message(said("done"))
    await context.add_message(user("another task"))
    after = await context.get_messages_for_request(token_budget=1500)
    assert after == [*before, said("done"), user("another task")]


async def test_a_larger_budget_shows_everything_again() -> None:
    rows = [user("the task"), *tool_steps(40)]
    context = await a_context(*rows)
    assert len(await context.get_messages_for_request(token_budget=1500)) < len(rows)
    assert await context.get_messages_for_request(token_budget=100_000) == rows


@pytest.mark.parametrize(
    ("defaults", "is_cut"),
    [
        ({"context_window": 200_000, "max_output_tokens": 8_000}, False),
        ({"context_window": 3_000, "max_output_tokens": 1_000}, True),
        ({}, True),
    ],
)
async def test_the_budget_follows_the_provider_and_else_the_configuration(
    defaults: dict[str, int], is_cut: bool
) -> None:
    rows = [user("the task"), *tool_steps(40)]
    context = await a_context(*rows, max_tokens=1_000)
    view = await context.get_messages_for_request(provider=ProviderOf(**defaults))
    assert (len(view) < len(rows)) is is_cut


async def test_a_cut_is_told_before_and_after_and_only_when_it_moves() -> None:
    coordinator = a_coordinator()
    told: list[tuple[str, dict[str, Any]]] = []

    async def listen(event: str, data: dict[str, Any]) -> HookResult:
        told.append((event, data))
        return HookResult()

    for event in (events.CONTEXT_PRE_COMPACT, events.CONTEXT_POST_COMPACT):
        coordinator.hooks.register(event, listen)
    context = await context_simple.mount(coordinator, {"max_tokens": 1_000})
    await context.set_messages([user("the task"), *tool_steps(40)])
    for _ in range(3):
        view = await context.get_messages_for_request()
    ((before, whole), (after, cut)) = told
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
