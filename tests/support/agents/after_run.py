"""What must hold after every run, however it ended."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .provider import say
from .rows import faults, text_of

if TYPE_CHECKING:
    from .session import Agent

    Row = dict[str, Any]


async def goes_on(agent: Agent) -> None:
    """The history is valid, no stop is left over, and the next run works."""
    assert faults(await agent.history()) == []
    assert not agent.token.is_cancelled
    agent.provider.drop_the_rest()
    agent.provider.add(say("next answer"))
    assert await agent.run("next") == "next answer"
    assert agent.progress.of("complete")[-1]["status"] == "success"


async def results(agent: Agent) -> dict[str, str]:
    """What stands behind each call."""
    return {row["tool_call_id"]: text_of(row) for row in await agent.history() if row["role"] == "tool"}


async def late_results(agent: Agent) -> list[Row]:
    """The rows with results that could not stand behind their calls any more."""
    return [row for row in await agent.history() if "results" in (row.get("metadata") or {})]


async def delivered(agent: Agent) -> list[str]:
    """The ids of the messages that stand in committed rows, in order."""
    return [each for row in await agent.history() for each in (row.get("metadata") or {}).get("injections", ())]
