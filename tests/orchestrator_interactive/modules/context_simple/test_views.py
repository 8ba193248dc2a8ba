"""The rows that a view omits or shortens. `test_views_properties.py` checks the properties of every view."""

from typing import Any

import pytest
from context_rows import (
    a_context,
    a_coordinator,
    a_tool_step,
    called,
    calls,
    from_hook,
    is_shortened,
    late,
    notice,
    pending,
    problems,
    result,
    said,
    size,
    steer,
    tool_steps,
    user,
)

from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.loop.injection_queue import PREFIX
from orchestrator_interactive.modules import context_simple
from orchestrator_interactive.testing import EventRecorder
from orchestrator_interactive.transcript.rows import is_prompt

Row = dict[str, Any]


@pytest.mark.parametrize("other", [steer("more"), notice("a door fell shut"), from_hook("careful", "user"), late("c1")])
async def test_an_injection_a_notice_and_a_late_result_are_not_prompts(other: Row) -> None:
    assert not is_prompt(other)
    context = await a_context(user("the task"), *tool_steps(30), other, *tool_steps(30, 60))
    assert user("the task") in await context.get_messages_for_request(token_budget=900)


async def test_rows_that_an_earlier_run_left_unread_stay_with_the_task() -> None:
    leading = [notice("a door fell shut"), steer("not the cellar"), user("the task")]
    context = await a_context(user("old"), said("old answer"), *leading, *tool_steps(60))
    view = await context.get_messages_for_request(token_budget=900)
    assert view[1:4] == leading


async def test_an_unanswered_earlier_prompt_is_shown() -> None:
    rows = [user("delete all"), said("deleted"), user("look here"), user("look there"), *tool_steps(60)]
    view = await (await a_context(*rows)).get_messages_for_request(token_budget=900)
    assert view[1:3] == [user("look here"), user("look there")]
    assert user("delete all") not in view  # without its answer it would read as open


async def test_answered_rows_are_not_shown_with_the_next_task() -> None:
    early, unread = steer("not the cellar"), steer("and the attic " * 60)
    context = await a_context(user("the task"), early, *tool_steps(40), said("no cellar " * 60), unread)
    assert (await context.get_messages_for_request(token_budget=600))[1:] == [user("the task"), early, unread]
    for row in [user("the next task"), *tool_steps(40, 60)]:
        await context.add_message(row)
    view = await context.get_messages_for_request(token_budget=900)
    assert user("the next task") in view
    assert user("the task") not in view
    assert early not in view


async def test_unanswered_prompts_leave_room_for_steps() -> None:
    prompts = [user(f"prompt {number} " * 20) for number in range(50)]
    view = await (await a_context(*prompts, *tool_steps(60))).get_messages_for_request(token_budget=900)
    assert prompts[-1] in view
    assert prompts[-2] in view
    assert prompts[0] not in view
    assert called(view)
    assert size(view) <= 720


async def test_steps_take_precedence_over_rows_of_hooks() -> None:
    remarks = [from_hook(f"remark {number}" + " words" * 10) for number in range(12)]
    rows = [*remarks, user("the task " * 200), *tool_steps(60)]
    view = await (await a_context(*rows)).get_messages_for_request(token_budget=1100)
    assert len(called(view)) > 2
    assert size(view) <= 880


async def test_a_late_result_is_shown_with_its_call_without_the_steps_between() -> None:
    step = [calls("slow"), pending("slow")]
    rows = [user("the task"), *tool_steps(10), *step, *tool_steps(10, 40), late("slow"), *tool_steps(40, 43)]
    views = [await (await a_context(*rows)).get_messages_for_request(token_budget=n) for n in range(300, 1500, 50)]
    shown = [view for view in views if late("slow") in view]
    assert 0 < len(shown) < len(views)
    for view in views:
        assert len(view) < len(rows)
        assert not problems(view)
        assert view[2:4] == step if view in shown else "slow" not in called(view)


async def test_the_latest_steps_take_precedence_over_a_large_running_call() -> None:
    large = calls("slow", before=({"type": "text", "text": "words " * 200},))
    rows = [user("the task"), large, pending("slow"), *tool_steps(60)]
    view = await (await a_context(*rows)).get_messages_for_request(token_budget=900)
    assert "slow" not in called(view)
    assert size(view) > 400


async def test_an_unread_late_result_is_shown_with_its_call() -> None:
    step = [calls("slow"), pending("slow")]
    after = [late("slow"), from_hook("remark " * 200), steer("not the cellar")]
    rows = [user("the task"), *step, *tool_steps(40), said("I wait"), *after]
    view = await (await a_context(*rows)).get_messages_for_request(token_budget=500)
    assert view[1:] == [user("the task"), *step, late("slow"), steer("not the cellar")]


async def test_a_running_call_is_shown_until_its_task_ends() -> None:
    rows = [user("the task"), calls("slow"), pending("slow"), *tool_steps(60)]
    context = await a_context(*rows)
    assert called(await context.get_messages_for_request(token_budget=900))[0] == "slow"
    await context.set_messages([*rows, said("done"), user("the next task"), *tool_steps(60, 90)])
    assert "slow" not in called(await context.get_messages_for_request(token_budget=900))


async def test_a_huge_result_keeps_its_beginning_and_end() -> None:
    huge = result("c", "".join(f"line {number}\n" for number in range(10_000)))
    rows = [user("the task"), calls("c"), huge]
    view = await (await a_context(*rows)).get_messages_for_request(token_budget=2000)
    assert view[:2] == rows[:2]
    assert is_shortened(view[2], huge)
    assert view[2]["content"].startswith("line 0\n")
    assert view[2]["content"].endswith("line 9999\n")
    assert 800 < size(view) <= 1600


async def test_of_several_huge_results_the_latest_is_shortened_last() -> None:
    results = [result(call_id, "x" * 8000) for call_id in ("a", "b", "c")]
    rows = [user("the task"), calls("a", "b", "c"), *results]
    view = await (await a_context(*rows)).get_messages_for_request(token_budget=6000)
    assert is_shortened(view[2], results[0])
    assert view[4] == results[2]
    assert len(view[2]["content"]) < len(view[3]["content"])
    assert size(view) <= 4800


async def test_older_steps_are_omitted_before_an_unread_result_is_shortened() -> None:
    rows = [user("the task"), *tool_steps(40), calls("c"), result("c", "x" * 8000)]
    view = await (await a_context(*rows)).get_messages_for_request(token_budget=3000)
    assert view[-2:] == rows[-2:]


async def test_large_injections_are_shortened_except_the_last() -> None:
    steers = [steer(f"{number} " + "more " * 2000, f"m{number}") for number in range(5)]
    rows = [user("the task " * 200), *steers, *a_tool_step(1), steer("the last word " * 100, "m9")]
    view = await (await a_context(*rows)).get_messages_for_request(token_budget=3800)
    assert view[0] == rows[0]
    assert view[-1] == rows[-1]
    assert all(is_shortened(*pair) for pair in zip(view[1:6], steers, strict=True))
    assert all(row["content"].startswith(PREFIX) for row in view[1:6])
    assert size(view) <= 3040


async def test_a_huge_prompt_is_shown_whole_without_an_event() -> None:
    coordinator = a_coordinator()
    recorder = EventRecorder()
    coordinator.hooks.register(events.CONTEXT_POST_COMPACT, recorder)
    context = await context_simple.mount(coordinator, {})
    await context.add_message(user("word " * 10_000))
    for _ in range(3):
        assert await context.get_messages_for_request(token_budget=1000) == [user("word " * 10_000)]
    assert not recorder.events


@pytest.mark.parametrize("budget", [600, 100])
async def test_a_shortened_late_result_keeps_its_heading(budget: int) -> None:
    huge = late("slow", "x" * 40_000)
    rows = [user("the task"), calls("slow"), pending("slow"), said("I wait"), huge]
    view = await (await a_context(*rows)).get_messages_for_request(token_budget=budget)
    assert size(view) <= max(budget, 250)
    assert is_shortened(view[-1], huge)
    assert view[-1]["content"].startswith("[Results of tool calls that were still at work:]\n- call slow, look: x")


async def test_images_in_results_are_replaced_by_a_mark() -> None:
    image = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "x" * 50}}
    shown = {**result("c"), "content": [{"type": "text", "text": "a photograph"}, image, image]}
    rows = [user("the task"), calls("c"), shown]
    view = await (await a_context(*rows)).get_messages_for_request(token_budget=1000)
    assert is_shortened(view[2], shown)
    assert "a photograph" in view[2]["content"]
    assert size(view) <= 800
    assert not problems(view)


async def test_the_whole_text_in_the_metadata_does_not_count() -> None:
    capped = {**result("c"), "metadata": {"whole": "x" * 1_000_000}}
    rows = [user("the task"), calls("c"), capped]
    assert await (await a_context(*rows)).get_messages_for_request(token_budget=200) == rows


async def test_a_shortened_result_has_no_whole_text_in_its_metadata() -> None:
    # A view is one state in the log; many whole texts would make it too large.
    capped = {**result("c", "x" * 4000), "metadata": {"whole": "x" * 1_000_000, "is_error": True}}
    view = await (await a_context(user("the task"), calls("c"), capped)).get_messages_for_request(token_budget=500)
    assert "left out here" in view[2]["content"]
    assert view[2]["metadata"] == {"is_error": True}


async def test_a_result_that_cannot_be_shortened_is_unchanged() -> None:
    parts = {**result("a"), "content": [{"type": "text", "text": text} for text in "abc"]}
    rows = [user("the task"), calls("a", "b"), parts, result("b", "x" * 8000)]
    view = await (await a_context(*rows)).get_messages_for_request(token_budget=1000)
    assert view[2] == parts
    assert is_shortened(view[3], rows[3])


async def test_an_empty_conversation_omits_nothing() -> None:
    context = await a_context(system_prompt="Be kind.")
    assert await context.get_messages_for_request(token_budget=1) == [{"role": "system", "content": "Be kind."}]
