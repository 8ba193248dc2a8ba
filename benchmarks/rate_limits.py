"""Delays of answers and status updates when many runs share Slack's limits: `python -m benchmarks.rate_limits`.

The same runs use the scheduler, and a plain throttle of two seconds per status, at the same time. Each side has a local
Slack that applies Slack's rate limits. The age of each status is sampled once a second.
"""

from __future__ import annotations

import asyncio
import random
import re
import tempfile
from collections import Counter
from contextlib import AsyncExitStack, aclosing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

import click

from benchmarks.distribution import Distribution, drawn, tabled
from benchmarks.intake import BusySessions, alpha_connected
from connector import SlackCredentials, SocketTransport
from connector.protocols import NO_TALK
from local_slack import LocalSlack
from service.runs import StoredRuns
from service.store import open_run_store

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from connector.protocols import MessageAuthor, MessageFile, People, ProgressCallback, ThreadTalk
    from local_slack import Workspace

_CHANNELS = 25
_STEP_S = (1.0, 8.0)
_STEPS = (8, 24)
# The runs do not all begin at the same instant.
_BEGUN_WITHIN_S = 10.0
_UNLIMITED = 1000.0
# Per run.
_ANSWERS = 2
_STEP = re.compile(r"Step (\d+) of (\w+)")
_SIDES = {"one scheduler": 1.0, "2 s throttle": _UNLIMITED}


def _now_s() -> float:
    return asyncio.get_running_loop().time()


@dataclass
class _Run:
    """Progress of a run: `emitted_s` has the time of each step."""

    name: str
    emitted_s: list[float] = field(default_factory=list)
    shown: int = -1
    answered_s: float | None = None

    def age_s(self) -> float:
        """Return the seconds since the shown status became outdated."""
        if not self.emitted_s or self.shown == len(self.emitted_s) - 1:
            return 0.0
        return _now_s() - self.emitted_s[self.shown + 1]


class _Script(BusySessions):
    """Runs with steps of some seconds, one interim text and one answer."""

    def __init__(self, seed: int) -> None:
        self.runs: dict[str, _Run] = {}
        self.on: set[str] = set()
        self._chance = random.Random(seed)  # noqa: S311 - a simulation

    async def execute(  # noqa: PLR0913 - the protocol's
        self,
        instance_name: str,
        conversation_id: str,
        prompt: str,
        on_progress: ProgressCallback | None = None,
        *,
        message_id: str | None = None,
        author: MessageAuthor | None = None,
        written_s: float | None = None,
        files: tuple[MessageFile, ...] = (),
        notes: Mapping[str, str] | None = None,
        talk: ThreadTalk = NO_TALK,
        people: People | None = None,
        fence: int | None = None,
    ) -> str:
        del instance_name, conversation_id, prompt, message_id, author, written_s, files, notes, talk, people, fence
        assert on_progress is not None  # noqa: S101 - the connector passes one
        name = f"r{len(self.runs)}"
        run = self.runs[name] = _Run(name)
        self.on.add(name)
        await on_progress("executing", {})
        await on_progress("thinking", {})
        steps = self._chance.randint(*_STEPS)
        for step in range(steps):
            call = {"id": f"{name}.{step}", "tool": "look"}
            run.emitted_s.append(_now_s())
            await on_progress("tool:start", {**call, "label": f"Step {step} of {name}"})
            await asyncio.sleep(self._chance.uniform(*_STEP_S))
            await on_progress("tool:end", {**call, "success": True})
            if step == steps // 2:
                self.runs[f"{name}-1"] = _Run(f"{name}-1", answered_s=_now_s())
                await on_progress("text", {"text": f"Answer {name}-1.", "part": 1})
        self.on.discard(name)
        self.runs[f"{name}-2"] = _Run(f"{name}-2", answered_s=_now_s())
        await on_progress("complete", {"iterations": steps, "status": "success", "part": 2})
        return f"Answer {name}-2."

    async def delivered(
        self, instance_name: str, conversation_id: str, ids: Collection[str], *, fence: int | None = None
    ) -> frozenset[str]:
        del instance_name, conversation_id, fence
        return frozenset(ids)

    def inject(self, instance_name: str, conversation_id: str, prompt: str, **more: object) -> bool:
        del instance_name, conversation_id, prompt, more
        return False


@dataclass
class _Watcher:
    """Records the posts and status messages in the threads."""

    script: _Script
    delays_s: list[float] = field(default_factory=list)
    ages_s: list[float] = field(default_factory=list)
    statuses: int = 0
    _seen: set[str] = field(default_factory=set)

    def on_change(self, change: object) -> None:
        message = getattr(change, "message", None)
        if message is None or not message.by_bot:
            return
        answered = re.match(r"Answer (r\d+-\d)\.", message.text)
        if answered and answered[1] not in self._seen:
            self._seen.add(answered[1])
            self.delays_s.append(_now_s() - (self.script.runs[answered[1]].answered_s or 0))
        elif (step := _STEP.search(message.text)) and not answered:
            self.statuses += 1
            run = self.script.runs[step[2]]
            run.shown = max(run.shown, int(step[1]))

    async def look(self) -> None:
        while True:
            await asyncio.sleep(1)
            self.ages_s += [self.script.runs[name].age_s() for name in self.script.on]

    def missing(self) -> set[str]:
        """Return the answers that are not in their threads."""
        return {name for name, run in self.script.runs.items() if run.answered_s is not None} - self._seen


@dataclass(frozen=True)
class _Seen:
    """The result of one side."""

    name: str
    answers: Distribution
    statuses: Distribution
    updates: int
    limited: Counter[str]
    missing: int


async def _one_side(name: str, scale: float, runs: int, minutes: float, seed: int) -> _Seen:
    script = _Script(seed)
    watcher = _Watcher(script)
    async with AsyncExitStack() as stack:
        channels = [f"c{number}" for number in range(_CHANNELS)]
        slack = await stack.enter_async_context(LocalSlack(channels=channels))
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        store = await stack.enter_async_context(aclosing(await open_run_store(f"sqlite:{Path(folder)}/runs.db")))
        kept = await stack.enter_async_context(StoredRuns(store, "this process", 10))
        access = SlackCredentials(slack.bot_token, slack.api_url, SocketTransport(slack.app_token))
        service = alpha_connected(access, script, kept, shutdown_grace_s=2, rate_scale=scale)
        await stack.enter_async_context(service)
        stack.callback(slack.workspace.listen(watcher.on_change))
        looking = asyncio.create_task(watcher.look())
        writers = [
            asyncio.create_task(_write_on(slack, channels[each % _CHANNELS], each, runs, minutes))
            for each in range(runs)
        ]
        await asyncio.gather(*writers)
        await slack.until(lambda _: not script.on and not watcher.missing(), timeout_s=120)
        looking.cancel()
        limited = Counter(slack.rate_limits.refused)
    return _Seen(
        name,
        Distribution(watcher.delays_s),
        Distribution(watcher.ages_s),
        watcher.statuses,
        limited,
        len(watcher.missing()),
    )


async def _write_on(slack: LocalSlack, channel: str, number: int, runs: int, minutes: float) -> None:
    """Ask, wait for the end of the run, and ask again in a new thread."""
    ana = slack.as_person("ana")
    await asyncio.sleep(number / runs * _BEGUN_WITHIN_S)
    until_s = _now_s() + minutes * 60 - _BEGUN_WITHIN_S
    while _now_s() < until_s:
        root = await ana.say(channel, f"<@{slack.bot_user_id}> look at this, please")
        await slack.until(partial(_is_answered, channel=slack.channel(channel).id, root=root), timeout_s=600)


def _is_answered(workspace: Workspace, channel: str, root: str) -> bool:
    thread = workspace.thread(channel, root)
    return sum(message.by_bot and message.text.startswith("Answer") for message in thread) == _ANSWERS


async def _measure(runs: int, minutes: float, seed: int) -> list[_Seen]:
    sides = (_one_side(name, scale, runs, minutes, seed) for name, scale in _SIDES.items())
    return list(await asyncio.gather(*sides))


@click.command()
@click.option("--runs", default=50, show_default=True, type=click.IntRange(1), help="Concurrent runs.")
@click.option("--minutes", default=4.0, show_default=True, type=click.FloatRange(0.1))
@click.option("--seed", default=7, show_default=True)
@click.option(
    "--write",
    "folder",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Also write the plot to this file.",
)
def main(runs: int, minutes: float, seed: int, folder: Path | None) -> None:
    """Run RUNS concurrent runs under Slack's limits, with the scheduler and without it."""
    seen = asyncio.run(_measure(runs, minutes, seed))
    rows = {
        f"{side.name}: {what}": each
        for side in seen
        for what, each in (("answer, after the model", side.answers), ("status, age", side.statuses))
    }
    click.echo(tabled(rows))
    for side in seen:
        limited = ", ".join(f"{method} {count}" for method, count in side.limited.most_common()) or "none"
        click.echo(f"{side.name}: 429: {limited}; statuses shown: {side.updates}; answers missing: {side.missing}")
    if folder is not None:
        path = folder / "rate-limits.svg"
        path.write_text(drawn(f"{runs} runs at once in one workspace", rows), encoding="utf-8")
        click.echo(f"Written: {path}")


if __name__ == "__main__":
    main()
