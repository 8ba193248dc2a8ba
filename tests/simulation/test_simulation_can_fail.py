"""Each defect of the agent, its log or its tools is detected in some of the first seeds, by the expected invariant."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from simulated.agent import Parts, run
from simulated.agent.invariants import refusals

import orchestrator_interactive as oi
from orchestrator_interactive.loop.injection_queue import InjectionQueue


class Proxy:
    def __init__(self, inner: Any):
        self.inner = inner

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)


def proxy(**members: Any) -> type[Proxy]:
    return type("Defective", (Proxy,), members)


def mount(change: Any, **options: Any) -> Parts:
    """The loop, mounted with other options and then changed."""

    async def mount(coordinator: Any, config: dict[str, Any]) -> None:
        await oi.mount(coordinator, {**config, **options})
        change(coordinator, coordinator.get("orchestrator"))

    return Parts(mount_loop=mount)


def options(**options: Any) -> Parts:
    return mount(lambda _coordinator, _loop: None, **options)


def queue(**members: Any) -> Parts:
    """The queue is no module, so this reaches into the loop."""
    defective: Any = type("Defective", (InjectionQueue,), members)
    return mount(lambda _coordinator, loop: setattr(loop, "_queue", defective()))


def capability(name: str, change: Any) -> Parts:
    def register(coordinator: Any, loop: Any) -> None:
        name_there = f"orchestrator.{name}"
        coordinator.register_capability(name_there, change(coordinator.get_capability(name_there), loop))

    return mount(register)


def loop(execute: Any) -> Parts:
    """An orchestrator around the loop."""

    def wrap(coordinator: Any, inner: Any) -> None:
        coordinator.unmount("orchestrator")
        coordinator.mount("orchestrator", proxy(execute=execute)(inner))

    return mount(wrap)


def progress(change: Any) -> Parts:
    async def execute(self: Proxy, *given: Any, on_progress: Any = None, **more: Any) -> str:
        async def changed(event: str, data: dict[str, Any]) -> None:
            for each in change(event, data):
                await on_progress(*each)

        return await self.inner.execute(*given, on_progress=changed, **more)

    return loop(execute)


def tools(**members: Any) -> Parts:
    async def execute(
        self: Proxy, prompt: str, context: Any, providers: Any, tools: Any, *given: Any, **more: Any
    ) -> str:
        others = {name: proxy(**members)(tool) for name, tool in tools.items()}
        return await self.inner.execute(prompt, context, providers, others, *given, **more)

    return loop(execute)


def log(**members: Any) -> Parts:
    return Parts(wrap_log=proxy(**members))


def close_and_drop(self: InjectionQueue) -> tuple[()]:
    self.drain()
    self.is_open = False
    return ()


def is_waiting(loop: Any, message_id: str) -> bool:
    return message_id in loop._queue.pending


async def interrupt(self: Proxy, row: dict[str, Any]) -> None:
    await self.inner.add_message(row)
    if row.get("tool_calls"):
        await self.inner.add_message({"role": "user", "content": "Meanwhile."})


async def drop_results(self: Proxy, row: dict[str, Any]) -> None:
    if row["role"] != "tool":
        await self.inner.add_message(row)


async def shift_results(self: Proxy, row: dict[str, Any]) -> None:
    """Give each call the result of the previous one."""
    if row["role"] == "tool":
        row, self.content = {**row, "content": self.content}, row["content"]
    await self.inner.add_message(row)


def late_rows(copies: int) -> Any:
    async def add_message(self: Proxy, row: dict[str, Any]) -> None:
        for _ in range(copies if "results" in (row.get("metadata") or {}) else 1):
            await self.inner.add_message(row)

    return log(add_message=add_message)


async def drop_metadata(self: Proxy, **options: Any) -> list[dict[str, Any]]:
    rows = await self.inner.get_messages_for_request(**options)
    return [{key: value for key, value in row.items() if key != "metadata"} for row in rows]


async def count_rows_in_the_first(self: Proxy, **options: Any) -> list[dict[str, Any]]:
    rows = await self.inner.get_messages_for_request(**options)
    return [{**rows[0], "content": f"{rows[0]['content']} ({len(rows)} rows)"}, *rows[1:]] if rows else rows


async def hang(self: Proxy, row: dict[str, Any]) -> None:
    await self.inner.add_message(row)
    self.rows += 1
    if self.rows == 7:
        await asyncio.Event().wait()


HANGING_LOG = log(rows=0, add_message=hang)


async def hide_the_end(self: Proxy, *given: Any, **more: Any) -> str:
    *given, hooks = given
    silent = proxy(listens=lambda self, event: event != "execution:end" and self.inner.listens(event))(hooks)
    return await self.inner.execute(*given, silent, **more)


async def run_shielded(self: Proxy, *given: Any, **more: Any) -> str:
    return await asyncio.shield(asyncio.ensure_future(self.inner.execute(*given, **more)))


async def add_a_row_later(self: Proxy, prompt: str, context: Any, *given: Any, **more: Any) -> str:
    answer = await self.inner.execute(prompt, context, *given, **more)
    row, loop = {"role": "system", "content": "By the way."}, asyncio.get_running_loop()
    loop.call_later(0.05, lambda: loop.create_task(context.add_message(row)))
    return answer


async def hide_errors(self: Proxy, *given: Any, **more: Any) -> str:
    try:
        return await self.inner.execute(*given, **more)
    except Exception:  # noqa: BLE001 - the defect
        return ""


async def reverse_providers(self: Proxy, prompt: str, context: Any, providers: Any, *given: Any, **more: Any) -> str:
    return await self.inner.execute(prompt, context, dict(reversed(providers.items())), *given, **more)


async def drop_interrupted_calls(
    self: Proxy, prompt: str, context: Any, providers: Any, *given: Any, **more: Any
) -> str:
    def parse_tool_calls(self: Proxy, response: Any) -> Any:
        return [] if response.finish_reason == "interrupted" else self.inner.parse_tool_calls(response)

    others = {name: proxy(parse_tool_calls=parse_tool_calls)(provider) for name, provider in providers.items()}
    return await self.inner.execute(prompt, context, others, *given, **more)


def claim_success(event: str, data: dict[str, Any]) -> list[Any]:
    if event == "complete":
        data = {**data, "tools": [{**each, "outcome": "finished"} for each in data["tools"]]}
    return [(event, data)]


def double_the_usage(event: str, data: dict[str, Any]) -> list[Any]:
    if event == "complete":
        data = {**data, "usage": {**data["usage"], "input_tokens": 2 * data["usage"]["input_tokens"]}}
    return [(event, data)]


def report_after_the_end(event: str, data: dict[str, Any]) -> list[Any]:
    late = [("tool:progress", {"tool": data["tool"], "id": data["id"], "text": "late"})] if event == "tool:end" else []
    return [(event, data), *late]


class Cancellable(Proxy):
    """A tool that an urgent message cancels."""

    active: ClassVar[set[asyncio.Task[Any]]] = set()

    async def execute(self, input: dict[str, Any]) -> Any:  # noqa: A002 - the contract's name
        task = asyncio.ensure_future(self.inner.execute(input))
        self.active.add(task)
        try:
            return await task
        finally:
            self.active.discard(task)


async def mount_with_cancelling_urgent_messages(coordinator: Any, config: dict[str, Any]) -> None:
    await tools(execute=Cancellable.execute, active=Cancellable.active).mount_loop(coordinator, config)
    inject = coordinator.get_capability("orchestrator.inject_message")

    def inject_and_cancel(content: Any) -> Any:
        receipt = inject(content)
        if oi.Injection.of(content).urgent:
            for task in list(Cancellable.active):
                task.cancel()
        return receipt

    coordinator.register_capability("orchestrator.inject_message", inject_and_cancel)


async def execute_shielded(self: Proxy, input: dict[str, Any]) -> Any:  # noqa: A002
    return await asyncio.shield(asyncio.ensure_future(self.inner.execute(input)))


def defect(
    violation: str, parts: Parts, *features: str, seeds: tuple[int, ...] = ()
) -> tuple[str, Parts, tuple[int, ...]]:
    """Return a part of the expected violation, the parts with the features of the seeds, and the seeds to try first."""
    return violation, replace(parts, features=frozenset(features)), seeds


DEFECTS = {
    "the queue drops pending messages at the end": defect("it is lost", queue(drain_or_close=close_and_drop)),
    "the queue returns the newest first": defect(
        "which is older", queue(drain=lambda self: InjectionQueue.drain(self)[::-1])
    ),
    "the queue returns each message twice": defect(
        "delivered twice",
        queue(drain=lambda self: tuple(each for each in InjectionQueue.drain(self) for _ in range(2))),
    ),
    "the queue does not report urgent messages": defect(
        "was not read for",
        queue(has_urgent=False, on_change=property(lambda _: None, lambda _, __: None)),
        "urgent steers",
    ),
    "inject_message drops messages": defect(
        "it is lost",
        capability("inject_message", lambda _, __: lambda content: oi.Receipt(getattr(content, "id", "plain"))),
    ),
    "edit_message changes nothing": defect(
        "was changed on the way",
        capability("edit_message", lambda _, loop: lambda message_id, _text: is_waiting(loop, message_id)),
        "edits",
    ),
    "withdraw_message withdraws nothing": defect(
        "was withdrawn",
        capability("withdraw_message", lambda _, loop: lambda message_id: is_waiting(loop, message_id)),
        "edits",
    ),
    "receipts are lost": defect("The capability reports", capability("receipts", lambda _, __: lambda: ())),
    "a row separates a call and its result": defect("precedes the results of", log(add_message=interrupt)),
    "results are lost": defect("the log has no result of", log(add_message=drop_results)),
    "results belong to other calls": defect("is in the row of", log(add_message=shift_results, content="nothing")),
    "late results are lost": defect("never came", late_rows(0), "urgent steers"),
    "late results come twice": defect("An unexpected late result", late_rows(2), "urgent steers"),
    "active calls of a killed process are not reported": defect(
        "their process was killed", late_rows(0), "urgent steers", "kills", seeds=(38,)
    ),
    "a refusal is not stored": defect("the model reads", log(get_messages_for_request=drop_metadata), "refusals"),
    "the history is rewritten": defect(
        "does not begin with the whole previous request", log(get_messages_for_request=count_rows_in_the_first)
    ),
    "the store hangs": defect("No callback will ever run again", HANGING_LOG),
    "the end is not reported to hooks": defect("'execution:end' came 0 times", loop(hide_the_end)),
    "a run outlives its cancellation": defect("A task is left", loop(run_shielded), "cancels"),
    "a row is added after the end": defect("was added while no run was active", loop(add_a_row_later)),
    "an error is hidden": defect("reports the status 'error'", loop(hide_errors), "errors"),
    "an answer is not shown": defect(
        "users were shown", progress(lambda event, data: [] if event == "text" else [(event, data)])
    ),
    "calls are missing at the end": defect(
        "does not report the call",
        progress(lambda event, data: [(event, {**data, "tools": []} if event == "complete" else data)]),
    ),
    "all calls are reported as finished": defect("as 'finished', not", progress(claim_success), "stops"),
    "tokens are counted twice": defect("The run used", progress(double_the_usage)),
    "progress is reported after the end of a call": defect(
        "is outside of its tool:start and tool:end", progress(report_after_the_end), "tool reports"
    ),
    "a stop does nothing": defect(
        "started after the stop",
        capability("stop", lambda _, loop: lambda _immediate=False, _run_id=None: loop._running is not None),
        "stops",
    ),
    "a stop ends another run": defect(
        "A stop of a finished run was accepted",
        capability("stop", lambda stop, _: lambda immediate=False, _run_id=None: stop(immediate)),
        "stops",
        seeds=(15,),
    ),
    "an urgent message cancels tools": defect(
        "within its time limit and that of the run",
        Parts(mount_loop=mount_with_cancelling_urgent_messages),
        "urgent steers",
    ),
    "an urgent message discards an early call": defect(
        "after an urgent message its call is missing",
        loop(drop_interrupted_calls),
        "urgent steers",
        "side-effect-free tools",
        "many calls",
        seeds=(10,),
    ),
    "a tool with side effects starts early": defect(
        "started before its call was in the log", tools(side_effect_free=True)
    ),
    "an early call outlives its failed answer": defect(
        "its result will never be read",
        tools(execute=execute_shielded),
        "side-effect-free tools",
        "errors",
        seeds=(127,),
    ),
    "a child process outlives its tool": defect(
        "of a tool has outlived the run", tools(execute=execute_shielded), "tools with children", "cancels", seeds=(91,)
    ),
    "a tool has no time limit": defect("after its time limit", tools(timeout_s=1e6), "tool timeouts"),
    "a result has no size limit": defect(
        "characters; the limit is", options(max_result_chars=10**6), "capped results", "odd tools", seeds=(13,)
    ),
    "retries have no limit": defect("came a retry; expected was", options(max_retries=50), "errors", seeds=(8,)),
    "retries have no delay": defect("it must be 0.500 to 1.000 s", options(retry_base_delay_s=0), "errors"),
    "providers have the wrong order": defect("goes to the provider", loop(reverse_providers), "fallback models"),
    "the budget has no limit": defect("may use its tools, and should not", options(max_tokens=None), "token limit"),
}


@pytest.mark.parametrize("name", DEFECTS)
def test_a_defect_is_detected(name: str) -> None:
    expected, parts, first = DEFECTS[name]
    seeds = (*first, *range(150))
    assert any(expected in violation for seed in seeds for violation in run(seed, parts).violations)


def test_a_hang_is_reported_with_the_stack_of_every_task() -> None:
    violations = [each for seed in range(10) for each in run(seed, HANGING_LOG).violations]
    assert any("test_simulation_can_fail.py" in each and "hang" in each for each in violations)


CALL = {"role": "assistant", "content": [{"type": "tool_call", "id": "a", "name": "look", "input": {}}]}
RESULT = {"role": "tool", "tool_call_id": "a", "content": "seen"}
USER = {"role": "user", "content": "go"}


def thinking(**fields: str) -> dict[str, Any]:
    return {"role": "assistant", "content": [{"type": "thinking", "thinking": "hm", **fields}]}


@pytest.mark.parametrize(
    ("rows", "reason"),
    [
        ([USER, CALL, USER], "a call without its result after it: a"),
        ([USER, RESULT, USER], "a result without its call before it: a"),
        ([USER, CALL, RESULT, CALL, RESULT], "the call id 'a' is used twice"),
        ([USER, {"role": "assistant", "content": "done"}], "the last message is the model's"),
        ([{"role": "user", "content": " "}], "a message of role 'user' is blank"),
        ([USER, {"role": "assistant", "content": []}, USER], "a message of role 'assistant' is empty"),
        ([{"role": "user", "content": [{"type": "text", "text": "\n"}]}], "blank text"),
        ([USER, thinking(signature="s"), USER], "the final block of an assistant message is thinking"),
        ([USER, thinking(), USER], "thinking without its signature"),
        ([], "the last message is the model's"),
    ],
)
def test_an_invalid_request_is_detected(rows: list[dict[str, object]], reason: str) -> None:
    assert reason in refusals(rows)


def test_a_valid_request_is_accepted() -> None:
    assert refusals([USER, CALL, RESULT]) == []
