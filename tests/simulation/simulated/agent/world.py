"""One conversation: its agent, its people, its runs."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import asdict, dataclass
from typing import Any

import orchestrator_interactive
from orchestrator_interactive.interactions.stores.memory import MemoryStore
from orchestrator_interactive.kernel import AmplifierSession
from orchestrator_interactive.kernel.contracts.errors import ApprovalTimeoutError
from orchestrator_interactive.modules import context_simple, context_stack
from simulated.simulation import InjectedError, Simulation

from . import hooks, tools
from .invariants import Invariants, LoopOptions, RunRecord
from .messages import Post, Row, Writer, describe_ids, metadata_of
from .model import Model, Responses
from .people import People

Mount = Callable[[Any, dict[str, Any]], Awaitable[Any]]

# The kinds of faults, and the share of seeds that have each.
FEATURES = dict.fromkeys(
    (
        *tools.FEATURES,
        *hooks.FEATURES,
        *("errors", "stalls", "thinking", "unsigned thinking", "empty answers", "cut answers", "refusals"),
        *("unknown tools", "repeated call ids", "many calls", "forbidden tool calls", "uncancellable model"),
        *("fallback models", "odd texts", "edits", "slow store", "flaky store", "slow sink", "broken sink"),
        *("small queue", "injection limit", "capped results"),
    ),
    0.25,
) | {
    "interaction stack": 0.5,
    "stops": 0.6,
    "cancels": 0.25,
    "kills": 0.3,
    "urgent steers": 0.4,
    "compaction": 0.35,
    "summaries": 0.5,
    "assistant rows from hooks": 0.1,
    "token limit": 0.1,
    "cost limit": 0.1,
    "time limit": 0.1,
}


def _unchanged(log: Any) -> Any:
    return log


@dataclass(frozen=True, slots=True)
class Parts:
    """The parts under test. `features` are added to those of every seed."""

    mount_loop: Mount = orchestrator_interactive.mount
    wrap_log: Callable[[Any], Any] = _unchanged
    features: frozenset[str] = frozenset()


class Log:
    """A context whose store may be slow or fail."""

    def __init__(self, inner: Any, sim: Simulation, invariants: Invariants):
        self._inner = inner
        self._sim = sim
        self._invariants = invariants
        self.get_messages = inner.get_messages
        self.set_messages = inner.set_messages
        self.clear = inner.clear

    async def add_message(self, message: Row) -> None:
        sim = self._sim
        with sim.at("writing a row"):
            await self._delay()
            if sim.occurs("flaky store", 0.03):
                self._invariants.emit("store_failure")
                sim.log("log", f"fails to store a row of role '{message['role']}'")
                sim.count("row not stored")
                raise InjectedError("the store is gone")
            await self._inner.add_message(message)
            ids = message.get("tool_call_id") or ", ".join(call["id"] for call in message.get("tool_calls") or ())
            ids = ids or describe_ids(metadata_of(message).get("injections"))
            sim.log("log", f"stores a row: {message['role']} {ids}".rstrip())
            self._invariants.emit("row", message)
            await self._delay()

    async def get_messages_for_request(self, token_budget: int | None = None, provider: Any | None = None) -> list[Row]:
        with self._sim.at("reading the log"):
            await self._delay()
            self._invariants.read_log(token_budget)
            return await self._inner.get_messages_for_request(token_budget=token_budget, provider=provider)

    async def _delay(self) -> None:
        if self._sim.occurs("slow store", 0.3):
            await asyncio.sleep(self._sim.delay_s(0.001, 0.1))


class ProgressSink:
    """Receives the progress of a run; may be slow, or fail."""

    def __init__(self, sim: Simulation, invariants: Invariants):
        self._sim = sim
        self._invariants = invariants

    async def __call__(self, event: str, data: dict[str, Any]) -> None:
        sim = self._sim
        if event == "executing":
            self._invariants.run.id = data["run"]
        if event == "thinking":
            sim.turn("retrying", on=False)
        try:
            with sim.at("reporting progress"):
                self._invariants.emit("progress", event, data)
                what = data.get("tool") or data.get("status") or describe_ids(data.get("ids"))
                sim.log("progress", f"{event} {what}".rstrip())
                if sim.occurs("slow sink", 0.3):
                    await asyncio.sleep(sim.delay_s(0.01, 0.3))
        finally:
            if event == "thinking":  # the loop checks its limits after this report
                self._invariants.emit("thinking_reported")
        if sim.occurs("broken sink", 0.1):
            raise InjectedError("the watcher broke")


class Approvals:
    """An approval and display system that allows, denies, is slow, times out, or fails."""

    def __init__(self, sim: Simulation):
        self._sim = sim

    async def request_approval(self, prompt: str, options: list[str], timeout: float, default: str) -> str:  # noqa: ASYNC109
        sim = self._sim
        sim.count("approval requested")
        with sim.at("waiting for an approval"):
            sim.log("approver", f"gets an approval request: {prompt}")
            if sim.rng.random() < 0.7:
                await asyncio.sleep(sim.delay_s(0.2, 2, 30))
        answer = sim.rng.choice([*options, "Allow", "Deny", "Maybe", "late", "broken"])
        sim.log("approver", f"answers: {answer}")
        if answer == "late":
            raise ApprovalTimeoutError("Nobody answered.")
        if answer == "broken":
            raise InjectedError("the approval system broke")
        return answer

    def show_message(self, message: str, level: str, source: str = "hook") -> None:
        self._sim.log("people", f"read ({level}): {message}")
        if self._sim.occurs("broken hooks", 0.2):
            raise InjectedError("the display broke")


class StaticLoader:
    """A module loader for these modules."""

    def __init__(self, mounts: dict[str, Mount]):
        self._mounts = mounts

    async def load(self, module_id: str, config: dict[str, Any] | None = None, profile_source: Any = None) -> Any:
        async def mount(coordinator: Any) -> Any:
            return await self._mounts[module_id](coordinator, config or {})

        return mount


class World:
    """Plays a conversation: the first runs with faults, the last ones in calm, to read all that is pending."""

    def __init__(self, sim: Simulation, parts: Parts):
        features = {feature for feature, share in FEATURES.items() if sim.rng.random() < share}
        if "small queue" in features:
            features.discard("kills")  # the messages of a queue and of a run together may not fit into one queue
        sim.features |= features | parts.features
        self._sim = sim
        self._parts = parts
        self._options = LoopOptions.draw(sim.rng, sim.features)
        self._invariants = Invariants(sim, self._options)
        self._writer = Writer(sim)
        self._sink = ProgressSink(sim, self._invariants)
        self._tools = tools.make_tools(sim, self._invariants)
        responses = Responses(sim, tools.tool_weights(sim, self._tools), self._options.stall_timeout_s)
        self._models = [Model(name, sim, self._invariants, responses) for name in self._options.providers]
        self._plan = self._mount_plan()
        self._store = MemoryStore() if "interaction stack" in sim.features else None
        self._runs = 0
        self._process = self._last_process = 0

    async def play(self) -> None:
        sim = self._sim
        await self._start_session()
        self._people = People(sim, self._invariants, self._writer, self._session)
        for _ in range(sim.rng.choice([1, 2, 2, 3, 4])):
            await self._run()
            await asyncio.sleep(sim.delay_s(0.1, 10))
            self._people.act_idly()
        sim.calm = True
        await self._run()
        while self._people.unread and not sim.violations:
            await self._run()
        await asyncio.sleep(3600)
        await self._session.cleanup()
        self._invariants.emit("end")

    def on_log(self, event: str, fields: str) -> None:
        self._sim.log("agent", f"logs {event}{fields}")

    def close(self) -> None:
        """Nothing is outside of the simulated process."""

    async def _start_session(self) -> None:
        self._process += 1
        approvals: Any = Approvals(self._sim)
        loader: Any = StaticLoader({"loop": self._parts.mount_loop, "log": self._mount_log})
        self._session = AmplifierSession(
            self._plan,
            loader=loader,
            session_id="simulated",
            approval_system=approvals,
            display_system=approvals,
            is_resumed=self._process > 1,
        )
        await self._session.initialize()
        coordinator = self._session.coordinator
        hooks.ObserverHook(self._sim, self._invariants, coordinator.hooks)
        hooks.register_hooks(self._sim, coordinator.hooks)
        for tool in self._tools:
            coordinator.mount("tools", tool)
        for model in self._models:
            coordinator.mount("providers", model, name=model.name)

    def _mount_plan(self) -> dict[str, Any]:
        rng, features = self._sim.rng, self._sim.features
        log: dict[str, Any] = {"max_tokens": rng.choice([300, 400]) if "compaction" in features else 100_000}
        if "summaries" in features:
            log |= {"strategy": "summary", "summary_max_tokens": 60, "summary_timeout_s": 5.0}
        if rng.random() < 0.5:
            log["system_prompt"] = "You are simulated."
        session = {
            "orchestrator": {"module": "loop", "config": self._options.config()},
            "context": {"module": "log", "config": log},
            "hook_timeout_s": rng.choice([1, 5, 60]),
        }
        if "injection limit" in features:
            session["injection_size_limit"] = 30
        return {"session": session}

    async def _mount_log(self, coordinator: Any, config: dict[str, Any]) -> None:
        if self._store is None:
            inner: Any = await context_simple.mount(coordinator, config)
        else:
            coordinator.register_capability("interactions.store", self._store)
            await context_stack.mount(coordinator, config)
            inner = coordinator.get("context")
        coordinator.unmount("context")
        coordinator.mount("context", self._parts.wrap_log(Log(inner, self._sim, self._invariants)))

    async def _run(self) -> None:
        sim = self._sim
        self._runs += 1
        run = RunRecord(self._runs, self._next_prompt(), self._process, self._process != self._last_process)
        self._last_process = self._process
        sim.log("people", f"prompt run {run.number}{' in calm' if sim.calm else ''}: {run.prompt.text!r}")
        task = sim.spawn(self._execute(run), f"run {run.number}", run.process)
        self._people.watch(run, task)
        killed = sim.spawn(self._people.killed.wait(), "a kill")
        await asyncio.wait([task, killed], return_when=asyncio.FIRST_COMPLETED)
        killed.cancel()
        if run.killed:
            await self._restart(run)
        self._conclude(run)

    async def _restart(self, run: RunRecord) -> None:
        """Start another process with the stored rows, and give it the messages that are in none of them."""
        self._sim.leave_all()
        self._invariants.emit("killed", run)
        rows = await self._session.coordinator.get("context").get_messages()
        self._invariants.budgets.restarted(rows)
        await self._start_session()
        context = self._session.coordinator.get("context")
        if self._store is None:
            await context.set_messages(rows)
        elif await context.get_messages() != rows:
            self._sim.violation("After a kill the log has changed.")
        self._people.use(self._session)
        for post in self._invariants.deliveries.take_pending():
            self._people.give(post)

    def _next_prompt(self) -> Post:
        return self._people.unread.pop(0) if self._people.unread else self._writer.write(plain=True)

    async def _execute(self, run: RunRecord) -> None:
        sim = self._sim
        run.entered = True
        sim.finishing = False
        if self._options.max_duration_s is not None:
            run.deadline_s = sim.now() + self._options.max_duration_s
        self._invariants.begin(run)
        try:
            run.answer = await self._session.execute(run.prompt.text, on_progress=self._sink)
        except BaseException as e:  # noqa: BLE001 - the invariants check it
            run.error = e
        run.over = True
        sim.log("run", f"returned {run.answer!r}" if run.error is None else f"raised {run.error!r}")
        run.statuses["session"] = self._session.status.status
        self._invariants.emit("returned", run)
        receipts: Any = self._session.coordinator.get_capability("orchestrator.receipts")
        self._invariants.receipts.check(run, map(asdict, receipts()), "The capability")

    def _conclude(self, run: RunRecord) -> None:
        sim = self._sim
        status = "killed" if run.killed else run.statuses.get("progress", "never begun")
        sim.count(f"run ended: {status}")
        if sim.calm and status != "success":
            sim.violation(f"In calm the run ended with '{status}' (error: {run.error!r}).")
        if self._invariants.deliveries.is_delivered(run.prompt):
            return
        if run.was_denied:
            sim.count("prompt denied")
        else:
            sim.count("prompt not read, given again")
            self._people.unread.insert(0, run.prompt)
