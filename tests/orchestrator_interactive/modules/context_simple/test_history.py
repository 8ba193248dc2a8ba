"""A context at rest takes up little memory, and is otherwise as it was."""

from __future__ import annotations

import asyncio
from decimal import Decimal
from typing import Any

from context_histories import histories
from context_rows import a_context, said, tool_steps, user
from hypothesis import given
from hypothesis import strategies as st
from interaction_states import json_values
from stack_fixtures import StackFixture, add

from orchestrator_interactive.json_limits import MAX_ROW_NESTING
from orchestrator_interactive.testing import MockProvider

Row = dict[str, Any]

BUDGETS = st.lists(st.sampled_from([60, 120, 300, 600, 5000]), min_size=30, max_size=30)


@given(histories(), BUDGETS)
async def test_one_that_rests_after_every_row_shows_the_same_views(rows: list[Row], budgets: list[int]) -> None:
    resting, awake = await a_context(), await a_context()
    for row, budget in zip(rows, budgets, strict=False):
        await resting.add_message(row)
        await awake.add_message(row)
        resting.compress()
        view = await awake.get_messages_for_request(budget)
        assert await resting.get_messages_for_request(budget) == view
        resting.compress()
        assert resting.view_to_dict() == awake.view_to_dict()
    assert await resting.get_messages() == await awake.get_messages() == rows[: len(budgets)]


@given(st.lists(st.dictionaries(st.text(), json_values, max_size=3), max_size=3))
async def test_any_row_comes_back_as_it_was(rows: list[Row]) -> None:
    context = await a_context(*({**row, "role": "user"} for row in rows))
    before = await context.get_messages()
    context.compress()
    after = await context.get_messages()
    assert after == before
    assert repr(after) == repr(before)  # a true is no 1


async def test_what_is_no_plain_value_is_the_very_same_afterwards() -> None:
    class Tag(str):
        __slots__ = ()

    cost, tag = Decimal("0.10"), Tag("a")
    context = await a_context({"role": "user", "content": "x", "metadata": {"cost": cost, "tag": tag}})
    context.compress()
    (row,) = await context.get_messages()
    assert row["metadata"]["cost"] is cost
    assert row["metadata"]["tag"] is tag


async def test_a_row_that_is_very_deep_is_kept_too() -> None:
    deep: Any = "deep"
    for _ in range(MAX_ROW_NESTING - 1):
        deep = [deep]
    context = await a_context({"role": "user", "content": deep})
    context.compress()
    assert await context.get_messages() == [{"role": "user", "content": deep}]


async def test_rows_may_be_added_to_one_that_rests() -> None:
    context = await a_context(user("one"))
    for text in ("two", "three"):
        context.compress()
        await context.add_message(user(text))
    assert await context.get_messages() == [user("one"), user("two"), user("three")]


async def test_a_smaller_view_is_written_down_once_however_often_its_context_rests() -> None:
    house = StackFixture()
    context = house.context(max_tokens=400, strategy="summary", summary_max_tokens=60)
    provider = MockProvider(["They looked around."])
    await add(context, user("Look around."), *tool_steps(30))
    view = await context.get_messages_for_request(400, provider)
    length = await house.stack().length()
    for _ in range(2):
        context.compress()
        assert await context.get_messages_for_request(400, provider) == view
    assert await house.stack().length() == length
    assert provider.call_count == 1


async def test_a_context_may_come_to_rest_while_its_conversation_is_summed_up() -> None:
    class Slow(MockProvider):
        async def complete(self, request: Any, **more: Any) -> Any:
            asked.set()
            await may_answer.wait()
            return await super().complete(request, **more)

    asked, may_answer = asyncio.Event(), asyncio.Event()
    context = await a_context(user("Look around."), *tool_steps(30), strategy="summary", summary_max_tokens=60)
    asking = asyncio.create_task(context.get_messages_for_request(600, Slow(["They looked around."])))
    await asked.wait()
    context.compress()
    await context.add_message(said("There is more."))
    may_answer.set()
    view = await asking
    assert "They looked around." in str(view)
    assert view[-1] == said("There is more.")
