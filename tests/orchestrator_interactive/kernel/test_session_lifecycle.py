"""A session starts once, runs prompts, and ends once; its modules are closed however it ends."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from agents import Recorder, ScriptedTool, StaticLoader, call, make_agent, never, say, soon, use

from orchestrator_interactive.kernel import AmplifierSession, HookResult, ModuleCoordinator
from orchestrator_interactive.testing import MockContextManager, MockDisplaySystem, MockProvider, ScriptedOrchestrator

MountFunction = Callable[[ModuleCoordinator, dict[str, Any]], Awaitable[Any]]


class Modules:
    """Modules that record their opening and closing; one waits and one fails before it opens."""

    def __init__(self) -> None:
        self.opened: list[str] = []
        self.closed: list[str] = []
        self.reached = asyncio.Event()
        self.gate = asyncio.Event()

    def session(self, *tools: str, mounts: dict[str, MountFunction] | None = None, **policy: Any) -> AmplifierSession:
        """A session with these tools; keyword arguments are for the `session` section of its plan."""
        own: dict[str, MountFunction] = {
            "o": self._mount("o", self._loop),
            "c": self._mount("c", self._context),
            "t": self._mount("t"),
            "waits": self._mount("waits", self._wait),
            "fails": self._mount("fails", self._fail),
        }
        loader: Any = StaticLoader(**own, **(mounts or {}))
        plan = {"session": {"orchestrator": "o", "context": "c", **policy}, "tools": tools}
        return AmplifierSession(plan, loader=loader)

    def _mount(self, name: str, action: Any = None) -> MountFunction:
        async def mount(coordinator: ModuleCoordinator, _config: dict[str, Any]) -> Any:
            await asyncio.sleep(0)
            if action is not None:
                await action(coordinator)
            self.opened.append(name)
            return lambda: self.closed.append(name)

        return mount

    async def _loop(self, coordinator: ModuleCoordinator) -> None:
        await coordinator.mount("orchestrator", ScriptedOrchestrator(["ok"]))
        await coordinator.mount("providers", MockProvider())

    async def _context(self, coordinator: ModuleCoordinator) -> None:
        await coordinator.mount("context", MockContextManager())

    async def _wait(self, _coordinator: ModuleCoordinator) -> None:
        self.reached.set()
        await self.gate.wait()

    async def _fail(self, _coordinator: ModuleCoordinator) -> None:
        raise OSError("no disk")


@pytest.fixture
def modules() -> Modules:
    return Modules()


async def _ended(session: AmplifierSession) -> None:
    """The session neither begins again nor runs anything."""
    for begin in (session.initialize, lambda: session.execute("hello")):
        with pytest.raises(RuntimeError, match="ended"):
            await begin()


async def test_a_session_whose_context_fails_has_closed_what_it_opened_and_ended(modules: Modules) -> None:
    session = modules.session(context="fails")
    ends = Recorder().listen(session.coordinator.hooks, "session:end")
    with pytest.raises(OSError, match="no disk"):
        await session.initialize()
    assert modules.closed == modules.opened == ["o"]
    assert ends.names() == []
    await _ended(session)


async def test_a_session_that_is_cancelled_at_its_start_event_closes_everything(modules: Modules) -> None:
    session = modules.session("t")
    starts = Recorder().listen(session.coordinator.hooks, "session:start")
    starts.hold("session:start", modules.gate)

    async def use_it() -> None:
        async with session:
            pytest.fail("it was cancelled")

    using = asyncio.create_task(use_it())
    await starts.reached("session:start")
    using.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(using)
    assert modules.closed == ["t", "c", "o"]


async def test_a_session_that_was_cleaned_up_has_ended(modules: Modules) -> None:
    session = modules.session("t")
    async with session:
        pass
    await _ended(session)
    assert modules.opened == ["o", "c", "t"]


async def test_a_session_that_was_cleaned_up_before_it_started_has_ended_without_an_event(modules: Modules) -> None:
    session = modules.session()
    ends = Recorder().listen(session.coordinator.hooks, "session:end")
    await session.cleanup()
    await _ended(session)
    assert ends.names() == []


async def test_a_session_that_is_cancelled_anywhere_in_its_start_closes_what_it_opened() -> None:
    for steps in range(30):
        modules = Modules()
        session = modules.session("t", "t")
        session.coordinator.hooks.register("session:start", lambda _event, _data: asyncio.sleep(0))
        beginning = asyncio.create_task(session.initialize())
        for _ in range(steps):
            await asyncio.sleep(0)
        beginning.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await beginning
        await soon(session.cleanup())
        assert sorted(modules.closed) == sorted(modules.opened), steps
        await _ended(session)


async def test_a_second_start_fails_when_the_first_is_cancelled(modules: Modules) -> None:
    session = modules.session("waits")
    first, second = asyncio.create_task(session.initialize()), asyncio.create_task(session.initialize())
    await soon(modules.reached.wait())
    first.cancel()
    with pytest.raises(RuntimeError, match="ended"):
        await soon(second)
    assert first.cancelled()


@pytest.mark.parametrize("at", ["mounting", "session:start"])
async def test_a_prompt_waits_for_the_start(modules: Modules, at: str) -> None:
    async def waits(_event: str, _data: dict[str, Any]) -> None:
        modules.reached.set()
        await modules.gate.wait()

    session = modules.session(*(["waits"] if at == "mounting" else []))
    session.coordinator.hooks.register(at, waits)
    beginning = asyncio.create_task(session.initialize())
    await soon(modules.reached.wait())
    run = asyncio.create_task(session.execute("hello"))
    await asyncio.sleep(0)
    assert not run.done()
    modules.gate.set()
    assert await soon(run) == "ok"
    await beginning


async def test_a_cleanup_waits_for_the_start_and_closes_everything(modules: Modules) -> None:
    session = modules.session("waits", "t")
    beginning = asyncio.create_task(session.initialize())
    await soon(modules.reached.wait())
    end = asyncio.create_task(session.cleanup())
    await asyncio.sleep(0)
    modules.gate.set()
    await soon(asyncio.gather(beginning, end))
    assert modules.opened == ["o", "c", "waits", "t"]
    assert modules.closed == ["t", "waits", "c", "o"]


@pytest.mark.parametrize("ask", ["initialize", "cleanup"])
async def test_a_module_that_starts_or_ends_its_own_session_is_left_out(modules: Modules, ask: str) -> None:
    async def mount(coordinator: ModuleCoordinator, _config: dict[str, Any]) -> None:
        await getattr(coordinator.session, ask)()

    session = modules.session("asks", mounts={"asks": mount})
    failures = Recorder().listen(session.coordinator.hooks, "module:load_failed")
    await soon(session.initialize())
    assert "during the operation" in failures.of("module:load_failed")[0]["error"]
    assert await session.execute("hello") == "ok"


async def test_a_hook_on_the_start_event_may_run_a_prompt(modules: Modules) -> None:
    session, answers = modules.session(), []

    async def says_hello(_event: str, _data: dict[str, Any]) -> None:
        answers.append(await session.execute("hello"))

    session.coordinator.hooks.register("session:start", says_hello)
    await soon(session.initialize())
    assert answers == ["ok"]


@pytest.mark.parametrize("ask", ["initialize", "cleanup", "execute"])
async def test_a_cleanup_function_that_calls_its_session_holds_nothing_up(modules: Modules, ask: str) -> None:
    session = modules.session("t")
    await session.initialize()
    arguments = ("hello",) if ask == "execute" else ()
    session.coordinator.register_cleanup(lambda: getattr(session, ask)(*arguments))
    await soon(session.cleanup())
    assert modules.closed == ["t", "c", "o"]


async def test_a_cleanup_function_may_register_another(modules: Modules) -> None:
    session = modules.session()
    await session.initialize()
    register = session.coordinator.register_cleanup
    register(lambda: register(lambda: modules.closed.append("late")))
    await session.cleanup()
    assert modules.closed == ["late", "c", "o"]


async def test_two_cleanups_at_the_same_time_are_one_and_both_wait_for_its_end(modules: Modules) -> None:
    session = modules.session("t")
    await session.initialize()
    ends = Recorder().listen(session.coordinator.hooks, "session:end")

    async def slow() -> None:
        modules.reached.set()
        await modules.gate.wait()

    session.coordinator.register_cleanup(slow)
    cleanups = [asyncio.create_task(session.cleanup()) for _ in range(2)]
    await soon(modules.reached.wait())
    await asyncio.sleep(0)
    assert not any(cleanup.done() for cleanup in cleanups)
    modules.gate.set()
    await soon(asyncio.gather(*cleanups))
    assert modules.closed == ["t", "c", "o"]
    assert ends.names() == ["session:end"]


async def test_a_cancelled_cleanup_still_closes_everything(modules: Modules) -> None:
    session = modules.session("t")
    await session.initialize()
    ends = Recorder().listen(session.coordinator.hooks, "session:end")
    ends.hold("session:end", modules.gate)
    end = asyncio.create_task(session.cleanup())
    await ends.reached("session:end")
    end.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(end)
    assert modules.closed == ["t", "c", "o"]


async def test_a_hook_that_hangs_does_not_hold_up_the_cleanup(modules: Modules) -> None:
    session = modules.session(hook_timeout_s=0.01)
    await session.initialize()
    Recorder().listen(session.coordinator.hooks, "session:end").hold("session:end", modules.gate)
    await soon(session.cleanup())
    assert modules.closed == ["c", "o"]


async def test_a_session_with_a_run_refuses_a_cleanup_and_runs_on() -> None:
    agent = await make_agent(never(), say("ok"))
    closed: list[bool] = []
    agent.coordinator.register_cleanup(lambda: closed.append(True))
    run = await agent.asked()
    with pytest.raises(RuntimeError, match="running"):
        await agent.session.cleanup()
    await agent.stopped(run)
    assert await agent.run() == "ok"
    assert closed == []


async def test_a_run_that_still_reports_its_cancellation_refuses_another() -> None:
    agent = await make_agent(never(), say("ok"))
    gate = asyncio.Event()
    agent.events.listen(agent.hooks, "cancel:completed").hold("cancel:completed", gate)
    run = await agent.asked()
    agent.stop()
    await agent.events.reached("cancel:completed")
    with pytest.raises(RuntimeError, match="running"):
        await agent.session.execute("another")
    gate.set()
    await soon(run)
    assert agent.session.status.status == "cancelled"
    assert await agent.run() == "ok"


async def test_a_session_whose_task_was_cancelled_has_that_status_and_runs_again() -> None:
    agent = await make_agent(never(), say("ok"))
    run = await agent.asked()
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(run)
    assert agent.session.status.status == "cancelled"
    assert await agent.run() == "ok"
    assert agent.session.status.status == "completed"


async def test_a_session_inside_a_tool_is_cancelled_with_the_tool() -> None:
    child = await make_agent(never())

    async def delegates(_input: dict[str, Any]) -> str:
        return await child.session.execute("part of it")

    agent = await make_agent(call(use("delegate", "a")), tools=[ScriptedTool("delegate", delegates)])
    run = agent.start()
    await child.provider.asked(1)
    agent.stop(immediate=True)
    await soon(run)
    assert (child.provider.cancelled, child.session.status.status) == (1, "cancelled")


async def test_a_hook_may_run_another_session() -> None:
    inner, outer = await make_agent(say("inner")), await make_agent(say("outer"))
    answers: list[str] = []

    async def asks(_event: str, _data: dict[str, Any]) -> None:
        answers.append(await inner.session.execute("hello"))

    outer.hooks.register("prompt:submit", asks)
    assert await outer.run() == "outer"
    assert answers == ["inner"]


async def test_leaving_a_session_with_a_run_cancels_the_run_and_closes_everything() -> None:
    agent = await make_agent(never())
    closed: list[str] = []
    agent.coordinator.register_cleanup(lambda: closed.append("closed"))
    runs: list[asyncio.Task[str]] = []

    async def body() -> None:
        async with agent.session:
            runs.append(agent.start())
            await agent.provider.asked(1)
            raise KeyError("the body's own")

    with pytest.raises(KeyError, match="the body's own"):
        await soon(body())
    assert runs[0].cancelled()
    assert closed == ["closed"]


async def test_leaving_a_session_does_not_wait_for_what_follows_its_run_in_the_task() -> None:
    agent = await make_agent(never())
    done = asyncio.Event()

    async def worker() -> None:
        with contextlib.suppress(asyncio.CancelledError):
            await agent.run()
        await done.wait()

    working = asyncio.create_task(worker())
    await agent.provider.asked(1)
    await soon(agent.session.__aexit__(None, None, None))
    assert agent.session.status.status == "cancelled"
    assert not working.done()
    done.set()
    await soon(working)


@pytest.mark.parametrize("event", ["session:start", "session:end"])
async def test_hook_results_at_its_start_and_end_are_applied(event: str) -> None:
    agent = await make_agent(say("ok"), display=(display := MockDisplaySystem()))
    session = AmplifierSession(agent.session.config, loader=agent.session.loader, display_system=display)

    async def greets(_event: str, _data: dict[str, Any]) -> HookResult:
        return HookResult(action="deny", reason="too late", user_message="hello")

    session.coordinator.hooks.register(event, greets, name="greeter")
    async with session:
        pass
    assert display.messages == [("hello", "info", "greeter")]
