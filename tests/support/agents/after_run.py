"""Checks that hold after every run."""

from __future__ import annotations

from .provider import say
from .rows import Row, faults, text_of
from .session import Agent


async def goes_on(agent: Agent) -> None:
    """Check that the history is valid, no stop is pending, and the next run works."""
    assert faults(await agent.history()) == []
    assert not agent.token.is_cancelled
    agent.provider.drop_the_rest()
    agent.provider.add(say("next answer"))
    assert await agent.run("next") == "next answer"
    assert agent.progress.of("complete")[-1]["status"] == "success"


async def results(agent: Agent) -> dict[str, str]:
    """Return the result of each call."""
    return {row["tool_call_id"]: text_of(row) for row in await agent.history() if row["role"] == "tool"}


async def late_results(agent: Agent) -> list[Row]:
    """Return the rows of late results."""
    return [row for row in await agent.history() if "results" in (row.get("metadata") or {})]


async def delivered(agent: Agent) -> list[str]:
    """Return the ids of the messages in committed rows, in order."""
    return [each for row in await agent.history() for each in (row.get("metadata") or {}).get("injections", ())]
