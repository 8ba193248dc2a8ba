"""A session lives once: it begins, runs, and ends, and what was opened is closed whichever way it ends."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from agents import Recorder, ScriptedTool, StaticLoader, call, make_agent, never, say, soon, use

from orchestrator_interactive.kernel import AmplifierSession, HookResult, ModuleCoordinator
from orchestrator_interactive.testing import MockContextManager, MockDisplaySystem, MockProvider, ScriptedOrchestrator

MountFunction = Callable[[ModuleCoordinator, dict[str, Any]], Awaitable[Any]]


class Books:
    """Modules that say what they have opened and closed; one of them may wait, or fail, before it opens."""

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
        shelf: Any = StaticLoader(**own, **(mounts or {}))
        plan = {"session": {"orchestrator": "o", "context": "c", **policy}, "tools": tools}
        return AmplifierSession(plan, loader=shelf)

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
def books() -> Books:
    return Books()


async def _ended(session: AmplifierSession) -> None:
    """The session neither begins again nor runs anything."""
    for begin in (session.initialize, lambda: session.execute("hello")):
        with pytest.raises(RuntimeError, match="ended"):
            await begin()


async def test_a_session_whose_module_cannot_be_had_has_closed_what_it_opened_and_ended(books: Books) -> None:
    session = books.session(context="fails")
    ends = Recorder().listen(session.coordinator.hooks, "session:end")
    with pytest.raises(OSError, match="no disk"):
        await session.initialize()
    assert books.closed == books.opened == ["o"]
    assert ends.names() == []
    await _ended(session)


async def test_leaving_a_session_that_never_began_closes_what_it_opened(books: Books) -> None:
    session = books.session(context="fails")
    with pytest.raises(OSError, match="no disk"):
        async with session:
            pytest.fail("it has no context")
    assert books.closed == books.opened == ["o"]


async def test_leaving_a_session_that_is_cancelled_while_it_tells_of_its_start_closes_everything(books: Books) -> None:
    session = books.session("t")
    starts = Recorder().listen(session.coordinator.hooks, "session:start")
    starts.hold("session:start", books.gate)

    async def use_it() -> None:
        async with session:
            pytest.fail("it was cancelled")

    using = asyncio.create_task(use_it())
    await starts.reached("session:start")
    using.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(using)
    assert books.closed == ["t", "c", "o"]


async def test_a_session_that_was_cleaned_up_has_ended(books: Books) -> None:
    session = books.session("t")
    async with session:
        pass
    await _ended(session)
    assert books.opened == ["o", "c", "t"]


async def test_a_session_that_was_cleaned_up_before_it_began_has_ended_in_silence(books: Books) -> None:
    session = books.session()
    ends = Recorder().listen(session.coordinator.hooks, "session:end")
    await session.cleanup()
    await _ended(session)
    assert ends.names() == []


async def test_wherever_its_beginning_is_cancelled_a_session_closes_what_it_opened() -> None:
    for steps in range(30):
        books = Books()
        session = books.session("t", "t")
        session.coordinator.hooks.register("session:start", lambda _event, _data: asyncio.sleep(0))
        beginning = asyncio.create_task(session.initialize())
        for _ in range(steps):
            await asyncio.sleep(0)
        beginning.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await beginning
        await soon(session.cleanup())
        assert sorted(books.closed) == sorted(books.opened), steps
        await _ended(session)


async def test_who_waits_for_a_beginning_that_is_cancelled_is_told_that_the_session_has_ended(books: Books) -> None:
    session = books.session("waits")
    first, second = asyncio.create_task(session.initialize()), asyncio.create_task(session.initialize())
    await soon(books.reached.wait())
    first.cancel()
    with pytest.raises(RuntimeError, match="ended"):
        await soon(second)
    assert first.cancelled()


async def test_a_prompt_waits_for_the_beginning(books: Books) -> None:
    session = books.session("waits")
    beginning = asyncio.create_task(session.initialize())
    await soon(books.reached.wait())
    run = asyncio.create_task(session.execute("hello"))
    await asyncio.sleep(0)
    assert not run.done()
    books.gate.set()
    assert await soon(run) == "ok"
    await beginning


async def test_a_clean_up_waits_for_the_beginning_and_closes_everything(books: Books) -> None:
    session = books.session("waits", "t")
    beginning = asyncio.create_task(session.initialize())
    await soon(books.reached.wait())
    end = asyncio.create_task(session.cleanup())
    await asyncio.sleep(0)
    books.gate.set()
    await soon(asyncio.gather(beginning, end))
    assert books.opened == ["o", "c", "waits", "t"]
    assert books.closed == ["t", "waits", "c", "o"]


@pytest.mark.parametrize("ask", ["initialize", "cleanup"])
async def test_a_module_that_asks_for_its_own_sessions_beginning_or_end_is_left_out(books: Books, ask: str) -> None:
    async def mount(coordinator: ModuleCoordinator, _config: dict[str, Any]) -> None:
        await getattr(coordinator.session, ask)()

    session = books.session("asks", mounts={"asks": mount})
    told = Recorder().listen(session.coordinator.hooks, "module:load_failed")
    await soon(session.initialize())
    assert "during the operation" in told.of("module:load_failed")[0]["error"]
    assert await session.execute("hello") == "ok"


async def test_a_hook_may_run_a_prompt_as_soon_as_the_session_has_started(books: Books) -> None:
    session, answers = books.session(), []

    async def says_hello(_event: str, _data: dict[str, Any]) -> None:
        answers.append(await session.execute("hello"))

    session.coordinator.hooks.register("session:start", says_hello)
    await soon(session.initialize())
    assert answers == ["ok"]


@pytest.mark.parametrize("ask", ["initialize", "cleanup", "execute"])
async def test_a_clean_up_that_asks_for_something_of_its_session_holds_nothing_up(books: Books, ask: str) -> None:
    session = books.session("t")
    await session.initialize()
    arguments = ("hello",) if ask == "execute" else ()
    session.coordinator.register_cleanup(lambda: getattr(session, ask)(*arguments))
    await soon(session.cleanup())
    assert books.closed == ["t", "c", "o"]


async def test_a_clean_up_may_register_another(books: Books) -> None:
    session = books.session()
    await session.initialize()
    register = session.coordinator.register_cleanup
    register(lambda: register(lambda: books.closed.append("late")))
    await session.cleanup()
    assert books.closed == ["late", "c", "o"]


async def test_two_clean_ups_at_the_same_time_are_one_and_both_wait_for_its_end(books: Books) -> None:
    session = books.session("t")
    await session.initialize()
    ends = Recorder().listen(session.coordinator.hooks, "session:end")

    async def slow() -> None:
        books.reached.set()
        await books.gate.wait()

    session.coordinator.register_cleanup(slow)
    cleanups = [asyncio.create_task(session.cleanup()) for _ in range(2)]
    await soon(books.reached.wait())
    await asyncio.sleep(0)
    assert not any(cleanup.done() for cleanup in cleanups)
    books.gate.set()
    await soon(asyncio.gather(*cleanups))
    assert books.closed == ["t", "c", "o"]
    assert ends.names() == ["session:end"]


async def test_cancelling_the_end_still_closes_everything(books: Books) -> None:
    session = books.session("t")
    await session.initialize()
    ends = Recorder().listen(session.coordinator.hooks, "session:end")
    ends.hold("session:end", books.gate)
    end = asyncio.create_task(session.cleanup())
    await ends.reached("session:end")
    end.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(end)
    assert books.closed == ["t", "c", "o"]


async def test_a_listener_that_hangs_does_not_hold_up_the_end(books: Books) -> None:
    session = books.session(hook_timeout_s=0.01)
    await session.initialize()
    Recorder().listen(session.coordinator.hooks, "session:end").hold("session:end", books.gate)
    await soon(session.cleanup())
    assert books.closed == ["c", "o"]


async def test_a_session_that_runs_refuses_to_be_cleaned_up_and_runs_on() -> None:
    agent = await make_agent(never(), say("ok"))
    closed: list[bool] = []
    agent.coordinator.register_cleanup(lambda: closed.append(True))
    run = agent.start()
    await agent.provider.asked(1)
    with pytest.raises(RuntimeError, match="running"):
        await agent.session.cleanup()
    agent.stop()
    await soon(run)
    assert await agent.run() == "ok"
    assert closed == []


async def test_a_run_that_still_tells_of_its_cancellation_refuses_another() -> None:
    agent = await make_agent(never(), say("ok"))
    gate = asyncio.Event()
    agent.events.listen(agent.hooks, "cancel:completed").hold("cancel:completed", gate)
    run = agent.start()
    await agent.provider.asked(1)
    agent.stop()
    await agent.events.reached("cancel:completed")
    with pytest.raises(RuntimeError, match="running"):
        await agent.session.execute("another")
    gate.set()
    await soon(run)
    assert agent.session.status.status == "cancelled"
    assert await agent.run() == "ok"


async def test_a_session_whose_task_was_cancelled_says_so_and_runs_again() -> None:
    agent = await make_agent(never(), say("ok"))
    run = agent.start()
    await agent.provider.asked(1)
    run.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(run)
    assert agent.session.status.status == "cancelled"
    assert await agent.run() == "ok"
    assert agent.session.status.status == "completed"


async def test_a_session_that_a_tool_runs_is_cancelled_with_the_tool() -> None:
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


async def test_leaving_a_session_while_a_prompt_runs_ends_the_run_and_closes_everything() -> None:
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


@pytest.mark.parametrize("event", ["session:start", "session:end"])
async def test_what_hooks_wish_at_its_beginning_and_end_is_done(event: str) -> None:
    agent = await make_agent(say("ok"), display=(display := MockDisplaySystem()))
    session = AmplifierSession(agent.session.config, loader=agent.session.loader, display_system=display)
    wish = HookResult(action="deny", reason="too late", user_message="hello")

    async def greets(_event: str, _data: dict[str, Any]) -> HookResult:
        return wish

    session.coordinator.hooks.register(event, greets, name="greeter")
    async with session:
        pass
    assert display.messages == [("hello", "info", "greeter")]
