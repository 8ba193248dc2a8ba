"""Hook contract: hook results, registration, modules of hooks, common events, failing handlers."""

import asyncio
from typing import Any

import pytest
from agents import Recorder, soon
from pydantic import ValidationError

from orchestrator_interactive.kernel import AmplifierSession, HookRegistry, HookResult, ModuleCoordinator
from orchestrator_interactive.kernel.contracts.protocols import HookHandler
from orchestrator_interactive.kernel.loading.loader import ModuleLoader

PRECEDENCE = ["continue", "modify", "inject_context", "ask_user", "deny"]


class Handler:
    """A handler that returns one result and records its calls; with `hangs` or `error` it does that instead."""

    def __init__(self, result: Any = None, *, hangs: bool = False, error: Exception | None = None) -> None:
        self._result, self._hangs, self._error = result, hangs, error
        self.events: list[str] = []
        self.received: list[dict[str, Any]] = []
        self.called = asyncio.Event()

    async def __call__(self, event: str, data: dict[str, Any]) -> Any:
        self.events.append(event)
        self.received.append(data)
        self.called.set()
        if self._hangs:
            await asyncio.Event().wait()
        if self._error:
            raise self._error
        return self._result


async def denies(_event: str, _data: dict[str, Any]) -> HookResult:
    return HookResult(action="deny", reason="Access denied")


@pytest.fixture
def hooks() -> HookRegistry:
    return HookRegistry(timeout_s=0.01)


class TestProtocolDefinition:
    @pytest.mark.parametrize("handler", [denies, Handler()], ids=["function", "object"])
    def test_a_callable_is_a_handler(self, handler: Any) -> None:
        assert isinstance(handler, HookHandler)

    async def test_a_handler_gets_the_event_and_the_unchanged_data(self, hooks: HookRegistry) -> None:
        handler = Handler()
        hooks.register("e", handler)
        data = {"response": object(), "pair": (1, 2)}
        assert (await hooks.emit("e", data)).action == "continue"
        assert (handler.events, handler.received) == (["e"], [data])


class TestHookResultActions:
    """The results of `emit`; the orchestrator contract has their effect on a run."""

    async def test_the_default_is_continue(self, hooks: HookRegistry) -> None:
        assert HookResult().action == "continue"
        assert (await hooks.emit("without handlers", {"a": 1})).action == "continue"

    @pytest.mark.parametrize(
        "given",
        [
            {"action": "continue"},
            {"action": "deny", "reason": "Access denied"},
            {
                "action": "inject_context",
                "context_injection": "Found 3 linting errors...",
                "user_message": "Linting issues detected",
            },
            {"action": "ask_user", "approval_prompt": "Allow write to production file?", "approval_default": "deny"},
            {"action": "modify", "data": {"tool_input": {}}},
        ],
        ids=lambda given: given["action"],
    )
    async def test_the_examples_reach_the_emitter(self, hooks: HookRegistry, given: dict[str, Any]) -> None:
        hooks.register("e", Handler(HookResult(**given)))
        result = await hooks.emit("e", {})
        assert {name: getattr(result, name) for name in given} == given

    @pytest.mark.parametrize(
        ("field", "wrong"),
        [
            ("action", "modify_input"),
            ("context_injection_role", "robot"),
            ("approval_default", "maybe"),
            ("user_message_level", "loud"),
            ("approval_timeout", "soon"),
        ],
    )
    def test_the_error_names_the_field_with_a_wrong_value(self, field: str, wrong: str) -> None:
        with pytest.raises(ValidationError, match=field):
            HookResult(**{field: wrong})

    @pytest.mark.parametrize("first", PRECEDENCE)
    @pytest.mark.parametrize("second", PRECEDENCE)
    async def test_the_result_of_highest_precedence_is_returned(self, hooks, first: str, second: str) -> None:
        for action in (first, second):
            hooks.register("e", Handler(HookResult(action=action, data={"a": 1}, context_injection="text")))
        assert (await hooks.emit("e", {})).action == max(first, second, key=PRECEDENCE.index)

    async def test_after_a_deny_no_further_handler_is_called(self, hooks: HookRegistry) -> None:
        later = Handler()
        hooks.register("e", denies)
        hooks.register("e", later)
        assert (await hooks.emit("e", {})).reason == "Access denied"
        assert later.received == []

    async def test_the_next_handler_gets_the_modified_data(self, hooks: HookRegistry) -> None:
        asks = Handler(HookResult(action="ask_user", approval_prompt="May it?"))
        hooks.register("e", Handler(HookResult(action="modify", data={"a": 1})))
        hooks.register("e", asks)
        data = {"a": 0, "b": 2}
        result = await hooks.emit("e", data)
        assert (result.action, result.data) == ("ask_user", {"a": 1, "b": 2})
        assert asks.received == [{"a": 1, "b": 2}]
        assert data == {"a": 0, "b": 2}

    async def test_every_injection_with_text_is_kept_with_its_hook(self, hooks: HookRegistry) -> None:
        for name, text in (("silent", None), ("linter", "3 issues"), ("tests", "all green"), ("quiet", None)):
            hooks.register("e", Handler(HookResult(action="inject_context", context_injection=text)), name=name)
        result = await hooks.emit("e", {})
        injections = [(each.hook_name, each.content) for each in result.injections()]
        assert injections == [("linter", "3 issues"), ("tests", "all green")]
        assert result.context_injection == "3 issues\n\nall green"

    @pytest.mark.parametrize("timeout_s", [0.01, 0, None], ids=["given", "none to wait", "the registry's"])
    async def test_emit_and_collect_returns_every_result_within_the_timeout(self, hooks, timeout_s) -> None:
        hooks.register("e", Handler(HookResult(action="deny")), name="first")
        hooks.register("e", Handler(hangs=True), name="hangs")
        hooks.register("e", Handler(HookResult(user_message="look")), name="second")
        results = await soon(hooks.emit_and_collect("e", {}, timeout=timeout_s))
        assert [(result.hook_name, result.action) for result in results] == [("first", "deny"), ("second", "continue")]


class TestEventRegistration:
    async def test_handlers_with_a_lower_priority_run_first(self, hooks: HookRegistry) -> None:
        order: list[str] = []

        def named(name: str) -> Any:
            async def handler(_event: str, _data: dict[str, Any]) -> None:
                order.append(name)

            return handler

        for name, priority in (("late", 20), ("early", 10), ("earliest", -1), ("late too", 20)):
            hooks.register(event="tool:post", handler=named(name), priority=priority, name=name)
        await hooks.emit("tool:post", {})
        assert order == ["earliest", "early", "late", "late too"]

    async def test_unregister_removes_the_handler(self, hooks: HookRegistry) -> None:
        handler = Handler()
        unregister = hooks.register(event="tool:post", handler=handler, priority=10, name="my_handler")
        assert hooks.list_handlers("tool:post") == {"tool:post": ["my_handler"]}
        unregister()
        unregister()
        await hooks.emit("tool:post", {})
        assert handler.received == []

    async def test_a_handler_may_unregister_itself_while_it_runs(self, hooks: HookRegistry) -> None:
        async def once(_event: str, _data: dict[str, Any]) -> None:
            unregister()

        later = Handler()
        unregister = hooks.register("e", once)
        hooks.register("e", later, name="later")
        await hooks.emit("e", {})
        assert len(later.received) == 1
        assert hooks.list_handlers("e") == {"e": ["later"]}

    async def test_a_name_removes_all_its_registrations(self, hooks: HookRegistry) -> None:
        for event in ("one", "two"):
            hooks.register(event, Handler(), name="same")
        hooks.unregister("same")
        assert hooks.list_handlers() == {}
        assert not hooks.listens("one")

    async def test_default_fields_are_in_every_event(self, hooks: HookRegistry) -> None:
        handler = Handler()
        hooks.set_default_fields(session_id="s", x=1)
        hooks.register("e", handler)
        await hooks.emit("e", {"x": 2})
        assert handler.received == [{"session_id": "s", "x": 2}]

    @pytest.mark.parametrize(
        ("argument", "wrong", "kind"),
        [
            *(("handler", wrong, TypeError) for wrong in (None, "handler", 1, HookResult())),
            *(("event", wrong, kind) for wrong, kind in (("", ValueError), ("  ", ValueError), (None, TypeError))),
            *(("priority", wrong, TypeError) for wrong in ("10", None, 1.5)),
        ],
    )
    def test_the_error_names_the_wrong_argument(self, hooks, argument: str, wrong: Any, kind: type[Exception]) -> None:
        with pytest.raises(kind, match=argument):
            hooks.register(**{"event": "e", "handler": denies, "priority": 0, argument: wrong})


async def mount_my_hook(coordinator: ModuleCoordinator, config: dict[str, Any]) -> Any:
    """The contract's example of a module; its configuration names the events."""
    handlers = [
        coordinator.hooks.register(event, denies, priority=10) for event in config.get("enabled_events", ["tool:pre"])
    ]
    coordinator.register_contributor(
        "observability.events", "my-hook", lambda: ["my-hook:validation_failed", "my-hook:approved"]
    )

    def cleanup() -> None:
        for unregister in handlers:
            unregister()

    return cleanup


class HookLoader(ModuleLoader):
    """A loader that finds `my-hook` and the installed modules."""

    async def load(self, module_id: str, config: dict[str, Any] | None = None, profile_source: Any = None) -> Any:
        if module_id != "my-hook":
            return await super().load(module_id, config, profile_source)

        async def mount(coordinator: ModuleCoordinator) -> Any:
            return await mount_my_hook(coordinator, config or {})

        return mount


class TestMountFunction:
    async def test_configured_handlers_listen_until_the_session_ends(self, shipped_plan: dict[str, Any]) -> None:
        hook = {"module": "my-hook", "config": {"enabled_events": ["tool:post"], "log_level": "info"}}
        session = AmplifierSession({**shipped_plan, "hooks": [hook]}, loader=HookLoader())
        hooks = session.coordinator.hooks
        async with session:
            assert (await hooks.emit("tool:pre", {})).action == "continue"
            assert (await hooks.emit("tool:post", {})).reason == "Access denied"
            contributed = await session.coordinator.collect_contributions("observability.events")
        assert ["my-hook:validation_failed", "my-hook:approved"] in contributed
        assert (await hooks.emit("tool:post", {})).action == "continue"


class TestCommonEvents:
    async def test_session_start_and_end(self, shipped_plan: dict[str, Any]) -> None:
        session = AmplifierSession(shipped_plan, session_id="s")
        recorder = Recorder().listen(session.coordinator.hooks, "session:start", "session:end")
        async with session:
            await session.execute("Hello")
        [start], [end] = recorder.of("session:start"), recorder.of("session:end")
        assert (start["session_id"], start["config"]) == ("s", shipped_plan)
        assert end["session_id"] == "s"
        assert end["stats"]


class TestHandlesExceptionsGracefully:
    @pytest.mark.parametrize(
        ("handler", "logged"),
        [
            (Handler(error=RuntimeError("a bug in the hook")), ("error", "hook.failed")),
            (Handler(hangs=True), ("warning", "hook.timeout")),
            *(
                (Handler(wrong), ("warning", "hook.result_invalid"))
                for wrong in ("deny", {"action": "deny"}, 0, object())
            ),
        ],
        ids=["raises", "hangs", "word", "dict", "zero", "object"],
    )
    async def test_a_failing_handler_is_logged_and_counts_as_continue(self, hooks, logs, handler, logged) -> None:
        hooks.register("e", handler, name="the hook")
        assert (await soon(hooks.emit("e", {}))).action == "continue"
        hooks.register("e", denies)
        assert (await soon(hooks.emit("e", {}))).action == "deny"
        assert logs.tell(*logged, "the hook")
