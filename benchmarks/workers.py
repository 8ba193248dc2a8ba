"""Two hundred workers at once: how soon each begins after its dispatch, and the memory that each takes."""

from __future__ import annotations

import asyncio
import gc
import resource
import tempfile
import time
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import TYPE_CHECKING, Any

from benchmarks.harness import Benchmark, Row, Side
from benchmarks.intake import LEASE_S, alpha_connected
from benchmarks.redis_process import redis_server
from connector import SlackCredentials, SocketTransport
from local_slack import LocalSlack
from orchestrator_interactive.kernel import ProviderInfo
from orchestrator_interactive.kernel.contracts.messages import ChatResponse, TextBlock, ToolCall, ToolCallBlock
from orchestrator_interactive.storage.retry import StoreRetryPolicy, retrying
from service.config.config import InstanceConfig, ModuleConfig, PersonaConfig, WorkspaceConfig
from service.runs import StoredRuns
from service.sessions.host import LocalHost
from service.sessions.manager import InProcessSessionManager
from service.sessions.workers import MOST_AT_WORK, StoredWorkers
from service.sessions.workspaces import Workspaces
from service.store import open_log_store, open_run_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from benchmarks.harness import Operations
    from orchestrator_interactive.kernel.contracts.messages import ChatRequest

WORKERS = 200
# The module of the model, which a session loads by its path.
_MODULE = "from benchmarks.workers import mount\n"

_NOTE = (
    f"Ten runs dispatch {MOST_AT_WORK} workers each at the same time, in one process. Memory is resident memory, that "
    "of a Slack in the process included. Each worker has its lease, log, session with tools, and status."
)


class Times:
    """When each task was dispatched and began, in seconds; `None` between measurements."""

    def __init__(self) -> None:
        self.dispatched_s: dict[str, float] = {}
        self.begun_s: dict[str, float] = {}
        self.all_begun = asyncio.Event()


_times: list[Times] = []


class WaitingModel:
    """Dispatches workers in its first answer in a thread; in a worker, it notes the time and does not answer."""

    name = "waiting-model"

    def get_info(self) -> ProviderInfo:
        return ProviderInfo(id=self.name, display_name=self.name, capabilities=["tool_choice"])

    async def list_models(self) -> list[Any]:
        return []

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        return response.tool_calls or []

    async def complete(self, request: ChatRequest, **_: Any) -> ChatResponse:
        times, now_s, said = _times[-1], time.perf_counter(), _text_of(request)
        if said.startswith("task "):
            times.begun_s[said] = now_s
            if len(times.begun_s) == WORKERS:
                times.all_begun.set()
            await asyncio.Event().wait()
        if request.messages[-1].role == "tool":
            return ChatResponse(content=[TextBlock(text="They are at work.")])
        thread = said.rpartition(" ")[2]
        blocks = []
        for number in range(MOST_AT_WORK):
            task = f"task {thread}.{number}"
            times.dispatched_s[task] = now_s
            blocks.append(
                ToolCallBlock(id=f"{thread}-{number}", name="dispatch_worker", input={"task": task, "title": task})
            )
        calls = [ToolCall(id=each.id, name=each.name, arguments=each.input) for each in blocks]
        return ChatResponse(content=list(blocks), tool_calls=calls, finish_reason="tool_use")


async def mount(coordinator: Any, _config: dict[str, Any]) -> None:
    """Mount the model."""
    await coordinator.mount("providers", WaitingModel(), name=WaitingModel.name)


def _text_of(request: ChatRequest) -> str:
    content = next(each for each in reversed(request.messages) if each.role == "user").content
    return content if isinstance(content, str) else "".join(getattr(each, "text", "") for each in content)


def _resident() -> int:
    """Return the resident memory of this process, in bytes."""
    gc.collect()
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


class Dispatches:
    """Ten people, each of whose runs dispatches twenty workers; the first row measures, the others use its data."""

    def __init__(self, slack: LocalSlack) -> None:
        self._slack = slack
        self._delays_s: list[float] = []
        self._bytes = 0.0

    async def median(self) -> float:
        """Return the median time from the model's answer to the first model call of a worker, in seconds."""
        before = _resident()
        times = Times()
        _times.append(times)
        ana = self._slack.as_person("ana")
        for number in range(WORKERS // MOST_AT_WORK):
            await ana.say("general", f"@alpha begin {number}")
        await times.all_begun.wait()
        self._bytes = (_resident() - before) / WORKERS
        self._delays_s = [times.begun_s[task] - times.dispatched_s[task] for task in times.begun_s]
        return quantiles(self._delays_s, n=100)[49]

    async def p99(self) -> float:
        return quantiles(self._delays_s, n=100)[98]

    async def memory(self) -> float:
        """Return the bytes for each worker, its share of the runs and threads included."""
        return self._bytes


@asynccontextmanager
async def operations(store: str) -> AsyncIterator[Operations]:
    """Provide the dispatches over a store: `sqlite` or `redis`. Slack runs in the same process."""
    async with AsyncExitStack() as closing:
        folder = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-")))
        url = closing.enter_context(redis_server(folder)) if store == "redis" else f"sqlite:{folder}/runs.db"
        inboxes = await closing.enter_async_context(aclosing(await open_run_store(url)))
        logs = await closing.enter_async_context(aclosing(await open_log_store(url)))
        runs = await closing.enter_async_context(StoredRuns(inboxes, "this process", LEASE_S))
        retry = StoreRetryPolicy()
        workers = StoredWorkers(retrying(inboxes, retry), runs)
        (source := folder / "waiting_model.py").write_text(_MODULE)
        instance = InstanceConfig(
            persona=PersonaConfig(name="Alpha", emoji=":owl:"),
            providers=(ModuleConfig(module="waiting-model", source=str(source)),),
            tools=(ModuleConfig(module="tool-filesystem"), ModuleConfig(module="tool-dispatch-worker")),
        )
        sessions = await closing.enter_async_context(
            InProcessSessionManager(
                {"alpha": instance},
                "waiting-model",
                Workspaces(WorkspaceConfig(root=folder / "files")),
                retrying(logs, retry),
                host=LocalHost(workers.functions),
            )
        )
        slack = await closing.enter_async_context(LocalSlack(limits=None))
        access = SlackCredentials(slack.bot_token, slack.api_url, SocketTransport(slack.app_token))
        service = alpha_connected(access, sessions, runs, shutdown_grace_s=0.1, rate_scale=1000.0, workers=workers)
        await closing.enter_async_context(service)
        await slack.until(lambda workspace: workspace.bot_online)
        dispatches = Dispatches(slack)
        yield {"median": dispatches.median, "p99": dispatches.p99, "memory": dispatches.memory}


BENCHMARK = Benchmark(
    title="Two hundred workers at once",
    rows=(
        Row("median", "from the dispatch to the first model call, median", unit="ms", meter="itself", once=True),
        Row("p99", "from the dispatch to the first model call, 99th percentile", unit="ms", meter="itself", once=True),
        Row("memory", "memory for each worker at work", unit="KiB", meter="itself", once=True),
    ),
    sides=(Side("SQLite", partial(operations, "sqlite")), Side("Redis, on this machine", partial(operations, "redis"))),
    notes=(_NOTE,),
)
