"""Traces of a service that exports them to a collector."""

from __future__ import annotations

import json
import signal
import sys
import time

import pytest
from anthropic_server import Gate, text, tool_call
from otlp_receiver import OtlpReceiver

from service.config.config_errors import ConfigError
from service.config.observe import ObserveConfig
from service.observe import observing

MARKER = "zebra-7431"


@pytest.fixture
async def collector():
    async with OtlpReceiver() as collector:
        yield collector


@pytest.fixture
def env(model_env, collector):
    return {**model_env, **collector.env}


@pytest.fixture
def trace(slack, environment, model, env, config_file):
    """Have a run with a tool and an injection, and return the ts of its messages and its id once it is exported."""

    async def have(observe):
        gate, ana, config = Gate(), slack.as_person("ana"), config_file(f"observe: {observe}")
        model.reply(tool_call("write_file", {"path": "a.txt", "content": MARKER}))
        model.reply(text(f"Written {MARKER}: "), gate, text("done."))
        model.reply(text(f"And blue {MARKER}."))
        async with environment.serving("--config", str(config), **env) as service:
            await service.says("service.ready")
            asked = await ana.say("general", f"@alpha look at {MARKER}")
            await slack.until(lambda _: model.requests[1:], 20)
            steered = await ana.say("general", f"and blue {MARKER}", thread=asked)
            gate.open()
            await slack.until(lambda _: environment.found(asked, "And blue"), 20)
            await service.says("run.ended")
            await service.ended(signal.SIGTERM)  # exports the last spans
        ended = next(line for line in map(json.loads, service.lines) if line["event"] == "run.ended")
        return asked, steered, ended["run_id"]

    return have


async def test_a_run_is_one_trace_with_its_calls_and_links_to_the_messages_that_it_read(slack, trace, collector):
    asked, steered, run_id = await trace("{traces: true}")
    channel = slack.channel("general").id
    (root,) = collector.named("invoke_agent alpha")
    assert (root.trace_id, root.parent) == (run_id, "")
    assert root.attributes["gen_ai.operation.name"] == "invoke_agent"
    assert root.attributes["gen_ai.conversation.id"] == f"{slack.team_id}:{channel}:{asked}"
    assert root.attributes["amplifier_slack.run.outcome"] == "success"
    chats = collector.named("chat claude-of-the-test")
    assert len(chats) == 3
    expected = {
        "operation.name": "chat",
        "provider.name": "anthropic",
        "request.model": "claude-of-the-test",
        "usage.input_tokens": 10,
        "usage.output_tokens": 5,
    }
    assert {name: chats[0].attributes[f"gen_ai.{name}"] for name in expected} == expected
    (tool,) = collector.named("execute_tool write_file")
    assert (tool.attributes["gen_ai.tool.name"], tool.is_error) == ("write_file", False)
    assert {(span.trace_id, span.parent) for span in (*chats, tool)} == {(run_id, root.id)}
    admissions = collector.named("admit message")
    ids = [f"{slack.team_id}:{channel}:{ts}" for ts in (asked, steered)]
    assert [span.attributes["amplifier_slack.message.id"] for span in admissions] == ids
    assert root.links == [(span.trace_id, span.id) for span in admissions]
    assert all(MARKER.encode() not in body for body in collector.bodies)


async def test_texts_arguments_and_results_are_in_the_trace_only_on_request(trace, collector):
    await trace("{traces: true, content: true}")
    first, _, last = (span.attributes for span in collector.named("chat"))
    asked = json.loads(first["gen_ai.input.messages"])[-1]
    assert (asked["role"], MARKER in asked["parts"][0]["content"]) == ("user", True)
    assert json.loads(first["gen_ai.output.messages"])[0]["parts"][0]["name"] == "write_file"
    assert f"And blue {MARKER}." in last["gen_ai.output.messages"]
    (tool,) = collector.named("execute_tool")
    assert json.loads(tool.attributes["gen_ai.tool.call.arguments"])["content"] == MARKER
    assert "a.txt" in tool.attributes["gen_ai.tool.call.result"]


async def test_an_unreachable_collector_delays_neither_a_run_nor_the_end(
    slack, environment, model_env, config_file, free_port
):
    config = config_file("observe: {traces: true}")
    env = {**model_env, "OTEL_EXPORTER_OTLP_ENDPOINT": f"http://127.0.0.1:{free_port}", "OTEL_BSP_SCHEDULE_DELAY": "1"}
    async with environment.serving("--config", str(config), **env) as service:
        await service.says("service.ready")
        asked = await slack.as_person("ana").say("general", "@alpha hello")
        await slack.until(lambda _: environment.found(asked, "fine"), 20)
        await service.says("run.ended")
        began_s = time.monotonic()
        assert await service.ended(signal.SIGTERM) == 0
        assert time.monotonic() - began_s < 10


async def test_a_variable_that_opentelemetry_rejects_is_a_configuration_error(monkeypatch):
    monkeypatch.setenv("OTEL_BSP_MAX_QUEUE_SIZE", "-5")
    with pytest.raises(ConfigError, match=r"observe\.traces: .* must be a positive integer.* begin with OTEL_"):
        async with observing(ObserveConfig(traces=True), ["alpha"], 0, {}, ()):
            pass


async def test_traces_without_the_extra_are_a_configuration_error(monkeypatch):
    monkeypatch.setitem(sys.modules, "opentelemetry", None)  # as if it were not installed
    monkeypatch.delitem(sys.modules, "service.observe.traces", raising=False)
    with pytest.raises(ConfigError, match=r"observe\.traces: OpenTelemetry is not installed"):
        async with observing(ObserveConfig(traces=True), ["alpha"], 0, {}, ()):
            pass
