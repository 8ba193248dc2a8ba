"""A log that others wrote, or wrote badly, keeps nobody from going on with the conversation."""

from __future__ import annotations

from typing import Any

import pytest
from agents import make_agent, say

USER = {"role": "user", "content": "before"}
ODD = [
    {"role": "user", "content": "x", "metadata": "a text"},
    {"role": "user", "content": "x", "metadata": ["a list"]},
    {"role": "tool", "content": "x", "metadata": {"pending": True}},
    {"role": "tool", "content": "x", "tool_call_id": "a", "metadata": {"pending": True}},
    {"role": "user", "content": "x", "metadata": {"results": 5}},
    {"role": "assistant", "content": "x", "metadata": {"usage": 7}},
    {"role": "assistant", "content": "x", "tool_calls": [{}]},
    {"role": "assistant", "content": "x", "tool_calls": "none"},
]


@pytest.mark.parametrize("row", ODD)
@pytest.mark.parametrize("max_tokens", [100_000, 1])
async def test_the_next_run_answers(row: dict[str, Any], max_tokens: int) -> None:
    agent = await make_agent(say("ok"), plan={"context": {"module": "watched", "config": {"max_tokens": max_tokens}}})
    await agent.context.set_messages([USER, row, USER])
    assert await agent.run("go on") == "ok"
