"""What has happened, by kind and id, with the time; and the process of the local Slack that reports most of it."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from collections import Counter
from contextlib import AsyncExitStack, asynccontextmanager
from fcntl import F_SETPIPE_SZ, fcntl
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp

from local_slack.workspace.people import Directory

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Mapping

    Fact = tuple[str, str]  # a kind, and the id of a message or run

PEOPLE = [f"p{number}" for number in range(40)]
CHANNELS = [f"c{number}" for number in range(20)]
WITHIN_S = 120.0
_PIPE_BYTES = 1024 * 1024
_VARIABLE = re.compile(r"^  (SLACK_\w+)=(\S+)$")
_ACCEPTED = frozenset({"hourglass_flowing_sand", "incoming_envelope"})


class Facts:
    """The first time of each fact, in seconds since the epoch, and how often it happened."""

    def __init__(self) -> None:
        self.at_s: dict[Fact, float] = {}
        self.count: Counter[Fact] = Counter()
        self._waiting: dict[Fact, asyncio.Future[float]] = {}

    def note(self, kind: str, name: str, at_s: float) -> None:
        fact = kind, name
        self.count[fact] += 1
        self.at_s.setdefault(fact, at_s)
        if (waiting := self._waiting.pop(fact, None)) is not None and not waiting.done():
            waiting.set_result(at_s)

    async def until(self, kind: str, name: str, within_s: float = WITHIN_S) -> float:
        """Return the time of a fact as soon as it is known.

        Raises:
            TimeoutError: it does not happen.
        """
        fact = kind, name
        if fact in self.at_s:
            return self.at_s[fact]
        waiting = self._waiting.setdefault(fact, asyncio.get_running_loop().create_future())
        try:
            return await asyncio.wait_for(asyncio.shield(waiting), within_s)
        except TimeoutError:
            raise TimeoutError(f"{name} is not {kind} within {within_s:.0f} s.") from None

    def forget(self, kind: str, name: str) -> None:
        """Wait for the next occurrence of a fact."""
        self.at_s.pop((kind, name), None)


class SlackWatch:
    """People in a local Slack in another process, whose record of calls becomes facts.

    The kinds: a message is `accepted` (its first reaction, or the status message in its thread) and `read` (👀); a
    thread is `stopped` and `answered` (by a post). `events` counts the acknowledged events.
    """

    def __init__(self, pid: int, variables: Mapping[str, str], http: aiohttp.ClientSession, facts: Facts) -> None:
        self.pid = pid
        self.variables = variables
        self.facts = facts
        self.events = 0
        self._http = http
        self._directory = Directory("alpha", PEOPLE)

    async def say(self, number: int, text: str, thread: str | None = None, channel: int = 0) -> str:
        """Post as a person and return the ts. `<bot>` becomes a mention of the bot."""
        text = text.replace("<bot>", f"<@{self._directory.bot.id}>")
        return str((await self._call(number, "chat.postMessage", channel, text=text, thread_ts=thread))["ts"])

    async def react(self, number: int, ts: str, name: str, channel: int) -> None:
        await self._call(number, "reactions.add", channel, timestamp=ts, name=name)

    async def _call(self, number: int, method: str, channel: int, **arguments: Any) -> dict[str, Any]:
        person = self._directory.person(PEOPLE[number % len(PEOPLE)])
        given = {name: value for name, value in arguments.items() if value is not None}
        body = {"channel": f"C0{CHANNELS[channel % len(CHANNELS)].upper()}", **given}
        headers = {"Authorization": f"Bearer {person.token}"}
        async with self._http.post(self.variables["SLACK_API_URL"] + method, json=body, headers=headers) as response:
            answer: dict[str, Any] = await response.json()
        if not answer["ok"]:
            raise RuntimeError(f"{method}: {answer['error']}")
        return answer

    async def read(self, record: asyncio.StreamReader) -> None:
        """Read the record to its end."""
        async for line in record:
            if b'"what": "acked"' in line:
                self.events += 1
            elif b'"what": "call"' in line and (entry := json.loads(line))["ok"]:
                self._on_call(entry["method"], entry["arguments"], entry["at"], by_bot=entry["by"] == "U0ALPHA")

    def _on_call(self, method: str, arguments: dict[str, Any], at_s: float, *, by_bot: bool) -> None:
        thread = arguments.get("thread_ts")
        match method, arguments.get("name"):
            case "reactions.add", name if by_bot and name in _ACCEPTED:
                self.facts.note("accepted", arguments["timestamp"], at_s)
            case "reactions.add", "eyes" if by_bot:
                self.facts.note("read", arguments["timestamp"], at_s)
            case "reactions.add", "x":
                self.facts.note("stop asked", arguments["timestamp"], at_s)
            case (("chat.postMessage" | "chat.startStream"), _) if by_bot and thread:
                if ":status" in str(arguments.get("metadata")):
                    self.facts.note("accepted", thread, at_s)
                else:
                    stopped = "🛑" in str(arguments.get("text"))
                    self.facts.note("stopped" if stopped else "answered", thread, at_s)


@asynccontextmanager
async def slack_process(facts: Facts, *, limits: bool) -> AsyncIterator[SlackWatch]:
    """Run the local Slack, with or without Slack's rate limits."""
    async with AsyncExitStack() as closing:
        readable, writable = os.pipe()
        fcntl(writable, F_SETPIPE_SZ, _PIPE_BYTES)
        command = [sys.executable, "-m", "local_slack", "--port", "0", "--record", f"/dev/fd/{writable}"]
        options = ["--people", ",".join(PEOPLE), "--channels", ",".join(CHANNELS), *([] if limits else ["--no-limits"])]
        process = await asyncio.create_subprocess_exec(
            *command, *options, stdout=asyncio.subprocess.PIPE, pass_fds=[writable]
        )
        closing.push_async_callback(process.wait)
        closing.callback(process.kill)
        os.close(writable)
        record = asyncio.StreamReader(limit=2**24)
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(record), os.fdopen(readable, "rb")
        )
        http = await closing.enter_async_context(
            aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=100), timeout=aiohttp.ClientTimeout(WITHIN_S))
        )
        watch = SlackWatch(process.pid, await _variables(process), http, facts)
        reading = asyncio.create_task(watch.read(record))
        closing.callback(reading.cancel)
        yield watch


async def _variables(process: asyncio.subprocess.Process) -> dict[str, str]:
    """Read the addresses and tokens that the local Slack prints."""
    assert process.stdout is not None  # noqa: S101 - it was made with one
    found: dict[str, str] = {}
    async for line in process.stdout:
        if match := _VARIABLE.match(line.decode().rstrip()):
            found[match[1]] = match[2]
        elif found and not line.strip():
            return found
    raise RuntimeError("The local Slack does not start.")


def pss_kib(pid: int) -> int:
    """Return the memory of a process, with its share of what it shares."""
    return int(Path(f"/proc/{pid}/smaps_rollup").read_text().partition("Pss:")[2].split()[0])
