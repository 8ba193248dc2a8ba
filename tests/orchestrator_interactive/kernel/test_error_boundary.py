"""An exception of a module stays its own failure: it cancels nothing, ends no process, and is reported."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from agents import Recorder, StaticLoader, call, echo, make_agent, raising, say, soon, use
from structlog.testing import capture_logs

from orchestrator_interactive import InteractiveOrchestrator
from orchestrator_interactive.kernel import (
    AmplifierSession,
    CancellationToken,
    HookRegistry,
    HookResult,
    ModuleCoordinator,
)
from orchestrator_interactive.kernel.error_boundary import EscapedError, convert_exits
from orchestrator_interactive.kernel.loading.loader import Mount
from orchestrator_interactive.testing import MockContextManager, MockProvider, ScriptedOrchestrator, TestCoordinator

Raises = Callable[..., Any]


class Wordless(Exception):  # noqa: N818 - named after what is odd about it
    """An error that cannot be put into words."""

    def __str__(self) -> str:
        raise RuntimeError("no words")


async def awaits_a_cancelled_future(*_: Any) -> None:
    future = asyncio.get_running_loop().create_future()
    future.cancel()
    await future


async def exits(*_: Any) -> None:
    raise SystemExit(3)


async def fails_without_words(*_: Any) -> None:
    raise Wordless


def exits_at_once(*_: Any) -> None:
    raise SystemExit(3)


def cancels_at_once(*_: Any) -> None:
    raise asyncio.CancelledError


RAISES = [awaits_a_cancelled_future, exits, fails_without_words, exits_at_once, cancels_at_once]
every_way_to_raise = pytest.mark.parametrize("raises", RAISES)
INJECT = HookResult(action="inject_context", context_injection="3 issues", user_message="checked")


@pytest.fixture(autouse=True)
def logs() -> Iterator[list[Any]]:
    """What is logged; writing so many tracebacks takes longer than all the rest."""
    with capture_logs() as entries:
        yield entries


async def _mount_context(coordinator: ModuleCoordinator, _config: dict[str, Any]) -> None:
    await coordinator.mount("context", MockContextManager())


async def _mount_orchestrator(coordinator: ModuleCoordinator, _config: dict[str, Any]) -> None:
    await coordinator.mount("orchestrator", ScriptedOrchestrator(["ok"]))
    await coordinator.mount("providers", MockProvider())


def _session(*tools: str, **mounts: Any) -> AmplifierSession:
    loader: Any = StaticLoader(**{"o": _mount_orchestrator, "c": _mount_context, **mounts})
    return AmplifierSession({"session": {"orchestrator": "o", "context": "c"}, "tools": tools}, loader=loader)


@every_way_to_raise
@pytest.mark.parametrize("cancelled", [False, True], ids=["", "in a cancelled task"])
@pytest.mark.parametrize("collecting", [False, True])
async def test_a_hook_that_raises_does_not_prevent_the_others(
    raises: Raises, *, collecting: bool, cancelled: bool
) -> None:
    hooks = HookRegistry()
    hooks.register("e", raises)
    recorder = Recorder().listen(hooks, "e")

    async def emitter() -> None:
        try:
            await asyncio.Event().wait() if cancelled else None
        finally:
            await (hooks.emit_and_collect("e", {}) if collecting else hooks.emit("e", {}))

    task = asyncio.create_task(emitter())
    if cancelled:
        await asyncio.sleep(0)
        task.cancel()
    await soon(asyncio.wait({task}))
    assert recorder.names() == ["e"]


@pytest.mark.parametrize(("error", "text"), [(SystemExit(3), "3"), (Wordless(), "Wordless")], ids=["exit", "wordless"])
async def test_a_tool_that_raises_is_a_failed_call(error: BaseException, text: str) -> None:
    tools = [raising(error), echo()]
    agent = await make_agent(call(use("break", "a"), use("echo", "b", text="fine")), say("ok"), tools=tools)
    assert await agent.run() == "ok"
    failed, fine = [row for row in await agent.history() if row["role"] == "tool"]
    assert (failed["content"], failed["metadata"]) == (text, {"is_error": True})
    assert fine["content"] == "fine"


async def test_a_tool_whose_description_fails_is_not_offered() -> None:
    class Indescribable:
        name = "t"

        @property
        def description(self) -> str:
            raise RuntimeError("no words")

        async def execute(self, _input: dict[str, Any]) -> None: ...

    agent = await make_agent(say("ok"), tools=[echo(), Indescribable()])
    assert await agent.run() == "ok"
    assert [tool.name for tool in agent.provider.requests[0].tools or ()] == ["echo"]


@every_way_to_raise
async def test_a_module_that_raises_is_left_out(raises: Raises) -> None:
    session = _session("broken", broken=raises)
    failures = Recorder().listen(session.coordinator.hooks, "module:load_failed")
    await soon(session.initialize())
    [left_out] = failures.of("module:load_failed")
    assert left_out["module_id"] == "broken"
    assert left_out["error"]
    assert await session.execute("hello") == "ok"


@pytest.mark.parametrize("raises", [awaits_a_cancelled_future, exits])
@pytest.mark.parametrize("point", ["orchestrator", "context"])
async def test_a_required_module_that_raises_fails_the_session_only(point: str, raises: Raises) -> None:
    with pytest.raises(EscapedError):
        await soon(asyncio.create_task(_session(**{point[0]: raises}).initialize()))


@every_way_to_raise
async def test_an_on_session_ready_that_raises_is_reported_and_the_others_are_called(raises: Raises) -> None:
    called: list[str] = []

    async def nothing(*_: Any) -> None: ...

    async def ready(_coordinator: Any) -> None:
        called.append("ready")

    class Library(StaticLoader):
        async def load(self, module_id: str, config: Any = None, profile_source: Any = None) -> Any:
            if module_id in {"raises", "ready"}:
                return Mount(nothing, config or {}, raises if module_id == "raises" else ready)
            return await super().load(module_id, config, profile_source)

    plan = {"session": {"orchestrator": "o", "context": "c"}, "tools": ["raises", "ready"]}
    library: Any = Library(o=_mount_orchestrator, c=_mount_context)
    session = AmplifierSession(plan, loader=library)
    failures = Recorder().listen(session.coordinator.hooks, "module:on_session_ready_failed")
    await soon(session.initialize())
    [failed] = failures.of("module:on_session_ready_failed")
    assert failed["module_id"] == "raises"
    assert failed["error"]
    assert called == ["ready"]


@every_way_to_raise
async def test_a_cleanup_that_raises_does_not_prevent_the_others(raises: Raises) -> None:
    coordinator, order = TestCoordinator(), []
    coordinator.register_cleanup(lambda: order.append("first"))
    coordinator.register_cleanup(raises)
    await soon(coordinator.cleanup())
    assert order == ["first"]


async def test_a_cleanup_that_raises_does_not_hide_the_error_of_the_session() -> None:
    session = _session()
    session.coordinator.register_cleanup(awaits_a_cancelled_future)
    with pytest.raises(KeyError, match="the reason"):
        async with session:
            raise KeyError("the reason")


async def test_a_cleanup_without_a_repr_is_logged_by_its_class(logs: list[Any]) -> None:
    class Closed:
        def __repr__(self) -> str:
            raise RuntimeError("closed already")

        def __call__(self) -> None:
            raise OSError("closed already")

    coordinator = TestCoordinator()
    coordinator.register_cleanup(Closed())
    await coordinator.cleanup()
    assert [entry["cleanup"] for entry in logs if entry["event"] == "cleanup.failed"] == ["Closed"]


@every_way_to_raise
async def test_an_approval_system_that_raises_denies(raises: Raises) -> None:
    class Broken:
        request_approval = staticmethod(raises)

    tool = echo()
    agent = await make_agent(call(use("echo", "a")), say("ok"), tools=[tool], approvals=Broken())
    agent.on_hook("tool:pre", HookResult(action="ask_user", approval_prompt="May it?"))
    assert await agent.run() == "ok"
    assert tool.inputs == []
    assert "Denied: Approval failed" in str(await agent.history())


@every_way_to_raise
async def test_a_display_that_raises_does_not_prevent_an_injection(raises: Raises) -> None:
    class Broken:
        show_message = staticmethod(raises)

    coordinator = TestCoordinator()
    coordinator.display_system, context = Broken(), MockContextManager()
    coordinator.mount("context", context)
    await soon(coordinator.process_hook_result(INJECT, "e", "h"))
    assert [message["content"] for message in context.messages] == ["3 issues"]


@every_way_to_raise
async def test_a_context_that_raises_does_not_prevent_a_user_message(raises: Raises) -> None:
    class Broken:
        add_message = staticmethod(raises)

    coordinator = TestCoordinator()
    coordinator.mount("context", Broken())
    await soon(coordinator.process_hook_result(INJECT, "e", "h"))
    assert coordinator.display_system.messages == [("checked", "info", "h")]
    assert coordinator._current_turn_injections == 0


async def test_without_a_coordinator_a_context_that_refuses_an_injection_does_not_end_the_run() -> None:
    class Choosy(MockContextManager):
        async def add_message(self, message: dict[str, Any]) -> None:
            if message["content"] == INJECT.context_injection:
                await awaits_a_cancelled_future()
            await super().add_message(message)

    hooks = HookRegistry()
    hooks.register("execution:start", lambda _event, _data: INJECT)
    loop = InteractiveOrchestrator()
    assert await soon(loop.execute("go", Choosy(), {"p": MockProvider(["ok"])}, {}, hooks)) == "ok"


@every_way_to_raise
async def test_a_contributor_that_raises_is_left_out(raises: Raises) -> None:
    coordinator = TestCoordinator()
    coordinator.register_contributor("c", "broken", raises)
    coordinator.register_contributor("c", "fine", lambda: 1)
    assert await soon(coordinator.collect_contributions("c")) == [1]


async def test_a_contributor_that_is_registered_during_a_collection_is_in_the_next() -> None:
    coordinator = TestCoordinator()

    def brings_another() -> int:
        coordinator.register_contributor("c", "another", brings_another)
        return 1

    coordinator.register_contributor("c", "first", brings_another)
    assert await coordinator.collect_contributions("c") == [1]
    assert await coordinator.collect_contributions("c") == [1, 1]


@every_way_to_raise
async def test_a_progress_listener_that_raises_does_not_disturb_the_run(raises: Raises) -> None:
    agent = await make_agent(call(use("echo", "a")), say("ok"), tools=[echo()])
    assert await soon(agent.session.execute("go", on_progress=raises)) == "ok"


@every_way_to_raise
async def test_a_cancel_callback_that_raises_does_not_prevent_the_others(raises: Raises) -> None:
    coordinator, states = TestCoordinator(), []

    async def listens() -> None:
        states.append(coordinator.cancellation.state)

    coordinator.cancellation.on_cancel(raises)
    coordinator.cancellation.on_cancel(listens)
    await soon(coordinator.request_cancel())
    assert states == ["graceful"]


def test_a_token_callback_that_raises_does_not_prevent_the_children() -> None:
    token, child = CancellationToken(), CancellationToken()
    token.register_child(child)

    def fails() -> None:
        raise Wordless

    with token.watch(fails):
        assert token.request_immediate()
    assert child.is_immediate


async def test_an_error_of_the_orchestrator_keeps_its_type() -> None:
    async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> None:
        await _mount_orchestrator(coordinator, config)
        await coordinator.mount("orchestrator", ScriptedOrchestrator([Wordless()]))

    session = _session(o=mount)
    with pytest.raises(Wordless):
        await session.execute("hello")
    assert session.status.last_error == {"type": "Wordless", "message": "Wordless"}


async def test_a_cancellation_of_the_task_passes_every_boundary() -> None:
    inside = asyncio.Event()

    async def at_a_boundary() -> None:
        with convert_exits():
            inside.set()
            await asyncio.Event().wait()

    task = asyncio.create_task(at_a_boundary())
    await soon(inside.wait())
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(task)
