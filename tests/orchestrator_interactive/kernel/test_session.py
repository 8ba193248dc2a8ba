"""A session mounts its modules once, runs one prompt at a time, and has a status."""

import asyncio
from typing import Any

import pytest
from agents import Recorder, StaticLoader, echo, make_agent, mount_observed_context, never, say
from structlog.testing import capture_logs

from orchestrator_interactive.kernel import AmplifierSession
from orchestrator_interactive.testing import MockProvider


class Repeats:
    """An orchestrator that returns the prompt."""

    async def execute(self, prompt: str, *_: Any, **kwargs: Any) -> str:
        self.kwargs = kwargs
        return prompt


async def _mount_repeats(coordinator: Any, _config: Any) -> None:
    await coordinator.mount("orchestrator", Repeats())
    await coordinator.mount("providers", MockProvider(), name="p")


async def _broken(_coordinator: Any, _config: Any) -> None:
    raise RuntimeError("no key")


def _session(plan: dict[str, Any] | None = None, *, tool: Any = _broken, **more: Any) -> AmplifierSession:
    """A session whose plan may name a tool module `t`."""
    loader: Any = StaticLoader(o=_mount_repeats, c=mount_observed_context, t=tool)
    return AmplifierSession({"session": {"orchestrator": "o", "context": "c"}, **(plan or {})}, loader=loader, **more)


class TestModules:
    @pytest.mark.parametrize("at_once", [False, True])
    async def test_initializing_twice_mounts_them_once(self, *, at_once: bool) -> None:
        count: list[int] = []

        async def mount(_coordinator: Any, _config: Any) -> None:
            await asyncio.sleep(0)
            count.append(1)

        session = _session({"tools": ["t"]}, tool=mount)
        if not at_once:
            await session.initialize()
        await asyncio.gather(session.initialize(), session.initialize())
        assert count == [1]

    @pytest.mark.parametrize("point", ["orchestrator", "context", "providers"])
    async def test_the_error_of_a_prompt_names_a_missing_one(self, point: str) -> None:
        session = _session()
        await session.initialize()
        await session.coordinator.unmount(point, "p")
        with pytest.raises(RuntimeError, match=point):
            await session.execute("hello")


async def test_keyword_arguments_reach_the_orchestrator() -> None:
    session, listener = _session(), Recorder()
    await session.execute("hello", on_progress=listener, anything=1)
    kwargs = session.coordinator.get("orchestrator").kwargs
    assert kwargs == {"coordinator": session.coordinator, "on_progress": listener, "anything": 1}


class KeywordOnly:
    async def execute(self, prompt: str, *, context: Any, providers: Any, tools: Any, hooks: Any) -> Any:
        return prompt, context, providers, tools, hooks


class AnotherOrder:
    async def execute(self, hooks: Any, tools: Any, providers: Any, context: Any, prompt: str) -> Any:
        return prompt, context, providers, tools, hooks


class PositionalOnly:
    async def execute(  # noqa: PLR0917 - as some orchestrators have it
        self, prompt: str, context: Any, providers: Any, tools: Any, hooks: Any, coordinator: Any, /
    ) -> Any:
        assert coordinator.hooks is hooks
        return prompt, context, providers, tools, hooks


class OtherNames:
    async def execute(self, text: str, memory: Any, models: Any, *more: Any, coordinator: Any) -> Any:
        return text, memory, models, *more


class AnyPositional:
    async def execute(self, *given: Any) -> Any:
        return given


class OwnOption:
    async def execute(self, prompt: str, timeout_s: float = 30, *given: Any, **_: Any) -> Any:
        assert timeout_s == 30
        return prompt, *given


class AnyKeyword:
    async def execute(self, **given: Any) -> Any:
        return tuple(given[name] for name in ("prompt", "context", "providers", "tools", "hooks"))


@pytest.mark.parametrize(
    "orchestrator", [KeywordOnly, AnotherOrder, PositionalOnly, OtherNames, AnyPositional, OwnOption, AnyKeyword]
)
async def test_an_orchestrator_gets_its_arguments_by_their_names(orchestrator: Any) -> None:
    session = _session()
    await session.initialize()
    coordinator = session.coordinator
    await coordinator.mount("orchestrator", orchestrator())
    mounted = [coordinator.get(point) for point in ("context", "providers", "tools", "hooks")]
    answer: Any = await session.execute("hello")
    assert answer[0] == "hello"
    assert all(one is other for one, other in zip(answer[1:], mounted, strict=True))


async def test_an_orchestrator_that_takes_no_prompt_is_an_error() -> None:
    class Deaf:
        async def execute(self, text: str = "", context: Any = None) -> str:
            return text

    session = _session()
    await session.initialize()
    await session.coordinator.mount("orchestrator", Deaf())
    with pytest.raises(TypeError, match=r"execute\(\) takes no prompt: name its parameters as in the contract"):
        await session.execute("hello")


async def test_an_argument_that_the_orchestrator_does_not_take_is_logged() -> None:
    session = _session()
    await session.initialize()
    await session.coordinator.mount("orchestrator", KeywordOnly())
    with capture_logs() as logs:
        await session.execute("hello", provider="p", on_progress=Recorder())
    assert [each["arguments"] for each in logs if each["log_level"] == "warning"] == [["provider"]]


@pytest.mark.parametrize(
    ("more", "events"),
    [
        ({}, ["session:start"]),
        ({"is_resumed": True}, ["session:resume"]),
        ({"parent_id": "parent"}, ["session:fork", "session:start"]),
    ],
)
async def test_the_first_event_says_how_a_session_begins(more: dict[str, Any], events: list[str]) -> None:
    session = _session(**more)
    recorder = Recorder().listen(session.coordinator.hooks, "session:start", "session:resume", "session:fork")
    await session.initialize()
    assert recorder.names() == events
    assert recorder.seen[0][1]["session_id"] == session.session_id


async def test_the_status_is_that_of_the_last_run() -> None:
    agent = await make_agent(say("ok"), never())
    await agent.run()
    assert agent.session.status.status == "completed"
    run = await agent.asked(2)
    with pytest.raises(RuntimeError):
        await agent.session.execute("another")
    assert agent.session.status.status == "running"
    await agent.stopped(run)
    assert agent.session.status.status == "cancelled"
    with pytest.raises(AssertionError):
        await agent.run()
    assert agent.session.status.status == "failed"
    assert (agent.session.status.last_error or {})["type"] == "AssertionError"


async def test_two_sessions_share_nothing() -> None:
    one, two = await make_agent(say("one"), tools=[echo()]), await make_agent(say("two"))
    one.inject("for one")
    assert [await one.run(), await two.run()] == ["one", "two"]
    assert "for one" not in str(await two.history())
    assert two.coordinator.get("tools") == {}
    assert one.session.session_id != two.session.session_id
