"""Hook contract: HookResult Actions and Event Registration, as the registry does them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from agents import soon
from pydantic import ValidationError

from orchestrator_interactive.kernel import HookRegistry, HookResult

STRENGTH = ["continue", "modify", "inject_context", "ask_user", "deny"]


class Says:
    """A handler that gives one answer and keeps what it was told."""

    def __init__(self, answer: Any = None) -> None:
        self._answer = answer
        self.told: list[dict[str, Any]] = []

    async def __call__(self, _event: str, data: dict[str, Any]) -> Any:
        self.told.append(data)
        return self._answer


@pytest.fixture
def hooks() -> HookRegistry:
    return HookRegistry()


class TestHookResultActions:
    """What each action does in a run stands with the orchestrator contract; here: what `emit` makes of them."""

    def test_the_default_is_continue(self) -> None:
        assert HookResult().action == "continue"

    @pytest.mark.parametrize(
        ("given", "action"),
        [
            ({"action": "continue"}, "continue"),
            ({"action": "deny", "reason": "Access denied"}, "deny"),
            (
                {
                    "action": "inject_context",
                    "context_injection": "Found 3 linting errors...",
                    "user_message": "Linting issues detected",
                },
                "inject_context",
            ),
            (
                {
                    "action": "ask_user",
                    "approval_prompt": "Allow write to production file?",
                    "approval_default": "deny",
                },
                "ask_user",
            ),
            ({"action": "modify", "data": {"tool_input": {}}}, "modify"),
        ],
        ids=lambda given: given if isinstance(given, str) else "",
    )
    async def test_the_examples_reach_the_emitter(self, hooks: HookRegistry, given: Any, action: str) -> None:
        hooks.register("e", Says(HookResult(**given)))
        result = await hooks.emit("e", {})
        assert result.action == action
        assert {name: getattr(result, name) for name in given} == given

    @pytest.mark.parametrize(
        ("field", "wrong"),
        [
            ("action", "explode"),
            ("context_injection_role", "robot"),
            ("approval_default", "maybe"),
            ("user_message_level", "loud"),
            ("approval_timeout", "soon"),
        ],
    )
    def test_a_field_with_a_wrong_value_is_named(self, field: str, wrong: str) -> None:
        with pytest.raises(ValidationError, match=field):
            HookResult(**{field: wrong})

    @pytest.mark.parametrize("stronger", STRENGTH)
    @pytest.mark.parametrize("weaker", STRENGTH)
    async def test_of_several_the_strongest_wins_whoever_comes_first(self, weaker: str, stronger: str) -> None:
        for order in ((weaker, stronger), (stronger, weaker)):
            hooks = HookRegistry()
            for action in order:
                hooks.register("e", Says(HookResult(action=action, data={"a": 1}, context_injection="text")))
            assert (await hooks.emit("e", {})).action == max(weaker, stronger, key=STRENGTH.index)

    async def test_a_deny_ends_the_round(self, hooks: HookRegistry) -> None:
        later = Says()
        hooks.register("e", Says(HookResult(action="deny", reason="no")))
        hooks.register("e", later)
        assert (await hooks.emit("e", {})).reason == "no"
        assert later.told == []

    async def test_a_modification_is_what_the_next_handler_sees(self, hooks: HookRegistry) -> None:
        later = Says()
        hooks.register("e", Says(HookResult(action="modify", data={"a": 1})))
        hooks.register("e", later)
        data = {"a": 0, "b": 2}
        assert (await hooks.emit("e", data)).data == {"a": 1, "b": 2}
        assert later.told == [{"a": 1, "b": 2}]
        assert data == {"a": 0, "b": 2}

    async def test_a_modification_survives_a_stronger_wish(self, hooks: HookRegistry) -> None:
        hooks.register("e", Says(HookResult(action="modify", data={"a": 1})))
        hooks.register("e", Says(HookResult(action="ask_user", approval_prompt="May it?")))
        result = await hooks.emit("e", {"a": 0})
        assert (result.action, result.data) == ("ask_user", {"a": 1})

    async def test_a_message_to_the_user_survives_other_results(self, hooks: HookRegistry) -> None:
        for answer in (None, HookResult(user_message="look"), HookResult(action="modify", data={"a": 1})):
            hooks.register("e", Says(answer))
        assert (await hooks.emit("e", {})).user_message == "look"

    @pytest.mark.parametrize("texts", [(None, "text"), ("text", None)], ids=["first", "last"])
    async def test_an_injection_without_text_adds_nothing(
        self, hooks: HookRegistry, texts: tuple[str | None, str | None]
    ) -> None:
        for text in texts:
            hooks.register("e", Says(HookResult(action="inject_context", context_injection=text)))
        assert (await hooks.emit("e", {})).context_injection == "text"

    async def test_the_data_reaches_the_handlers_as_it_is(self, hooks: HookRegistry) -> None:
        handler, response = Says(), object()
        hooks.register("e", handler)
        await hooks.emit("e", {"response": response, "pair": (1, 2)})
        assert handler.told == [{"response": response, "pair": (1, 2)}]

    async def test_every_text_to_inject_is_kept_with_its_hook(self, hooks: HookRegistry) -> None:
        for name in ("linter", "tests"):
            hooks.register("e", Says(HookResult(action="inject_context", context_injection=f"{name} say")), name=name)
        result = await hooks.emit("e", {})
        injections = result.injections()
        assert [(i.hook_name, i.content) for i in injections] == [("linter", "linter say"), ("tests", "tests say")]
        assert result.context_injection == "linter say\n\ntests say"

    async def test_nobody_listening_is_a_continue(self, hooks: HookRegistry) -> None:
        assert (await hooks.emit("e", {"a": 1})).action == "continue"

    async def test_collecting_gives_each_answer_with_its_hook(self, hooks: HookRegistry) -> None:
        hooks.register("e", Says(HookResult(action="deny")), name="first")
        hooks.register("e", Says(HookResult(user_message="look")), name="second")
        results = await hooks.emit_and_collect("e", {})
        assert [(result.hook_name, result.action) for result in results] == [("first", "deny"), ("second", "continue")]

    async def test_collecting_leaves_out_what_takes_too_long(self, hooks: HookRegistry) -> None:
        async def hangs(_event: str, _data: dict[str, Any]) -> None:
            await asyncio.Event().wait()

        hooks.register("e", hangs)
        hooks.register("e", Says(HookResult(action="deny")))
        results = await soon(hooks.emit_and_collect("e", {}, timeout=0.01))
        assert [result.action for result in results] == ["deny"]


class TestEventRegistration:
    async def test_lower_priority_is_earlier(self, hooks: HookRegistry) -> None:
        order: list[str] = []

        def named(name: str) -> Any:
            async def handler(_event: str, _data: dict[str, Any]) -> None:
                order.append(name)

            return handler

        for name, priority in (("late", 20), ("early", 10), ("earliest", -1)):
            hooks.register(event="tool:post", handler=named(name), priority=priority, name=name)
        hooks.register("tool:post", named("late too"), 20)
        await hooks.emit("tool:post", {})
        assert order == ["earliest", "early", "late", "late too"]

    async def test_unregister_ends_it(self, hooks: HookRegistry) -> None:
        handler = Says()
        unregister = hooks.register(event="tool:post", handler=handler, priority=10, name="my_handler")
        assert hooks.list_handlers("tool:post") == {"tool:post": ["my_handler"]}
        unregister()
        unregister()
        await hooks.emit("tool:post", {})
        assert handler.told == []

    async def test_a_handler_may_end_itself_while_it_runs(self, hooks: HookRegistry) -> None:
        async def once(_event: str, _data: dict[str, Any]) -> None:
            end()

        later = Says()
        end = hooks.register("e", once)
        hooks.register("e", later, name="later")
        await hooks.emit("e", {})
        assert len(later.told) == 1
        assert hooks.list_handlers("e") == {"e": ["later"]}

    async def test_cancelling_goes_through_a_handler(self, hooks: HookRegistry) -> None:
        reached = asyncio.Event()

        async def waits(_event: str, _data: dict[str, Any]) -> None:
            reached.set()
            await asyncio.Event().wait()

        hooks.register("e", waits)
        emitting = asyncio.create_task(hooks.emit("e", {}))
        await soon(reached.wait())
        emitting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await emitting

    async def test_a_name_ends_all_its_registrations(self, hooks: HookRegistry) -> None:
        for event in ("one", "two"):
            hooks.register(event, Says(), name="same")
        hooks.unregister("same")
        assert hooks.list_handlers() == {}
        assert not hooks.listens("one")

    async def test_default_fields_are_in_every_event(self, hooks: HookRegistry) -> None:
        handler = Says()
        hooks.set_default_fields(session_id="s", x=1)
        hooks.register("e", handler)
        await hooks.emit("e", {"x": 2})
        assert handler.told == [{"session_id": "s", "x": 2}]

    @pytest.mark.parametrize("handler", [None, "handler", 1, HookResult()], ids=["none", "text", "number", "result"])
    def test_a_handler_that_cannot_be_called_is_named(self, hooks: HookRegistry, handler: Any) -> None:
        with pytest.raises(TypeError, match="handler"):
            hooks.register("e", handler)

    @pytest.mark.parametrize(
        ("event", "kind"), [("", ValueError), ("  ", ValueError), (None, TypeError), (1, TypeError)]
    )
    def test_an_event_that_is_no_name_is_named(self, hooks: HookRegistry, event: Any, kind: type[Exception]) -> None:
        with pytest.raises(kind, match="event"):
            hooks.register(event, Says())

    @pytest.mark.parametrize("priority", ["10", None, 1.5])
    def test_a_priority_that_is_no_whole_number_is_named(self, hooks: HookRegistry, priority: Any) -> None:
        with pytest.raises(TypeError, match="priority"):
            hooks.register("e", Says(), priority=priority)
