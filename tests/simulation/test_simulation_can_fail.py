"""Each defect of the agent, its log or its tools is detected in some of the first seeds, by the expected invariant."""

from __future__ import annotations

import asyncio
from contextlib import nullcontext
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


def close_and_drop(self: InjectionQueue) -> None:
    self.drain()
    InjectionQueue.close(self)


def is_waiting(loop: Any, message_id: str) -> bool:
    return message_id in {each.id for each in loop._queue.waiting()}


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


# The defect, a part of the violation, and the features of the seeds.
DEFECTS: dict[str, tuple[Parts, str, set[str]]] = {
    "the queue drops pending messages at the end": (queue(close=close_and_drop), "it is lost", set()),
    "the queue returns the newest first": (
        queue(drain=lambda self: InjectionQueue.drain(self)[::-1]),
        "which is older",
        set(),
    ),
    "the queue returns each message twice": (
        queue(drain=lambda self: tuple(each for each in InjectionQueue.drain(self) for _ in range(2))),
        "delivered twice",
        set(),
    ),
    "the queue does not report urgent messages": (
        queue(has_urgent=False, watch=lambda _self, _callback: nullcontext()),
        "was not read for",
        {"urgent steers"},
    ),
    "inject_message drops messages": (
        capability("inject_message", lambda _, __: lambda content: oi.Receipt(getattr(content, "id", "plain"))),
        "it is lost",
        set(),
    ),
    "edit_message changes nothing": (
        capability("edit_message", lambda _, loop: lambda message_id, _text: is_waiting(loop, message_id)),
        "was changed on the way",
        {"edits"},
    ),
    "withdraw_message withdraws nothing": (
        capability("withdraw_message", lambda _, loop: lambda message_id: is_waiting(loop, message_id)),
        "was withdrawn",
        {"edits"},
    ),
    "receipts are lost": (capability("receipts", lambda _, __: lambda: ()), "The capability reports", set()),
    "a row separates a call and its result": (log(add_message=interrupt), "precedes the results of", set()),
    "results are lost": (log(add_message=drop_results), "the log has no result of", set()),
    "results belong to other calls": (
        log(add_message=shift_results, content="nothing"),
        "is in the row of",
        set(),
    ),
    "late results are lost": (late_rows(0), "never came", {"urgent steers"}),
    "late results come twice": (late_rows(2), "An unexpected late result", {"urgent steers"}),
    "active calls of a killed process are not reported": (
        late_rows(0),
        "their process was killed",
        {"urgent steers", "kills"},
    ),
    "a refusal is not stored": (log(get_messages_for_request=drop_metadata), "the model reads", {"refusals"}),
    "the history is rewritten": (
        log(get_messages_for_request=count_rows_in_the_first),
        "does not begin with the whole previous request",
        set(),
    ),
    "the store hangs": (HANGING_LOG, "No callback will ever run again", set()),
    "the end is not reported to hooks": (loop(hide_the_end), "'execution:end' came 0 times", set()),
    "a run outlives its cancellation": (loop(run_shielded), "A task is left", {"cancels"}),
    "a row is added after the end": (loop(add_a_row_later), "was added while no run was active", set()),
    "an error is hidden": (loop(hide_errors), "reports the status 'error'", {"errors"}),
    "an answer is not shown": (
        progress(lambda event, data: [] if event == "text" else [(event, data)]),
        "users were shown",
        set(),
    ),
    "calls are missing at the end": (
        progress(lambda event, data: [(event, {**data, "tools": []} if event == "complete" else data)]),
        "does not report the call",
        set(),
    ),
    "all calls are reported as finished": (progress(claim_success), "as 'finished', not", {"stops"}),
    "tokens are counted twice": (progress(double_the_usage), "The run used", set()),
    "progress is reported after the end of a call": (
        progress(report_after_the_end),
        "is outside of its tool:start and tool:end",
        {"tool reports"},
    ),
    "a stop does nothing": (
        capability("stop", lambda _, loop: lambda _immediate=False, _run_id=None: loop._running is not None),
        "started after the stop",
        {"stops"},
    ),
    "a stop ends another run": (
        capability("stop", lambda stop, _: lambda immediate=False, _run_id=None: stop(immediate)),
        "A stop of a finished run was accepted",
        {"stops"},
    ),
    "an urgent message cancels tools": (
        Parts(mount_loop=mount_with_cancelling_urgent_messages),
        "within its time limit and that of the run",
        {"urgent steers"},
    ),
    "an urgent message discards an early call": (
        loop(drop_interrupted_calls),
        "after an urgent message its call is missing",
        {"urgent steers", "side-effect-free tools", "many calls"},
    ),
    "a tool with side effects starts early": (
        tools(side_effect_free=True),
        "started before its call was in the log",
        set(),
    ),
    "an early call outlives its failed answer": (
        tools(execute=execute_shielded),
        "its result will never be read",
        {"side-effect-free tools", "errors"},
    ),
    "a child process outlives its tool": (
        tools(execute=execute_shielded),
        "of a tool has outlived the run",
        {"tools with children", "cancels"},
    ),
    "a tool has no time limit": (tools(timeout_s=1e6), "after its time limit", {"tool timeouts"}),
    "a result has no size limit": (
        options(max_result_chars=10**6),
        "characters; the limit is",
        {"capped results", "odd tools"},
    ),
    "retries have no limit": (options(max_retries=50), "came a retry; expected was", {"errors"}),
    "retries have no delay": (options(retry_base_delay_s=0), "it must be 0.500 to 1.000 s", {"errors"}),
    "providers have the wrong order": (loop(reverse_providers), "goes to the provider", {"fallback models"}),
    "the budget has no limit": (
        options(max_tokens=None),
        "may use its tools, and should not",
        {"token limit"},
    ),
}


@pytest.mark.parametrize("defect", DEFECTS)
def test_a_defect_is_detected(defect: str) -> None:
    parts, expected, features = DEFECTS[defect]
    parts = Parts(parts.mount_loop, parts.wrap_log, frozenset(features))
    assert any(expected in violation for seed in range(150) for violation in run(seed, parts).violations)


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
