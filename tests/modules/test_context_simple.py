from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestrator_interactive.injection import Injection, injection_row
from orchestrator_interactive.kernel import AmplifierSession, HookResult, ModuleCoordinator, ProviderInfo, events
from orchestrator_interactive.modules import context_simple

Row = dict[str, Any]


def a_coordinator() -> ModuleCoordinator:
    return AmplifierSession({"session": {"orchestrator": "none", "context": "none"}}).coordinator


async def a_context(**config: Any) -> context_simple.SimpleContext:
    return await context_simple.mount(a_coordinator(), config)


def user(text: str) -> Row:
    return {"role": "user", "content": text}


def steer(text: str) -> Row:
    return injection_row([Injection(text, id="m1")])


def said(text: str) -> Row:
    return {"role": "assistant", "content": [{"type": "text", "text": text}]}


def calls(*ids: str) -> Row:
    return {
        "role": "assistant",
        "content": [{"type": "tool_call", "id": i, "name": "look", "input": {"at": i}} for i in ids],
        "tool_calls": [{"id": i, "type": "function", "function": {"name": "look", "arguments": "{}"}} for i in ids],
    }


def result(call_id: str, text: str = "done") -> Row:
    return {"role": "tool", "tool_call_id": call_id, "name": "look", "content": text}


def a_tool_step(number: int, text: str = "found it " * 10) -> list[Row]:
    return [calls(f"c{number}"), result(f"c{number}", text)]


def is_notice(row: Row) -> bool:
    return row["role"] == "user" and str(row["content"]).startswith("[To save space")


def call_ids(rows: list[Row]) -> list[str]:
    return [call["id"] for row in rows for call in row.get("tool_calls", ())]


def result_ids(rows: list[Row]) -> list[str]:
    return [row["tool_call_id"] for row in rows if row["role"] == "tool"]


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
    context = await a_context(system_prompt="Be kind.")
    await context.add_message(user("hello"))
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
    context = await a_context()
    await context.set_messages([user("before"), said("yes")])
    assert await context.get_messages() == [user("before"), said("yes")]
    await context.clear()
    assert await context.get_messages_for_request() == []


async def test_a_long_conversation_is_cut_and_a_notice_says_how_much() -> None:
    context = await a_context()
    rows = [row for n in range(40) for row in (user(f"question {n}"), said("answer " * 20))]
    await context.set_messages(rows)
    view = await context.get_messages_for_request(token_budget=500)
    assert is_notice(view[0])
    assert view[1:] == rows[-len(view) + 1 :]
    assert f"{len(rows) - len(view) + 1} earlier messages" in view[0]["content"]
    assert await context.get_messages() == rows


async def test_the_prompt_of_the_task_and_what_was_steered_outlast_its_many_steps() -> None:
    context = await a_context()
    rows = [user("old"), said("old answer"), user("the task"), *a_tool_step(0), steer("not the cellar")]
    rows += [row for n in range(1, 40) for row in a_tool_step(n)]
    await context.set_messages(rows)
    view = await context.get_messages_for_request(token_budget=900)
    assert is_notice(view[0])
    assert view[1:3] == [user("the task"), steer("not the cellar")]
    assert view[-2:] == rows[-2:]


async def test_steering_that_would_fill_the_budget_may_go_and_the_prompt_stays() -> None:
    context = await a_context()
    rows = [user("the task"), *(steer("more " * 100) for _ in range(20)), *a_tool_step(1)]
    await context.set_messages(rows)
    view = await context.get_messages_for_request(token_budget=900)
    assert view[1] == user("the task")
    assert len(view) < len(rows)


async def test_system_rows_are_kept() -> None:
    context = await a_context()
    rule = {"role": "system", "content": "Never shout."}
    await context.set_messages([user("a"), rule, *(said("words " * 30) for _ in range(30))])
    view = await context.get_messages_for_request(token_budget=300)
    assert is_notice(view[0])
    assert view[1:3] == [user("a"), rule]


async def test_the_last_step_stays_even_where_it_is_larger_than_the_budget() -> None:
    context = await a_context()
    await context.set_messages([user("task"), *a_tool_step(1), calls("a", "b"), result("a", "x" * 9000), result("b")])
    view = await context.get_messages_for_request(token_budget=100)
    assert result_ids(view) == ["a", "b"]
    assert call_ids(view) == ["a", "b"]


async def test_the_beginning_of_the_view_rests_between_cuts() -> None:
    context = await a_context()
    await context.add_message(user("the task"))
    heads = []
    for number in range(100):
        for row in a_tool_step(number):
            await context.add_message(row)
        view = await context.get_messages_for_request(token_budget=1500)
        heads.append(json.dumps(view[:3]))
    cuts = sum(1 for one, other in pairwise(heads[1:]) if one != other)
    assert 1 <= cuts <= 30  # a view that moved with every step would be cut about 80 times


async def test_a_new_task_does_not_disturb_the_view() -> None:
    context = await a_context()
    await context.set_messages([user("the task"), *(row for n in range(40) for row in a_tool_step(n))])
    before = await context.get_messages_for_request(token_budget=1500)
    await context.add_message(said("done"))
    await context.add_message(user("another task"))
    after = await context.get_messages_for_request(token_budget=1500)
    assert after[: len(before)] == before


async def test_a_larger_budget_shows_everything_again() -> None:
    context = await a_context()
    rows = [user("the task"), *(row for n in range(40) for row in a_tool_step(n))]
    await context.set_messages(rows)
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
    context = await a_context(max_tokens=1_000)
    rows = [user("the task"), *(row for n in range(40) for row in a_tool_step(n))]
    await context.set_messages(rows)
    view = await context.get_messages_for_request(provider=ProviderOf(**defaults))
    assert (len(view) < len(rows)) is is_cut


async def test_a_cut_is_told_before_and_after_and_only_when_it_moves() -> None:
    coordinator = a_coordinator()
    told: list[tuple[str, int, int]] = []

    async def listen(event: str, data: dict[str, Any]) -> HookResult:
        told.append((event, data["message_count"], data["token_count"]))
        return HookResult()

    for event in (events.CONTEXT_PRE_COMPACT, events.CONTEXT_POST_COMPACT):
        coordinator.hooks.register(event, listen)
    context = await context_simple.mount(coordinator, {"max_tokens": 1_000})
    await context.set_messages([user("the task"), *(row for n in range(40) for row in a_tool_step(n))])
    for _ in range(3):
        view = await context.get_messages_for_request()
    (before, after) = told
    assert [before[0], after[0]] == [events.CONTEXT_PRE_COMPACT, events.CONTEXT_POST_COMPACT]
    assert before[1] == 81
    assert after[1] == len(view)
    assert before[2] > 800 >= after[2]


async def test_each_row_is_measured_once() -> None:
    class Measured:
        """Something that JSON does not know, and that counts how often it is written down."""

        times = 0

        def __str__(self) -> str:
            Measured.times += 1
            return "x"

    context = await a_context()
    await context.add_message({"role": "user", "content": "hi", "metadata": {"seen": Measured()}})
    for _ in range(5):
        await context.get_messages_for_request()
    assert Measured.times == 1


texts = st.text(max_size=60)


@st.composite
def histories(draw: st.DrawFn) -> list[Row]:
    """Any valid history: every call has its results right after it; at the end some may be missing."""
    rows: list[Row] = []
    for number in range(draw(st.integers(0, 25))):
        match draw(st.sampled_from(["user", "steer", "said", "none", "tools", "system"])):
            case "user":
                rows.append(user(draw(texts)))
            case "steer":
                rows.append(steer(draw(texts.filter(str.strip))))
            case "said":
                rows.append(said(draw(texts)))
            case "none":
                rows.append({"role": "assistant", "content": None})
            case "system":
                rows.append({"role": "system", "content": draw(texts)})
            case _:
                # Some providers use the same ids again in every turn.
                prefix = draw(st.sampled_from([f"c{number}", "same"]))
                ids = [f"{prefix}-{n}" for n in range(draw(st.integers(1, 3)))]
                rows += [calls(*ids), *(result(i, draw(texts)) for i in draw(st.permutations(ids)))]
    return rows


@given(histories(), st.lists(st.integers(1, 1500), min_size=1, max_size=4), st.booleans())
async def test_every_view_is_valid_and_the_history_is_never_touched(
    rows: list[Row], budgets: list[int], prompted: bool
) -> None:
    context = await a_context(system_prompt="Be kind." if prompted else None)
    done: list[Row] = []
    for row in rows:
        await context.add_message(row)
        done.append(row)
        if row["role"] == "tool" or row.get("tool_calls"):
            continue  # a request in the midst of a batch does not happen
        await check_view(context, done, budgets[len(done) % len(budgets)], prompted=prompted)
    await check_view(context, done, budgets[0], prompted=prompted)


async def check_view(context: Any, history: list[Row], budget: int, *, prompted: bool) -> None:
    view = await context.get_messages_for_request(token_budget=budget)
    assert await context.get_messages() == history
    if prompted:
        assert view.pop(0)["content"] == "Be kind."
    assert_pairs(view)
    notices = [row for row in view if is_notice(row)]
    rest = [row for row in view if not is_notice(row)]
    assert is_subsequence(rest, history)
    assert len(notices) == (len(rest) < len(history))
    if notices:
        assert f" {len(history) - len(rest)} earlier messages" in notices[0]["content"]
    assert [row for row in rest if row["role"] == "system"] == [row for row in history if row["role"] == "system"]
    prompts = [row for row in history if row["role"] == "user" and context_simple.begins_a_task(row)]
    assert not prompts or prompts[-1] in rest
    assert rest[-1:] == history[-1:]


def assert_pairs(view: list[Row]) -> None:
    """Each batch of calls is followed by exactly its results, and no result stands anywhere else."""
    waiting: list[str] = []
    for row in view:
        if row["role"] == "tool":
            waiting.remove(row["tool_call_id"])
            continue
        assert not waiting
        waiting = [call["id"] for call in row.get("tool_calls", ())]
    assert not waiting


def is_subsequence(part: list[Row], whole: list[Row]) -> bool:
    rows = iter(whole)
    return all(any(row == other for other in rows) for row in part)
