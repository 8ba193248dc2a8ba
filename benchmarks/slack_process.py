"""A local Slack in a separate process, with users that write at a given rate.

Every line is JSON. The first output is `{"api_url": …, "app_token": …, "bot_token": …}`. `{"threads": n}` starts n
threads with the agent; the response follows when each has a status. `{"replies": n, "per_s": r}` posts n evenly spaced
replies to them; the response follows when each has its 📨 and all events are acknowledged. It is `{"acks_s": […]}`:
the latency of each acknowledgement, in seconds.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import uvloop

from local_slack import LocalSlack
from local_slack.delivery.delivery import Delivery
from local_slack.workspace.messages import Body

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from local_slack import Workspace
    from local_slack.delivery.delivery import Receiver

CHANNEL = "general"
_ACCEPTED = "incoming_envelope"
_WITHIN_S = 60.0


class SlackProcess:
    """The parent's end of that process."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def begun(self) -> dict[str, str]:
        address: dict[str, str] = await self._read()
        return address

    async def threads(self, count: int) -> list[float]:
        return await self._ask({"threads": count})

    async def replies(self, count: int, per_s: float) -> list[float]:
        return await self._ask({"replies": count, "per_s": per_s})

    async def _ask(self, asked: dict[str, Any]) -> list[float]:
        assert self._process.stdin is not None  # noqa: S101 - it was made with one
        self._process.stdin.write(json.dumps(asked).encode() + b"\n")
        acks: list[float] = (await self._read())["acks_s"]
        return acks

    async def _read(self) -> Any:
        assert self._process.stdout is not None  # noqa: S101 - it was made with one
        return json.loads(await self._process.stdout.readline())


@asynccontextmanager
async def slack_elsewhere() -> AsyncIterator[SlackProcess]:
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "benchmarks.slack_process", stdin=PIPE, stdout=PIPE, limit=2**24
    )
    try:
        yield SlackProcess(process)
    finally:
        process.kill()
        await process.wait()


class Stopwatch(Delivery):
    """Wraps the delivery of a workspace and measures the latency of every acknowledgement."""

    def __init__(self, inner: Delivery) -> None:
        self._inner = inner
        self._timed: dict[Receiver, Timed] = {}
        self.sent_s: dict[str, float] = {}
        self.acks_s: list[float] = []

    def attach(self, receiver: Receiver) -> None:
        self._timed[receiver] = Timed(receiver, self)
        self._inner.attach(self._timed[receiver])

    def detach(self, receiver: Receiver) -> None:
        if (timed := self._timed.pop(receiver, None)) is not None:
            self._inner.detach(timed)

    def acknowledge(self, envelope_id: str, payload: object = None) -> None:
        if (sent_s := self.sent_s.pop(envelope_id, None)) is not None:
            self.acks_s.append(asyncio.get_running_loop().time() - sent_s)
        self._inner.acknowledge(envelope_id, payload)

    @property
    def outstanding(self) -> int:
        return self._inner.outstanding

    def close(self) -> None:
        self._inner.close()


class Timed:
    """A connection that records the send time of each frame."""

    def __init__(self, receiver: Receiver, watch: Stopwatch) -> None:
        self._receiver = receiver
        self._watch = watch

    def send(self, frame: str) -> None:
        self._watch.sent_s.setdefault(json.loads(frame)["envelope_id"], asyncio.get_running_loop().time())
        self._receiver.send(frame)


class People:
    def __init__(self, slack: LocalSlack) -> None:
        self._slack = slack
        self._watch = slack.socket_mode.delivery = Stopwatch(slack.socket_mode.delivery)
        self._roots: list[str] = []

    async def write(self, asked: dict[str, Any]) -> list[float]:
        self._watch.acks_s = []
        if count := asked.get("threads"):
            bot = self._slack.bot_user_id
            self._roots += [self._post(f"<@{bot}> what is new?", None) for _ in range(count)]
            await self._slack.until(lambda _: all(map(self._has_status, self._roots)), _WITHIN_S)
        else:
            await self._reply(asked["replies"], asked["per_s"])
        await self._slack.until(lambda _: not self._watch.outstanding, _WITHIN_S)
        return self._watch.acks_s

    async def _reply(self, count: int, per_s: float) -> None:
        clock = asyncio.get_running_loop()
        began_s, written = clock.time(), set[str]()
        for number in range(count):
            if (wait_s := began_s + number / per_s - clock.time()) > 0:
                await asyncio.sleep(wait_s)
            written.add(self._post("and what else?", self._roots[number % len(self._roots)]))
        await self._slack.until(lambda workspace: self._all_accepted(workspace, written), _WITHIN_S)

    def _all_accepted(self, workspace: Workspace, written: set[str]) -> bool:
        """Return whether all these messages have their 📨; removes those that have it."""
        for ts in list(written):
            if (message := workspace.message(CHANNEL, ts)) is None or not message.reacted(_ACCEPTED):
                return False
            written.discard(ts)
        return True

    def _has_status(self, root: str) -> bool:
        return len(self._slack.workspace.thread(self._slack.channel(CHANNEL).id, root)) > 1

    def _post(self, words: str, root: str | None) -> str:
        return self._slack.workspace.post(CHANNEL, self._slack.person("ana"), Body(words), thread_ts=root).ts


async def _main() -> None:
    async with LocalSlack(limits=None) as slack:
        people = People(slack)
        address = {"api_url": slack.api_url, "app_token": slack.app_token, "bot_token": slack.bot_token}
        print(json.dumps(address), flush=True)
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
        async for line in reader:
            print(json.dumps({"acks_s": await people.write(json.loads(line))}), flush=True)


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as main:
        main.run(_main())
