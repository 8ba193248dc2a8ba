"""How long the text of a model takes to the readers of a thread, for one answer and for twenty at once."""

from __future__ import annotations

import asyncio
import tempfile
import time
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import quantiles
from typing import TYPE_CHECKING, Any

from benchmarks.harness import Benchmark, Row, Side
from benchmarks.intake import LEASE_S, alpha_connected
from connector import SlackCredentials, SocketTransport
from local_slack import LocalSlack
from orchestrator_interactive.kernel import ProviderInfo, ResponseStream
from orchestrator_interactive.kernel.contracts.messages import ChatResponse, TextBlock
from orchestrator_interactive.storage.retry import StoreRetryPolicy, retrying
from service.config.config import InstanceConfig, ModuleConfig, PersonaConfig, WorkspaceConfig
from service.runs import StoredRuns
from service.sessions.manager import InProcessSessionManager
from service.sessions.workspaces import Workspaces
from service.store import open_log_store, open_run_store

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from benchmarks.harness import Operations

# A fast model writes this many characters a second, a sentence of this length in each step, for a minute.
_SENTENCE = "Word by word it is written. "
_STEP_S = 0.2
_STEPS = 300
_LOOK_S = 0.02
_MODULE = "from benchmarks.visible_text import mount\n"
_CALLS = ("chat.startStream", "chat.appendStream", "chat.stopStream")

_NOTE = (
    f"Each answer is written for {_STEPS * _STEP_S:.0f} seconds, {len(_SENTENCE) / _STEP_S:.0f} characters a second. "
    "The delay of a character is the time from the model to its message in a Slack in the same process, which has "
    "Slack's limits: 100 additions, 20 begins and 20 ends a minute."
)

_written: dict[str, list[float]] = {}


class WritingModel:
    """Writes an answer sentence by sentence, and notes when."""

    name = "writing-model"

    def get_info(self) -> ProviderInfo:
        return ProviderInfo(id=self.name, display_name=self.name, capabilities=["tool_choice"])

    async def list_models(self) -> list[Any]:
        return []

    def parse_tool_calls(self, _response: ChatResponse) -> list[Any]:
        return []

    async def complete(self, request: Any, *, stream: ResponseStream, **_: Any) -> ChatResponse:
        content = request.messages[-1].content
        said = content if isinstance(content, str) else "".join(getattr(each, "text", "") for each in content)
        times = _written.setdefault(said.rpartition(" ")[2], [])
        for _step in range(_STEPS):
            await asyncio.sleep(_STEP_S)
            stream.text(_SENTENCE)
            times.append(time.perf_counter())
        block = TextBlock(text=_SENTENCE * _STEPS)
        stream.block(block)
        return ChatResponse(content=[block], finish_reason="end_turn")


async def mount(coordinator: Any, _config: dict[str, Any]) -> None:
    """Mount the model."""
    await coordinator.mount("providers", WritingModel(), name=WritingModel.name)


class Answers:
    """Answers that are written at once; the first row measures, the others use its data."""

    def __init__(self, slack: LocalSlack, count: int) -> None:
        self._slack = slack
        self._count = count
        self._delays_s: list[float] = []
        self._calls: dict[str, float] = {}

    async def median(self) -> float:
        """Return the median delay of a character, in seconds."""
        _written.clear()
        ana, began, began_s = self._slack.as_person("ana"), len(self._slack.record), time.perf_counter()
        roots = [await ana.say("general", f"@alpha write {number}") for number in range(self._count)]
        seen = [0] * self._count
        while min(seen) < _STEPS:
            await asyncio.sleep(_LOOK_S)
            now_s = time.perf_counter()
            for number, root in enumerate(roots):
                visible = self._visible(root)
                times = _written.get(str(number), [])[seen[number] : visible]
                self._delays_s += [now_s - each for each in times]
                seen[number] = max(seen[number], visible)
        entries = [each for each in list(self._slack.record)[began:] if each.get("method") in _CALLS]
        minutes = (time.perf_counter() - began_s) / 60
        for method in _CALLS:
            self._calls[method] = sum(each["method"] == method for each in entries) / minutes
        self._calls["limited"] = sum("ratelimited" in str(each) for each in entries)
        return quantiles(self._delays_s, n=100)[49]

    def _visible(self, root: str) -> int:
        texts = (each.text for each in self._slack.workspace.thread("general", root)[1:])
        return sum(text.count("written.") for text in texts)

    async def p99(self) -> float:
        return quantiles(self._delays_s, n=100)[98]

    async def calls(self, method: str) -> float:
        """Return the calls of a method in a minute, or those that Slack refused (`limited`)."""
        return float(self._calls[method])


@asynccontextmanager
async def operations(count: int) -> AsyncIterator[Operations]:
    """Provide the answers over SQLite. Slack runs in the same process."""
    async with AsyncExitStack() as closing:
        folder = Path(closing.enter_context(tempfile.TemporaryDirectory(prefix="benchmark-")))
        url = f"sqlite:{folder}/runs.db"
        inboxes = await closing.enter_async_context(aclosing(await open_run_store(url)))
        logs = await closing.enter_async_context(aclosing(await open_log_store(url)))
        runs = await closing.enter_async_context(StoredRuns(inboxes, "this process", LEASE_S))
        (source := folder / "writing_model.py").write_text(_MODULE)
        instance = InstanceConfig(
            persona=PersonaConfig(name="Alpha", emoji=":owl:"),
            providers=(ModuleConfig(module="writing-model", source=str(source)),),
        )
        sessions = await closing.enter_async_context(
            InProcessSessionManager(
                {"alpha": instance},
                "writing-model",
                Workspaces(WorkspaceConfig(root=folder / "files")),
                retrying(logs, StoreRetryPolicy()),
            )
        )
        slack = await closing.enter_async_context(LocalSlack())
        access = SlackCredentials(slack.bot_token, slack.api_url, SocketTransport(slack.app_token))
        service = alpha_connected(access, sessions, runs, stream=True, shutdown_grace_s=0.1)
        await closing.enter_async_context(service)
        await slack.until(lambda workspace: workspace.bot_online)
        answers = Answers(slack, count)
        calls = {f"calls:{method}": partial(answers.calls, method) for method in (*_CALLS, "limited")}
        yield {"median": answers.median, "p99": answers.p99, **calls}


BENCHMARK = Benchmark(
    title="From the model to the reader",
    rows=(
        Row("median", "delay of a character, median", unit="ms", meter="itself", once=True),
        Row("p99", "delay of a character, 99th percentile", unit="ms", meter="itself", once=True),
        *(
            Row(f"calls:{name}", f"calls of {name} in a minute", unit="times", meter="itself", once=True)
            for name in _CALLS
        ),
        Row("calls:limited", "calls that Slack refused", unit="times", meter="itself", once=True),
    ),
    sides=(Side("one answer", partial(operations, 1)), Side("twenty at once", partial(operations, 20))),
    notes=(_NOTE,),
)
