"""A session: its mount plan, its modules, its prompts."""

import asyncio
from typing import Any

import pytest
from agents import Recorder, StaticLoader, echo, make_agent, mount_observed_context, never, say

from orchestrator_interactive.kernel import AmplifierSession
from orchestrator_interactive.kernel.contracts.errors import ModuleNotFoundError  # noqa: A004 - the contract's name

PLAN = {"session": {"orchestrator": "o", "context": "c"}}


class Repeats:
    """An orchestrator that gives back what it got."""

    async def execute(self, prompt: str, *_: Any, **kwargs: Any) -> str:
        self.kwargs = kwargs
        return prompt


async def _mount_repeats(coordinator: Any, _config: Any) -> None:
    await coordinator.mount("orchestrator", Repeats())
    await coordinator.mount("providers", object(), name="p")


async def _broken(_coordinator: Any, _config: Any) -> None:
    raise RuntimeError("no key")


def _session(plan: dict[str, Any] | None = None, *, broken: Any = _broken, **more: Any) -> AmplifierSession:
    shelf: Any = StaticLoader(o=_mount_repeats, c=mount_observed_context, broken=broken)
    return AmplifierSession({**PLAN, **(plan or {})}, loader=shelf, **more)


@pytest.mark.parametrize(
    "config",
    [{}, {"session": {}}, {"session": {"orchestrator": "o"}}, {"session": {"context": "c"}}, {"session": None}],
)
def test_a_plan_without_orchestrator_or_context_is_refused(config: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"session\.(orchestrator|context)"):
        AmplifierSession(config)


async def test_a_module_that_is_not_there_is_named_with_those_that_are() -> None:
    session = AmplifierSession({"session": {"orchestrator": "loop-imaginary", "context": "context-simple"}})
    with pytest.raises(ModuleNotFoundError, match=r"loop-imaginary.*loop-interactive.*amplifier\.modules"):
        await session.initialize()


async def test_an_optional_module_that_fails_is_reported_and_left_out() -> None:
    session = _session({"tools": [{"module": "broken"}], "hooks": [{"module": "absent"}]})
    events = Recorder().listen(session.coordinator.hooks, "module:load_failed")
    await session.initialize()
    found = [(data["module_type"], data["module_id"]) for data in events.of("module:load_failed")]
    assert found == [("tool", "broken"), ("hook", "absent")]
    assert events.of("module:load_failed")[0]["error"] == "no key"
    assert await session.execute("hello") == "hello"


@pytest.mark.parametrize(
    ("plan", "told"),
    [
        ({"tools": [{"config": {}}]}, r"tools\[0\] names no module"),
        ({"tools": "tool-todo"}, "tools must be a list"),
        ({"providers": [7]}, r"providers\[0\] must be a mapping"),
        ({"hooks": [{"module": "h", "config": "loud"}]}, r"hooks\[0\].config must be a mapping"),
        ({"session": "loop-interactive"}, "session must be a mapping"),
        ({"session": {"orchestrator": "o"}}, "session.context"),
    ],
)
def test_a_plan_of_the_wrong_form_is_refused_by_name(plan: dict[str, Any], told: str) -> None:
    with pytest.raises(ValueError, match=told):
        AmplifierSession({"session": {"orchestrator": "o", "context": "c"}, **plan})


@pytest.mark.parametrize("section", ["providers", "tools", "hooks", "orchestrator", "context"])
async def test_an_empty_section_of_a_plan_is_nothing(section: str) -> None:
    session = _session({section: None})
    assert await session.execute("hello") == "hello"


async def test_keyword_arguments_reach_the_orchestrator() -> None:
    session = _session()
    watcher = Recorder()
    await session.execute("hello", on_progress=watcher, anything=1)
    kwargs = session.coordinator.get("orchestrator").kwargs
    assert kwargs == {"coordinator": session.coordinator, "on_progress": watcher, "anything": 1}


async def test_modules_get_their_configuration() -> None:
    seen: list[Any] = []

    async def mount(_coordinator: Any, config: Any) -> None:
        seen.append(config)

    plan = {"tools": [{"module": "broken", "config": {"a": 1}}, {"module": "broken", "config": None}, "broken"]}
    await _session(plan, broken=mount).initialize()
    assert seen == [{"a": 1}, {}, {}]


async def test_the_configuration_of_orchestrator_and_context_may_stand_apart() -> None:
    seen: list[Any] = []

    async def mount(coordinator: Any, config: Any) -> None:
        seen.append(config)
        await _mount_repeats(coordinator, config)

    shelf: Any = StaticLoader(o=mount, c=mount_observed_context)
    await AmplifierSession({**PLAN, "orchestrator": {"config": {"x": 1}}}, loader=shelf).initialize()
    assert seen == [{"x": 1}]


@pytest.mark.parametrize("point", ["orchestrator", "context", "providers"])
async def test_without_something_to_run_with_the_error_names_what_is_missing(point: str) -> None:
    session = _session()
    await session.initialize()
    await session.coordinator.unmount(point, "p")
    with pytest.raises(RuntimeError, match=point):
        await session.execute("hello")


async def test_initializing_twice_mounts_once() -> None:
    count: list[int] = []

    async def mount(_coordinator: Any, _config: Any) -> None:
        count.append(1)

    session = _session({"tools": [{"module": "broken"}]}, broken=mount)
    await session.initialize()
    await session.initialize()
    assert count == [1]


async def test_initializing_twice_at_the_same_time_mounts_once() -> None:
    count: list[int] = []

    async def mount(_coordinator: Any, _config: Any) -> None:
        await asyncio.sleep(0)
        count.append(1)

    session = _session({"tools": [{"module": "broken"}]}, broken=mount)
    await asyncio.gather(session.initialize(), session.initialize())
    assert count == [1]


@pytest.mark.parametrize(
    ("more", "events"),
    [
        ({}, ["session:start"]),
        ({"is_resumed": True}, ["session:resume"]),
        ({"parent_id": "parent"}, ["session:fork", "session:start"]),
    ],
)
async def test_a_session_says_how_it_begins(more: dict[str, Any], events: list[str]) -> None:
    session = _session(**more)
    recorder = Recorder().listen(session.coordinator.hooks, "session:start", "session:resume", "session:fork")
    await session.initialize()
    assert recorder.names() == events
    assert recorder.seen[0][1]["session_id"] == session.session_id


async def test_a_session_ends_with_the_modules_clean_ups_last_first() -> None:
    order: list[str] = []

    async def mount(_coordinator: Any, config: Any) -> Any:
        return lambda: order.append(config["name"])

    tools = [{"module": "broken", "config": {"name": name}} for name in ("first", "second")]
    session = _session({"tools": tools}, broken=mount)
    recorder = Recorder().listen(session.coordinator.hooks, "session:end")
    async with session:
        assert order == []
    assert order == ["second", "first"]
    assert recorder.names() == ["session:end"]


async def test_a_session_that_raised_is_cleaned_up_all_the_same() -> None:
    session = _session()
    cleaned: list[int] = []
    await session.initialize()
    session.coordinator.register_cleanup(lambda: cleaned.append(1))
    with pytest.raises(KeyError):
        async with session:
            raise KeyError
    assert cleaned == [1]


async def test_a_module_that_mounts_what_it_returns_is_not_cleaned_up_by_calling_it() -> None:
    class CallableTool:
        name = description = "t"
        calls = 0

        def __call__(self) -> None:
            CallableTool.calls += 1

    async def mount(coordinator: Any, _config: Any) -> Any:
        tool = CallableTool()
        await coordinator.mount("tools", tool)
        return tool

    session = _session({"tools": [{"module": "broken"}]}, broken=mount)
    async with session:
        pass
    assert CallableTool.calls == 0


async def test_the_status_tells_how_the_last_run_ended() -> None:
    agent = await make_agent(say("ok"), never())
    await agent.run()
    assert agent.session.status.status == "completed"
    run = agent.start()
    await agent.provider.asked(2)
    assert agent.session.status.status == "running"
    agent.stop()
    await run
    assert agent.session.status.status == "cancelled"
    with pytest.raises(AssertionError):
        await agent.run()
    assert agent.session.status.status == "failed"
    assert (agent.session.status.last_error or {})["type"] == "AssertionError"


async def test_a_refused_second_run_leaves_the_status_of_the_first_alone() -> None:
    agent = await make_agent(never())
    run = agent.start()
    await agent.provider.asked(1)
    with pytest.raises(RuntimeError):
        await agent.session.execute("another")
    status = agent.session.status.status
    agent.stop()
    await run
    assert status == "running"


async def test_two_sessions_share_nothing() -> None:
    one, two = await make_agent(say("one"), tools=[echo()]), await make_agent(say("two"))
    one.inject("for one")
    assert [await one.run(), await two.run()] == ["one", "two"]
    assert "for one" not in str(await two.history())
    assert two.coordinator.get("tools") == {}
    assert one.session.session_id != two.session.session_id


def test_merging_lays_one_configuration_over_another() -> None:
    base = {"a": {"x": 1, "y": [1]}, "b": 1, "c": {"z": 1}}
    merged = _session()._merge_configs(base, {"a": {"y": [2]}, "b": {"n": 1}, "c": 0})
    assert merged == {"a": {"x": 1, "y": [2]}, "b": {"n": 1}, "c": 0}
    assert base == {"a": {"x": 1, "y": [1]}, "b": 1, "c": {"z": 1}}
