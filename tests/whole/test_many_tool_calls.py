"""A model response with very many tool calls delays no other conversation."""

from __future__ import annotations

import asyncio
import json

import pytest
from anthropic_server import message, text, tool_call
from child_processes import child_processes

CALLS = 100


def _results(body):
    last = body["messages"][-1]["content"]
    return [block for block in last if isinstance(block, dict) and block.get("type") == "tool_result"]


@pytest.mark.parametrize("regex", [False, True])
async def test_another_conversation_is_answered_during_the_calls_and_each_call_has_one_result(opened, model, regex):
    searches = [tool_call("search_files", {"query": f"cake {number}", "regex": regex}) for number in range(CALLS)]
    gated = tool_call("run_tests", {})
    received = []

    def answer(body):
        if results := _results(body):
            received.append(results)
            return message(text("Nothing found."))
        if "everything" in json.dumps(body["messages"]):
            return message(gated, *searches)
        return message(text("Good morning."))

    model.otherwise = answer
    before, most = child_processes(), 0
    async with opened(max_calls_per_answer=CALLS + 1) as place:
        flood = await place.ask("@alpha search everything")
        await place.tests.reached.wait()
        other = await place.ask("@alpha hello")
        said = asyncio.ensure_future(place.said(other))
        while not said.done():
            most = max(most, len(child_processes() - before))
            await asyncio.sleep(0.02)
        assert said.result() == ["Good morning."]
        assert not received, "the searches have not ended"
        place.tests.open()
        assert await place.said(flood) == ["Nothing found."]
    (results,) = received
    assert {each["tool_use_id"] for each in results} == {each.start["id"] for each in (gated, *searches)}
    assert len(results) == CALLS + 1
    assert 0 < most <= 4


async def test_the_calls_above_the_limit_fail_and_the_run_continues(opened, model):
    model.reply(*[tool_call("list_files", {}) for _ in range(200)])
    model.reply(text("That was too much."))
    async with opened() as place:
        flood = await place.ask()
        assert await place.said(flood) == ["That was too much."]
    contents = [json.dumps(each["content"]) for each in _results(model.bodies[1])]
    assert len(contents) == 200
    assert sum("There are no such files" in each for each in contents) == 64
    assert sum("at most 64 tool calls" in each for each in contents) == 136
