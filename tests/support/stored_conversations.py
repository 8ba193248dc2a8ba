"""Conversations in a file, and the commands of `amplifier-slack conversations` on them."""

from __future__ import annotations

import asyncio
import shlex
import time
from collections.abc import Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import Any

from click.testing import CliRunner, Result

from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.records import Key
from orchestrator_interactive.interactions.states import AssistantMessageState, BaseState, UserMessageState
from orchestrator_interactive.interactions.stores import open_store
from orchestrator_interactive.interactions.stores.base import Change, Log, LogStore
from service.cli.main import main

DAY_S = 86_400.0
HERE = "T0TEAM:C0GENERAL:1700000001.000100"
THERE = "T0TEAM:C0RANDOM:1700000002.000200"


class StoredConversations:
    """The conversations of an SQLite file."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.url = f"sqlite:{path}"
        self._do(lambda store: store.keys())  # the file is there now

    def talk(self, *said: str, place: str = HERE, agent: str = "alpha") -> None:
        """A person's messages, each with an answer."""
        states = [state for text in said for state in (UserMessageState(text), AssistantMessageState(f"{text}: yes"))]
        self.push(*states, place=place, agent=agent)

    def push(self, *states: BaseState, place: str = HERE, agent: str = "alpha", asked_by: str | None = None) -> None:
        self._do(lambda store: InteractionStack(store, place, agent, asked_by=asked_by).push(*states))

    def said(self, place: str = HERE, agent: str = "alpha") -> list[str]:
        """Return the texts of users on the current branch."""

        async def said(store: LogStore) -> list[str]:
            stack = InteractionStack(store, place, agent)
            states = [entry.state async for entry in stack.iter_last_n(await stack.length())]
            return [str(state.text) for state in states if isinstance(state, UserMessageState)]

        return self._do(said)

    def branches(self, place: str = HERE, agent: str = "alpha") -> dict[str, int]:
        """The lengths of the branches; the first one is the current one."""
        every = self._do(lambda store: InteractionStack(store, place, agent).get_branch_info())
        return {branch.name: branch.length for branch in sorted(every, key=lambda branch: not branch.is_current)}

    def rest(self, days: Mapping[str, float], place: str = HERE, agent: str = "alpha") -> None:
        """Let these branches have been made and written that many days ago."""
        self._do(lambda store: made_older(store, Key(place, agent), days))

    def logs(self) -> dict[Key, Log | None]:
        """Everything that is in the file but for the states."""

        async def logs(store: LogStore) -> dict[Key, Log | None]:
            return {key: await store.load(key) for key in await store.keys()}

        return self._do(logs)

    def run(self, *words: str, **env: str) -> Result:
        """Run a command on this file."""
        return run("conversations", *words, "--store", self.url, **env)

    def _do(self, use: Callable[[LogStore], Awaitable[Any]]) -> Any:
        async def done() -> Any:
            async with aclosing(await open_store(self.url)) as store:
                return await use(store)

        return asyncio.run(done())


def run(*words: str, **env: str) -> Result:
    """Run `amplifier-slack` with these words."""
    given = {"AMPLIFIER_SLACK_STORE": None, "COLUMNS": "100", **env}
    return CliRunner().invoke(main, words, env=given, prog_name="amplifier-slack")


def run_told(output: str) -> Result:
    """Run the command that an output tells people to write next."""
    command, *words = shlex.split(output.splitlines()[-1])
    assert command == "amplifier-slack"
    return run(*words)


async def made_older(store: LogStore, key: Key, days: Mapping[str, float]) -> None:
    log = await store.load(key)
    assert log is not None
    now = time.time()

    def aged(name: str | None) -> dict[str, float]:
        return {"created": now - days[name] * DAY_S, "written": now - days[name] * DAY_S} if name in days else {}

    segments = {number: replace(each, **aged(each.name)) for number, each in log.tree.segments.items()}
    tree = replace(log.tree, segments=segments)
    await store.commit(key, Change(log.version, tree.head.end, tree.head.written, tree))
