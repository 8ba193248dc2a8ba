"""`cache_ttl` and `dedup_ttl`: which calls run a tool, and which share a result."""

import asyncio
from typing import Any

import pytest
from agents import Milestones, deaf_to_the_loop, soon
from hypothesis import given
from hypothesis import strategies as st
from virtual_time import in_virtual_time

from orchestrator_interactive.kernel import ToolResult
from orchestrator_interactive.registries import ToolRegistry, tool
from orchestrator_interactive.registries.schemas import ToolConfig


class Clock:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


class Counted:
    """A tool that returns the number of its run; it waits for the gate and fails on request."""

    def __init__(self, clock: Clock | None = None, **config: Any) -> None:
        self.runs = Milestones()
        self.gate = asyncio.Event()
        self.gate.set()
        self.fails = False
        self.cancelled = 0
        self.function = tool(ToolConfig(name="count", description="Counts.", **config))(self._run)
        self.tool = ToolRegistry([self.function], clock or Clock()).get_tool_by_name("count")

    async def _run(self, a: int = 0, b: list[int] | None = None) -> Any:
        del a, b
        self.runs.pass_one()
        number = self.runs.count
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        return ToolResult(success=False, output="failed") if self.fails else {"run": number}

    async def call(self, **given: Any) -> Any:
        output = (await soon(self.tool.execute(given))).output
        return output["run"] if isinstance(output, dict) else output

    def start(self, **given: Any) -> asyncio.Task[Any]:
        return asyncio.create_task(self.call(**given))


@pytest.mark.parametrize("config", [{"cache_ttl": 60}, {"dedup_ttl": 60}, {"cache_ttl": 60, "dedup_ttl": 5}], ids=str)
async def test_an_equal_call_gets_the_cached_result_until_it_expires(config: dict[str, int]) -> None:
    clock = Clock()
    counted = Counted(clock, **config)
    assert await counted.call(a=1) == 1
    clock.now_s += 59.9
    assert await counted.call(a=1) == 1
    clock.now_s += 0.1
    assert await counted.call(a=1) == 2


async def test_calls_are_equal_by_their_validated_arguments() -> None:
    counted = Counted(cache_ttl=60)
    assert await counted.call(a=1, b=[1]) == 1
    assert await counted.call(b=["1"], a=1.0) == 1
    assert await counted.call(a=1, b=[2]) == 2
    assert await counted.call() == await counted.call(a=0) == 3


async def test_changes_to_a_result_do_not_change_the_cache() -> None:
    counted = Counted(cache_ttl=60, dedup_ttl=60)
    for _ in range(3):
        result = await counted.tool.execute({})
        assert result.output == {"run": 1}
        result.output["run"] = 99


async def test_the_cache_drops_the_least_recently_used_result() -> None:
    counted = Counted(cache_ttl=60)
    for a in range(256):
        await counted.call(a=a)
    await counted.call(a=0)
    await counted.call(a=256)
    assert await counted.call(a=0) == 1
    assert await counted.call(a=1) == 258


async def test_each_registry_has_its_own_cache() -> None:
    counted = Counted(cache_ttl=60)
    other = ToolRegistry([counted.function]).get_tool_by_name("count")
    assert await counted.call() == 1
    assert (await other.execute({})).output == {"run": 2}


@pytest.mark.parametrize("dedup_ttl", [0, 60])
async def test_an_equal_call_during_a_run_gets_its_result(dedup_ttl: int) -> None:
    counted = Counted(dedup_ttl=dedup_ttl)
    counted.gate.clear()
    calls = [counted.start(a=1) for _ in range(3)]
    await counted.runs.reached(1)
    other = counted.start(a=2)
    await counted.runs.reached(2)
    counted.gate.set()
    assert await asyncio.gather(*calls, other) == [1, 1, 1, 2]
    assert await counted.call(a=1) == (1 if dedup_ttl else 3)


async def test_concurrent_equal_calls_share_a_failure() -> None:
    counted = Counted(dedup_ttl=60)
    counted.fails = True
    assert await asyncio.gather(counted.start(), counted.start()) == ["failed", "failed"]
    assert counted.runs.count == 1


@pytest.mark.parametrize("first_goes", [True, False])
async def test_cancelling_one_caller_does_not_cancel_the_run(first_goes: bool) -> None:
    counted = Counted(dedup_ttl=60)
    counted.gate.clear()
    first, second = counted.start(), counted.start()
    await counted.runs.reached(1)
    goes, stays = (first, second) if first_goes else (second, first)
    goes.cancel()
    with pytest.raises(asyncio.CancelledError):
        await goes
    counted.gate.set()
    assert await stays == 1
    assert (counted.runs.count, counted.cancelled) == (1, 0)


async def test_cancelling_the_last_caller_cancels_the_run() -> None:
    counted = Counted(dedup_ttl=60)
    counted.gate.clear()
    calls = [counted.start(), counted.start()]
    await counted.runs.reached(1)
    for each in calls:
        each.cancel()
    await asyncio.wait(calls)
    assert counted.cancelled == 1
    counted.gate.set()
    assert await counted.call() == 2


@in_virtual_time
async def test_a_cancelled_caller_does_not_wait_for_a_tool_that_ignores_cancellation() -> None:
    release, runs = asyncio.Event(), Milestones()

    @tool(ToolConfig(name="listen", description="Does not.", dedup_ttl=60))
    async def listen() -> int:
        runs.pass_one()
        number = runs.count
        await deaf_to_the_loop(release)
        return number

    made = ToolRegistry([listen]).get_tool_by_name("listen")
    running = asyncio.create_task(made.execute({}))
    await runs.reached(1)
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await soon(running)
    again = asyncio.create_task(made.execute({}))
    await runs.reached(2)
    release.set()
    assert (await soon(again)).output == 2


@given(
    st.lists(st.tuples(st.integers(0, 2), st.sampled_from([0, 1, 5, 9.5, 10, 30]), st.booleans()), max_size=20),
    st.sampled_from([(None, None), (10, None), (None, 10), (5, 10), (0, 0)]),
)
def test_results_expire_after_the_longer_ttl_and_failures_are_not_cached(calls, ttls) -> None:
    clock = Clock()
    kept_for_s = max(ttl or 0 for ttl in ttls)
    expected: dict[int, tuple[float, int]] = {}

    async def play() -> None:
        counted = Counted(clock, cache_ttl=ttls[0], dedup_ttl=ttls[1])
        for a, wait_s, fails in calls:
            clock.now_s += wait_s
            counted.fails = fails
            until, run = expected.get(a, (0.0, 0))
            if clock.now_s < until:
                assert await counted.call(a=a) == run
                continue
            number = counted.runs.count + 1
            assert await counted.call(a=a) == ("failed" if fails else number)
            if not fails:
                expected[a] = (clock.now_s + kept_for_s, number)

    asyncio.run(play())
