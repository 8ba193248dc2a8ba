"""A context that `compress()` compresses returns the same rows and views."""

import asyncio
from decimal import Decimal
from typing import Any

from context_histories import histories
from context_rows import a_context, said, tool_steps, user
from hypothesis import given
from hypothesis import strategies as st
from interaction_states import json_values
from stack_fixtures import StackFixture, add

from orchestrator_interactive.testing import MockProvider

Row = dict[str, Any]

BUDGETS = st.lists(st.sampled_from([60, 120, 300, 600, 5000]), min_size=30, max_size=30)


@given(histories(), BUDGETS)
async def test_the_views_are_the_same_after_a_rest_at_every_row(rows: list[Row], budgets: list[int]) -> None:
    resting, other = await a_context(), await a_context()
    for row, budget in zip(rows, budgets, strict=False):
        await resting.add_message(row)
        await other.add_message(row)
        resting.compress()
        view = await other.get_messages_for_request(budget)
        assert await resting.get_messages_for_request(budget) == view
        resting.compress()
        assert resting.view_to_dict() == other.view_to_dict()
    assert await resting.get_messages() == await other.get_messages() == rows[: len(budgets)]


@given(st.lists(st.dictionaries(st.text(), json_values, max_size=3), max_size=3))
async def test_any_row_is_returned_unchanged(rows: list[Row]) -> None:
    context = await a_context(*({**row, "role": "user"} for row in rows))
    before = await context.get_messages()
    context.compress()
    after = await context.get_messages()
    assert after == before
    assert repr(after) == repr(before)  # True stays True, not 1


async def test_objects_that_json_cannot_represent_are_kept() -> None:
    class Tag(str):
        __slots__ = ()

    cost, tag = Decimal("0.10"), Tag("a")
    context = await a_context({"role": "user", "content": "x", "metadata": {"cost": cost, "tag": tag}})
    context.compress()
    (row,) = await context.get_messages()
    assert row["metadata"]["cost"] is cost
    assert row["metadata"]["tag"] is tag


async def test_a_view_is_stored_once_however_often_the_context_rests() -> None:
    fixture = StackFixture()
    context = fixture.context(max_tokens=400, strategy="summary", summary_max_tokens=60)
    provider = MockProvider(["They looked around."])
    await add(context, user("Look around."), *tool_steps(30))
    view = await context.get_messages_for_request(400, provider)
    length = await fixture.stack().length()
    for _ in range(2):
        context.compress()
        assert await context.get_messages_for_request(400, provider) == view
    assert await fixture.stack().length() == length
    assert provider.call_count == 1


async def test_a_context_may_rest_during_a_summary() -> None:
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
