"""One fuzz trial: the service in this process, events over one transport, one store, and the findings."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal
from uuid import uuid4

import aiohttp
from echo_module import ECHO_MODULE
from ports import free_port
from redis_server import redis_server
from structlog.processors import format_exc_info
from structlog.testing import capture_logs

from connector import HttpTransport, Instance, Persona, SlackCredentials, SocketTransport
from connector.app import ConnectorParts, connected
from connector.workspaces import WorkspaceSettings
from fuzzing.events import EventFuzzer
from local_slack import LocalSlack, RetrySchedule, Workspace
from local_slack.delivery.delivery import Envelope
from local_slack.delivery.http_delivery import Signer
from orchestrator_interactive.interactions.stores import open_store
from orchestrator_interactive.interactions.stores.base import LogStore
from service.config.config import InstanceConfig, ModuleConfig, PersonaConfig, WorkspaceConfig
from service.doctor.delivery_audit import check
from service.runs import StoredRuns
from service.sessions.manager import InProcessSessionManager
from service.sessions.workspaces import Workspaces
from service.store import open_run_store
from service.store.base import RunStore

Transport = Literal["socket", "http"]

# Log events that mean that an outside input met code that did not expect it.
CRASHES = (
    *("event.failed", "socket.crashed", "conversation.crashed", "run.crashed", "run.failed", "runs.failed"),
    *("entry.unreadable", "run.unreadable", "post.unreadable", "log.unreadable", "tool.execution_failed"),
)
_INSTANCE = InstanceConfig(
    persona=PersonaConfig(name="Alpha", emoji=":owl:"),
    providers=(ModuleConfig(module="quick-module", source=str(ECHO_MODULE), config={"last": 3_000}),),
    tools=(),
)
# How an envelope that is not acknowledged is called in the record.
_REFUSALS = ("refused", "given_up", "not_acked")
_AT_ONCE = 20
RETRIES = RetrySchedule(3.0, (0, 0.1, 0.1))
_GARBAGE_EVERY = 25
_SETTLED_WITHIN_S = 120.0
_ROOTS = 40
CHANNELS = ("general", "random")


@dataclass(frozen=True, slots=True)
class Garbage(Envelope):
    """An envelope whose frame is some text. It is not sent again, as it cannot be acknowledged."""

    text: str = ""

    def frame(self) -> str:
        return self.text


@dataclass
class Findings:
    """The findings of a trial; `wrong` is empty if all checks pass."""

    wrong: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class Trial:
    """So many events of a seed over one transport into a service with one kind of store."""

    seed: int
    events: int
    transport: Transport
    is_redis: bool

    async def run(self, folder: Path) -> Findings:
        """Run it; the stores are in the folder."""
        findings = Findings()
        async with AsyncExitStack() as stack:
            redis = stack.enter_context(redis_server()) if self.is_redis else None
            url = redis.url if redis else f"sqlite:{folder}/fuzzed.db"
            logs = await stack.enter_async_context(aclosing(await open_store(url)))
            store = await stack.enter_async_context(aclosing(await open_run_store(url)))
            slack = await stack.enter_async_context(LocalSlack(limits=None, retries=RETRIES))
            port = free_port()
            transport = HttpTransport(slack.signing_secret, "127.0.0.1", port)
            logging.getLogger("connector.bolt").setLevel(logging.CRITICAL)  # it prints each event that it does not know
            log = stack.enter_context(capture_logs([format_exc_info]))
            roots = [(channel, await slack.as_person("ben").say(channel, "hi")) for channel in CHANNELS * (_ROOTS // 2)]
            access = SlackCredentials(
                slack.bot_token,
                slack.api_url,
                transport if self.transport == "http" else SocketTransport(slack.app_token),
            )
            await stack.enter_async_context(_service(access, logs, store, folder))
            if self.transport == "http":
                await slack.deliver_to(f"http://127.0.0.1:{port}/slack/events")
            await slack.until(lambda ws: ws.bot_online)
            await self._send_all(slack, roots, port, findings)
            await _settled(store, findings)
            await _all_answer(slack, roots, findings)
            await _settled(store, findings)
            conservation = await check(store, logs)
            findings.wrong += conservation.violations
            findings.counts["conversations"] = conservation.tally.conversations
            findings.counts["messages accepted"] = conservation.tally.accepted
            findings.wrong += [
                f"{entry['event']}: {entry} {entry.get('exception', '')}"
                for entry in log
                if entry["event"] in CRASHES or "exception" in entry
            ]
            findings.counts.update(f"log: {e['event']}" for e in log)
        # Half a character cannot be printed.
        findings.wrong = [each.encode("ascii", "backslashreplace").decode() for each in findings.wrong]
        return findings

    async def _send_all(self, slack: LocalSlack, roots: list[tuple[str, str]], port: int, findings: Findings) -> None:
        people = [slack.person(name).id for name in ("ana", "ben", "chloe")]
        places = [(slack.channel(channel).id, ts) for channel, ts in roots]
        fuzzer = EventFuzzer(self.seed, slack.team_id, slack.bot_user_id, places, people)
        delivery, looked_at = slack.socket_mode.delivery, 0.0
        async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=10)) as http:
            for number in range(self.events):
                if number % _GARBAGE_EVERY == 0:
                    await self._send_garbage(fuzzer.garbage(), slack, http, port, findings)
                event = fuzzer.next()
                name, kind = ("fuzz", event.kind) if event.is_read else ("deep", "interactive")  # not sent again
                delivery.offer(Envelope(f"{name}-{number}", kind, event.payload))
                findings.counts["correct" if event.is_correct else "damaged" if event.is_read else "too deep"] += 1
                if number % _AT_ONCE == 0 or number == self.events - 1:
                    most = 0 if number == self.events - 1 else _AT_ONCE
                    await slack.until(lambda _, most=most: delivery.outstanding <= most, 60)
                    looked_at = _note_refusals(slack, looked_at, findings)

    async def _send_garbage(
        self, text: str, slack: LocalSlack, http: aiohttp.ClientSession, port: int, findings: Findings
    ) -> None:
        findings.counts["garbage"] += 1
        if self.transport == "socket":
            slack.socket_mode.delivery.offer(Garbage(uuid4().hex, "interactive", {}, text=text))
            return
        raw = text.encode(errors="surrogatepass")
        headers = {"Content-Type": "application/json", **Signer(slack.signing_secret).headers(raw)}
        async with http.post(f"http://127.0.0.1:{port}/slack/events", data=raw, headers=headers) as answer:
            findings.counts[f"garbage answered with {answer.status}"] += 1
            if answer.status not in (200, 400, 413):
                findings.wrong.append(f"garbage was answered with {answer.status}: {text[:200]!r}")


async def _settled(store: RunStore, findings: Findings) -> None:
    """Wait until nothing is left to do in any conversation."""
    busy: list[str] = []
    try:
        async with asyncio.timeout(_SETTLED_WITHIN_S):
            while busy := [each for each in await store.conversations() if await _is_busy(store, each)]:  # noqa: ASYNC110 - a store sends no event
                await asyncio.sleep(0.2)
    except TimeoutError:
        findings.wrong += [f"{place} is stuck" for place in busy]


async def _is_busy(store: RunStore, conversation_id: str) -> bool:
    known = await store.record(conversation_id)
    return known is not None and (known.has_something_to_do or known.posts > 0)


def _note_refusals(slack: LocalSlack, since: float, findings: Findings) -> float:
    """Take note of deliveries that were not acknowledged since then; returns the present.

    On a busy machine some are late and come again. One that is given up at its last attempt is lost.
    """
    latest = since
    for line in slack.record.text.splitlines():
        if '"fuzz-' not in line or not any(f'"{what}"' in line for what in _REFUSALS):
            continue
        entry = json.loads(line)
        if entry["at"] <= since:
            continue
        latest = max(latest, entry["at"])
        findings.counts[f"deliveries {entry['what']}"] += 1
        is_lost = entry["what"] == "given_up" and entry["attempt"] == len(RETRIES.delays_s)
        if is_lost or entry.get("status", 503) != 503:
            findings.wrong.append(f"a delivery was not taken: {line}")
    return latest


async def _all_answer(slack: LocalSlack, roots: list[tuple[str, str]], findings: Findings) -> None:
    """Write once more into every thread: one that has met odd events still answers."""
    ana = slack.as_person("ana")
    for channel, root in roots:
        token = uuid4().hex
        await ana.say(channel, f"@alpha {token}", thread=root)

        def is_answered(ws: Workspace, channel: str = channel, root: str = root, token: str = token) -> bool:
            return any(m.by_bot and token in m.text for m in ws.thread(slack.channel(channel).id, root))

        try:
            await slack.until(is_answered, 20)
            findings.counts["threads that answer at the end"] += 1
        except TimeoutError:
            said = [m.text for m in slack.workspace.thread(slack.channel(channel).id, root)]
            findings.wrong.append(f"the thread {channel}:{root} no longer answers: {said[-5:]}")


@asynccontextmanager
async def _service(access: SlackCredentials, logs: LogStore, store: RunStore, folder: Path) -> AsyncIterator[None]:
    settings = WorkspaceSettings([Instance("alpha", Persona("Alpha", ":owl:"))])
    workspaces = Workspaces(WorkspaceConfig(root=folder / "files"))
    async with (
        StoredRuns(store, uuid4().hex, 10) as runs,
        InProcessSessionManager({"alpha": _INSTANCE}, "provider-demo", workspaces, logs, 60) as sessions,
        connected(
            access,
            ConnectorParts(
                sessions=sessions, runs=runs, settings_of=lambda _: settings, shutdown_grace_s=5, rate_scale=10_000
            ),
        ),
    ):
        yield
