"""The hook registry: who is asked, in which order, and whose word weighs most."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from orchestrator_interactive.kernel import HookRegistry, HookResult

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

STRENGTH = ["continue", "modify", "inject_context", "ask_user", "deny"]


def _says(result: Any, calls: list[Any] | None = None) -> Callable[[str, dict[str, Any]], Awaitable[Any]]:
    async def handler(_event: str, data: dict[str, Any]) -> Any:
        if calls is not None:
            calls.append(data)
        return result

    return handler


def _wish(action: Any) -> HookResult:
    return HookResult(action=action, data={"from": action}, context_injection=action)


async def test_nobody_listening_is_a_continue() -> None:
    assert (await HookRegistry().emit("event", {})).action == "continue"


@pytest.mark.parametrize("stronger", STRENGTH)
@pytest.mark.parametrize("weaker", STRENGTH)
async def test_the_strongest_wish_wins_whoever_comes_first(weaker: str, stronger: str) -> None:
    expected = max(weaker, stronger, key=STRENGTH.index)
    for order in ((weaker, stronger), (stronger, weaker)):
        hooks = HookRegistry()
        for action in order:
            hooks.register("event", _says(_wish(action)))
        assert (await hooks.emit("event", {})).action == expected


async def test_handlers_run_by_priority_then_in_order_of_registration() -> None:
    hooks, order = HookRegistry(), []

    def named(name: str) -> Any:
        async def handler(_event: str, _data: dict[str, Any]) -> HookResult:
            order.append(name)
            return HookResult()

        return handler

    hooks.register("event", named("later"), priority=10)
    hooks.register("event", named("first"), priority=-1)
    hooks.register("event", named("a"))
    hooks.register("event", named("b"))
    await hooks.emit("event", {})
    assert order == ["first", "a", "b", "later"]


async def test_a_deny_ends_the_round() -> None:
    hooks, calls = HookRegistry(), []
    hooks.register("event", _says(HookResult(action="deny", reason="no")))
    hooks.register("event", _says(HookResult(), calls))
    assert (await hooks.emit("event", {})).reason == "no"
    assert calls == []


async def test_modifications_add_up_and_the_next_handler_sees_them() -> None:
    hooks, seen = HookRegistry(), []
    hooks.register("event", _says(HookResult(action="modify", data={"a": 1})))
    hooks.register("event", _says(HookResult(action="modify", data={"b": 2}), seen))
    result = await hooks.emit("event", {"a": 0, "c": 3})
    assert seen == [{"a": 1, "c": 3}]
    assert result.data == {"a": 1, "b": 2, "c": 3}


async def test_the_emitters_data_is_not_touched() -> None:
    hooks, data = HookRegistry(), {"a": 0}
    hooks.register("event", _says(HookResult(action="modify", data={"a": 1})))
    await hooks.emit("event", data)
    assert data == {"a": 0}


async def test_a_modification_survives_a_stronger_wish() -> None:
    hooks = HookRegistry()
    hooks.register("event", _says(HookResult(action="modify", data={"a": 1})))
    hooks.register("event", _says(HookResult(action="ask_user", approval_prompt="May I?")))
    result = await hooks.emit("event", {})
    assert (result.action, result.data) == ("ask_user", {"a": 1})


async def test_injections_are_joined() -> None:
    hooks = HookRegistry()
    for text in ("one", "two", "three"):
        hooks.register("event", _says(HookResult(action="inject_context", context_injection=text)))
    assert (await hooks.emit("event", {})).context_injection == "one\n\ntwo\n\nthree"


@pytest.mark.parametrize("texts", [(None, "text"), ("text", None)])
async def test_an_injection_without_text_adds_nothing(texts: tuple[str | None, str | None]) -> None:
    hooks = HookRegistry()
    for text in texts:
        hooks.register("event", _says(HookResult(action="inject_context", context_injection=text)))
    assert (await hooks.emit("event", {})).context_injection == "text"


async def test_a_message_to_the_user_survives_other_hooks_that_just_continue() -> None:
    hooks = HookRegistry()
    hooks.register("event", _says(HookResult()))
    hooks.register("event", _says(HookResult(user_message="look")))
    hooks.register("event", _says(HookResult()))
    assert (await hooks.emit("event", {})).user_message == "look"


async def test_default_fields_are_there_unless_given() -> None:
    hooks, seen = HookRegistry(), []
    hooks.set_default_fields(session_id="s", x=1)
    hooks.register("event", _says(None, seen))
    await hooks.emit("event", {"x": 2})
    assert seen == [{"session_id": "s", "x": 2}]


async def test_a_registration_ends_with_the_function_it_gave() -> None:
    hooks, calls = HookRegistry(), []
    end = hooks.register("event", _says(None, calls), name="one")
    hooks.on("event", _says(None, calls), name="two")
    end()
    end()
    await hooks.emit("event", {})
    assert len(calls) == 1
    assert hooks.list_handlers("event") == {"event": ["two"]}


async def test_unregistering_a_name_ends_it_everywhere() -> None:
    hooks, calls = HookRegistry(), []
    for event in ("one", "two"):
        hooks.register(event, _says(None, calls), name="same")
    hooks.unregister("same")
    await hooks.emit("one", {})
    await hooks.emit("two", {})
    assert calls == []
    assert hooks.list_handlers() == {}


async def test_a_handler_may_end_itself_while_it_runs() -> None:
    hooks, calls = HookRegistry(), []

    async def once(_event: str, _data: dict[str, Any]) -> HookResult:
        end()
        return HookResult()

    end = hooks.register("event", once)
    hooks.register("event", _says(None, calls))
    await hooks.emit("event", {})
    assert len(calls) == 1


async def test_cancelling_goes_through_a_hook() -> None:
    hooks, reached = HookRegistry(), asyncio.Event()

    async def waits(_event: str, _data: dict[str, Any]) -> HookResult:
        reached.set()
        await asyncio.Event().wait()
        return HookResult()

    hooks.register("event", waits)
    task = asyncio.create_task(hooks.emit("event", {}))
    await reached.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def test_collecting_gives_every_answer_and_leaves_out_the_slow() -> None:
    hooks = HookRegistry()

    async def slow(_event: str, _data: dict[str, Any]) -> HookResult:
        await asyncio.Event().wait()
        return HookResult()

    hooks.register("event", _says(HookResult(action="deny")))
    hooks.register("event", slow)
    hooks.register("event", _says(HookResult(action="modify")))
    results = await hooks.emit_and_collect("event", {}, timeout=0.01)
    assert [result.action for result in results] == ["deny", "modify"]
