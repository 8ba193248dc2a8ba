"""Streams of servers that break the API: each is an answer or an error, and the conversation continues."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from agents import echo, faults
from anthropic_server import AnthropicServer, message, text
from mounted_provider import OPENAI, RecordingStream, a_request, mounted_at

from orchestrator_interactive.kernel import AmplifierSession
from orchestrator_interactive.kernel.contracts import errors
from orchestrator_interactive.kernel.contracts.arguments import problem_of

DONE = b"data: [DONE]\n\n"


def raw(*chunks: Any) -> list[bytes]:
    """Return the lines of a stream; a chunk may be raw bytes."""
    return [each if isinstance(each, bytes) else f"data: {json.dumps(each)}\n\n".encode() for each in chunks]


def delta(stop: str | None = None, **fields: Any) -> dict[str, Any]:
    return {"id": "c", "choices": [{"index": 0, "delta": fields, "finish_reason": stop}]}


BARE = {"function": {"name": "look", "arguments": '{"a":1}'}}
ENDED = delta("stop")
CALL = {"index": 0, "id": "c1", "function": {"name": "look", "arguments": "{}"}}
ANSWER = b'data: {"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}'


def called(name: str, arguments: Any, **fields: Any) -> dict[str, Any]:
    return delta(tool_calls=[{"index": 0, "id": "c1", "function": {"name": name, "arguments": arguments}, **fields}])


HOSTILE: dict[str, tuple[list[bytes], str]] = {
    # Each is answered with a text, calls, or an error of the kernel.
    "no chunk": (raw(DONE), "error"),
    "nothing at all": ([b""], "error"),
    "cut off": (raw(delta(content="Hel")), "error"),
    "no finish reason": (raw(delta(content="x"), DONE), "error"),
    "not json": (raw(b"data: {not json\n\n"), "error"),
    "json of another type": (raw([1, 2], "text", 7, None, delta("stop", content="x"), DONE), "x"),
    "nested deeply": (raw(b"data: " + b"[" * 100_000 + b"\n\n"), "error"),
    "choices of another type": (raw({"choices": "no"}, {"choices": {"a": 1}}, delta("stop", content="x"), DONE), "x"),
    "choices null": (raw({"choices": None}, {"choices": [None]}, delta("stop", content="x"), DONE), "x"),
    "another choice": (raw({"choices": [{"index": 1, "delta": {"content": "no"}}]}, delta("stop", content="x")), "x"),
    "delta of another type": (raw({"choices": [{"delta": "no"}]}, delta("stop", content="x"), DONE), "x"),
    "content of another type": (raw(delta(content=["no"]), delta(content=7), delta("stop", content="x"), DONE), "x"),
    "finish reason of another type": (raw(delta(content="x"), {"choices": [{"finish_reason": 7}]}), "error"),
    "unknown finish reason": (raw(delta("because", content="x"), DONE), "x"),
    "text after the end": (raw(delta("stop", content="x"), delta(content="y"), DONE), "x"),
    "finish reason twice": (raw(delta("stop", content="x"), delta("length"), DONE), "x"),
    "usage of another type": (raw({"usage": "much"}, delta("stop", content="x"), DONE), "x"),
    "usage with texts": (raw({"usage": {"prompt_tokens": "7"}}, delta("stop", content="x"), DONE), "x"),
    "usage that is negative": (raw({"usage": {"prompt_tokens": -7}}, delta("stop", content="x"), DONE), "x"),
    "usage that is not a number": (
        raw(b'data: {"usage": {"prompt_tokens": NaN}}\n\n', delta("stop", content="x")),
        "x",
    ),
    "usage with details null": (raw({"usage": {"prompt_tokens_details": None}}, delta("stop", content="x")), "x"),
    "more cached than read": (
        raw({"usage": {"prompt_tokens": 1, "prompt_tokens_details": {"cached_tokens": 9}}}, delta("stop", content="x")),
        "x",
    ),
    "calls of another type": (raw(delta(tool_calls="no"), delta("stop", content="x"), DONE), "x"),
    "a call of another type": (raw(delta(tool_calls=["no", None]), delta("stop", content="x"), DONE), "x"),
    "a call without a function": (raw(delta(tool_calls=[{"index": 0}]), delta("stop", content="x"), DONE), "x"),
    "a call without an index": (raw(delta(tool_calls=[{**CALL, "index": None}]), delta("tool_calls")), "look()"),
    "calls without indexes": (
        raw(
            delta(tool_calls=[{**CALL, "index": None}]),
            delta(tool_calls=[{**CALL, "index": None, "id": "c2"}]),
            delta("tool_calls"),
        ),
        "look() look()",
    ),
    "an index that is a truth value": (raw(delta(tool_calls=[{**CALL, "index": True}]), delta("tool_calls")), "look()"),
    "indexes with gaps": (
        raw(delta(tool_calls=[{**CALL, "index": 7, "id": "c7"}, {**CALL, "index": 3}]), delta("tool_calls")),
        "look() look()",
    ),
    "a negative index": (raw(delta(tool_calls=[{**CALL, "index": -1}]), delta("tool_calls")), "look()"),
    "calls that alternate": (
        raw(
            delta(tool_calls=[{**CALL, "function": {"name": "look", "arguments": '{"a"'}}]),
            delta(tool_calls=[{**CALL, "index": 1, "id": "c2", "function": {"name": "see", "arguments": '{"b"'}}]),
            delta(tool_calls=[{"index": 0, "function": {"arguments": ":1}"}}]),
            delta(tool_calls=[{"index": 1, "function": {"arguments": ":2}"}}]),
            delta("tool_calls"),
        ),
        "look(a=1) see(b=2)",
    ),
    "an id twice": (raw(delta(tool_calls=[CALL, {**CALL, "index": 1}]), delta("tool_calls")), "look() look()"),
    "no id": (raw(delta(tool_calls=[{**CALL, "id": None}]), delta("tool_calls")), "look()"),
    "no name": (raw(delta(tool_calls=[{"index": 0, "function": {"arguments": "{}"}}]), delta("tool_calls")), "()"),
    "a name that is repeated": (
        raw(delta(tool_calls=[CALL]), delta(tool_calls=[{"index": 0, "function": {"name": "look"}}]), delta("stop")),
        "look()",
    ),
    "arguments as an object": (
        raw(delta(tool_calls=[{**CALL, "function": {"name": "look", "arguments": {"a": 1}}}]), delta("tool_calls")),
        "look(a=1)",
    ),
    "arguments that are not json": (
        raw(delta(tool_calls=[{**CALL, "function": {"name": "look", "arguments": "{oh"}}]), delta("tool_calls")),
        "look(invalid)",
    ),
    "arguments that are a list": (
        raw(delta(tool_calls=[{**CALL, "function": {"name": "look", "arguments": "[1]"}}]), delta("tool_calls")),
        "look(invalid)",
    ),
    "arguments that were cut off": (
        raw(delta(tool_calls=[{**CALL, "function": {"name": "look", "arguments": '{"a'}}]), delta("length")),
        "",
    ),
    "a lone surrogate": (raw(b'data: {"choices":[{"delta":{"content":"\\ud83d"}}]}\n\n', delta("stop")), "�"),
    "a letter over two chunks": (raw(delta(content="\ud83d"), delta("stop", content="\ude00")), "😀"),
    "an error in the stream": (raw({"error": {"message": "down", "type": "server_error"}}), "error"),
    "an error of another type": (raw({"error": "down"}), "error"),
    "comments and blank lines": ([b": keep-alive\n\n", b"\n", *raw(delta("stop", content="x")), DONE], "x"),
    "carriage returns": ([b'data: {"choices":[{"delta":{"content":"x"},"finish_reason":"stop"}]}\r\n\r\n'], "x"),
    "a refusal": (raw(delta(refusal="I will not."), delta("stop")), "refused"),
    "a thousand and one calls": (
        raw(*(delta(tool_calls=[{**CALL, "index": n, "id": f"c{n}"}]) for n in range(1001)), delta("stop")),
        "error",
    ),
    "invalid bytes": ([b"data: \xff\xfe\n\n"], "error"),
    "a message in place of a delta": (
        raw({"choices": [{"message": {"content": "x"}, "finish_reason": "stop"}]}, DONE),
        "x",
    ),
    "an index of a choice that is a list": (raw({"choices": [{"index": [], "delta": {"content": "x"}}]}, ENDED), "x"),
    "an index of a choice that is an object": (
        raw({"choices": [{"index": {"a": 1}}]}, delta("stop", content="x")),
        "x",
    ),
    "an index of a call that is a list": (raw(called("look", "{}", index=[]), delta("tool_calls")), "look()"),
    "an index of a call that is huge": (raw(called("look", "{}", index=10**30), delta("tool_calls")), "look()"),
    "one index for all calls": (
        raw(called("look", '{"a":1}'), called("see", '{"b":2}', id="c2"), delta("tool_calls")),
        "look(a=1) see(b=2)",
    ),
    "an id of its own for each part of a call": (
        raw(called("look", '{"a"'), called(None, ":1}", id="c2"), delta("tool_calls")),
        "look(a=1)",
    ),
    "calls without indexes and ids": (
        raw(delta(tool_calls=[BARE]), delta(tool_calls=[BARE]), delta("tool_calls")),
        "look(a=1) look(a=1)",
    ),
    "arguments after their end": (
        raw(called("look", '{"a":1}'), called("see", "{}", index=1, id="c2"), called("", '{"a":2}'), delta("stop")),
        "look(a=1) see()",
    ),
    "arguments that are a number": (raw(called("look", 7), delta("tool_calls")), "look()"),
    "arguments that are not a number": (raw(called("look", '{"a": NaN}'), delta("tool_calls")), "look(a=nan)"),
    "arguments nested deeply": (raw(called("look", '{"a":' * 3000), delta("tool_calls")), "look(invalid)"),
    "arguments with a lone surrogate": (raw(called("look", '{"a": "\\ud83d"}'), delta("tool_calls")), "look(a=\ud83d)"),
    "arguments of a megabyte in small parts": (
        raw(called("look", '{"a": "'), *[called("", "x" * 1000)] * 1000, called("", '"}'), delta("tool_calls")),
        f"look(a={'x' * 1_000_000})",
    ),
    "arguments without an end": (raw(*[called("look", "x" * 1_000_000)] * 11), "error"),
    "a name of another type": (raw(called(["look"], "{}"), delta("tool_calls")), "()"),
    "a name that no API accepts": (raw(called("lo ok\u0000;é" * 50, "{}"), delta("stop")), "lo ok\0;é" * 50 + "()"),
    "an id that no API accepts": (raw(called("look", "{}", id="\u0000é" * 500), delta("tool_calls")), "look()"),
    "an id that is blank": (raw(called("look", "{}", id=" "), delta("tool_calls")), "look()"),
    "a call after text after a call": (
        raw(called("look", "{}"), delta(content="x"), called("see", "{}", index=1, id="c2"), delta("stop")),
        "x look() see()",
    ),
    "a call of nothing": (raw(called("", ""), delta("stop", content="x")), "x"),
    "reasoning alone": (raw(delta(reasoning_content="hm"), delta("stop")), ""),
    "reasoning of another type": (raw(delta(reasoning=["hm"]), delta("stop", content="x")), "x"),
    "reasoning between texts": (raw(delta(content="x"), delta(reasoning="hm"), delta(content="y"), ENDED), "xy"),
    "parts in place of a text": (raw(delta("stop", content=[{"type": "text", "text": "x"}, {"text": 7}, 7])), "x"),
    "a refusal of another type": (raw(delta(refusal={"a": 1}), delta("stop", content="x")), "x"),
    "a failure as the finish reason": (raw(delta("error", content="x"), DONE), "error"),
    "more tokens than there are": (raw({"usage": {"prompt_tokens": 10**40}}, delta("stop", content="x")), "x"),
    "a byte order mark": ([b"\xef\xbb\xbf", *raw(delta(role="assistant"), delta("stop", content="x"))], "x"),
    "only carriage returns": ([ANSWER + b"\r\r"], "x"),
    "one event in many packets": ([ANSWER[n : n + 1] for n in range(len(ANSWER))] + [b"\n\n"], "x"),
    "a letter over two packets": ([ANSWER.replace(b"x", b"\xc3"), b""], "error"),
    "a letter in two packets": (
        [ANSWER.partition(b"x")[0] + b"\xc3", b"\xa9" + ANSWER.partition(b"x")[2] + b"\n\n"],
        "é",
    ),
    "an event of another name": (
        [b"event: thread.nonsense\n" + ANSWER + b"\n\n", *raw(delta("stop", content="x"))],
        "x",
    ),
    "an event over two lines": (
        [b'data: {"choices":\ndata: [{"delta":{"content":"x"},"finish_reason":"stop"}]}\n\n'],
        "x",
    ),
    "an error without a text": (raw(delta(content="x"), {"error": {"message": None, "code": 500}}), "error"),
    "an error that is a list": (raw({"error": [1]}), "error"),
    "a whole answer that is not streamed": ([b'{"choices":[{"message":{"content":"x"}}]}'], "error"),
    "a page": ([b"<html>Bad gateway</html>"], "error"),
}


def shown(answer: Any) -> str:
    calls = []
    for each in answer.tool_calls or ():
        given = ", ".join(f"{name}={value}" for name, value in each.arguments.items())
        calls.append(f"{each.name}({'invalid' if problem_of(each.arguments) else given})")
    return "refused" if answer.finish_reason == "refusal" else " ".join([answer.text, *calls]).strip()


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_hostile_stream_is_an_answer_or_an_error_of_the_kernel(server: AnthropicServer, name: str) -> None:
    steps, expected = HOSTILE[name]
    stream = RecordingStream()
    async with mounted_at(server.base_url, OPENAI, max_retries=0) as mounted:
        server.reply_steps(*steps)
        try:
            found = await asyncio.wait_for(mounted.complete(a_request(), stream=stream), 10)
        except errors.LLMError:
            assert expected == "error"
        else:
            assert shown(found) == expected
            assert stream.handed_on == found.content
            ids = [call.id for call in found.tool_calls or ()]
            assert len(set(ids)) == len(ids)
            assert all(ids)


@pytest.mark.parametrize("name", HOSTILE)
async def test_a_conversation_continues_after_a_hostile_stream(
    server: AnthropicServer, tmp_path: Path, name: str
) -> None:
    log = {"store": f"sqlite:{tmp_path}/log.db", "conversation_id": "c"}
    plan = {
        "session": {
            "orchestrator": {"module": "loop-interactive", "config": {"max_retries": 0}},
            "context": {"module": "context-stack", "config": log},
        },
        "providers": [{"module": "provider-openai", "config": {"base_url": f"{server.base_url}/v1", "model": "m"}}],
    }
    server.reply_steps(*HOSTILE[name][0])
    server.otherwise = lambda _: message(text("fine"))
    for prompt in ("go", "next"):  # the second session reads the log of the first one
        async with AmplifierSession(plan) as session:
            for tool in ("look", "see"):
                await session.coordinator.mount("tools", echo(tool))
            try:
                said = await asyncio.wait_for(session.execute(prompt), 20)
            except errors.LLMError:
                assert (prompt, HOSTILE[name][1]) == ("go", "error")
            rows = await session.coordinator.get("context").get_messages()
            assert faults(rows) == []
            json.dumps(rows)
    assert said == "fine"
