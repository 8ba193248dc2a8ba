"""The service in its own process, with a local Slack, and its end after a signal."""

from __future__ import annotations

import signal

import pytest
from anthropic_server import Gate, text, tool_call
from redis_server import redis_server
from service_process import remote_sessions
from slack_environment import SlackEnvironment

from connector.setup import BOT_EVENTS, BOT_SCOPES
from local_slack import LocalSlack

REQUIRED_SCOPES = {need.name for need in BOT_SCOPES if need.is_required}
EVENTS = {need.name.partition(".")[0] for need in BOT_EVENTS}
HANGING_TOOL = """
import asyncio, sys, time
from orchestrator_interactive.kernel import ToolResult

class Hang:
    name = "hang"
    description = "Hang."
    input_schema = {{"type": "object", "properties": {{}}}}

    async def execute(self, input):
        print("it hangs", file=sys.stderr, flush=True)
        while True:
            try:
                {statement}
            except asyncio.CancelledError:
                pass

async def mount(coordinator, config):
    await coordinator.mount("tools", Hang(), name="hang")
"""


async def test_calls_of_a_service_over_redis_are_counted_in_redis(slack, environment):
    with redis_server() as server:
        async with environment.serving(AMPLIFIER_SLACK_STORE=server.url) as service:
            await service.says("service.ready")
            asked = await slack.as_person("ana").say("general", "@alpha hello")
            await slack.until(lambda _: environment.said(asked), 20)
            counted = {key.decode() for key in server.ask("KEYS", "budget:*")}
    channel = slack.channel("general").id
    assert {f"budget:{{{slack.team_id}}}:chat.postMessage{end}" for end in ("", f":{channel}")} <= counted


async def test_the_required_scopes_suffice_for_answers_and_stops(tmp_path, model, model_env):
    gate = Gate()
    model.reply(text("Here you are."))
    model.reply(text("I begin. "), gate, text("And end."))
    async with LocalSlack(scopes=REQUIRED_SCOPES, events=EVENTS) as slack:
        environment, ana = SlackEnvironment.of(slack, tmp_path), slack.as_person("ana")
        async with environment.serving(**model_env) as service:
            await service.says("service.ready")
            answered = await ana.say("general", "@alpha look")
            await slack.until(lambda _: environment.found(answered, "Here you are."), 20)
            stopped = await ana.say("general", "@alpha look again")
            await gate.reached.wait()
            await ana.react("general", stopped, "x")
            await slack.until(lambda _: environment.found(stopped, "topped"), 20)
        calls = [entry for entry in slack.record if entry["what"] == "call"]
    refused = {entry["method"] for entry in calls if entry.get("error") == "missing_scope"}
    assert refused - {"chat.postMessage"} == {"users.info", "agents.sessions.setStatus"}, "only names are missing"


@pytest.fixture
async def posting(slack, environment):
    """A service whose first call of `chat.postMessage` hangs."""
    async with environment.serving() as service:
        await service.says("service.ready")
        hold = environment.hold("chat.postMessage")
        await slack.as_person("ana").say("general", "@alpha look")
        await hold.reached.wait()
        yield service
        hold.set()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_an_idle_service_ends_with_code_0(environment, number):
    async with environment.serving() as service:
        await service.says("service.ready")
        assert await service.ended(number) == 0
    assert "Traceback" not in service.output


async def test_a_terminal_and_a_parent_that_end_a_service_at_once_let_it_end_in_good_order(environment):
    async with environment.serving() as service:
        await service.says("service.ready")
        service.process.send_signal(signal.SIGINT)
        assert await service.ended(signal.SIGTERM) == 0
    assert "service.stopping" in service.output
    assert "ignored due to race condition" not in service.output


async def test_a_service_that_is_not_yet_connected_ends(environment):
    hold = environment.hold("auth.test")
    async with environment.serving() as service:
        await hold.reached.wait()
        try:
            await service.ended(signal.SIGTERM, within_s=5)
        finally:
            hold.set()
    assert "Traceback" not in service.output


async def test_a_service_that_lost_its_connection_ends_and_logs_no_token(slack, environment):
    async with environment.serving() as service:
        await service.says("service.ready")
        await slack.__aexit__(None, None, None)
        await service.says("socket.reconnecting")
        assert await service.ended(signal.SIGTERM) == 0
    assert slack.app_token not in service.output
    assert slack.bot_token not in service.output


@pytest.mark.parametrize(
    "statement", ["await asyncio.sleep(3600)", "time.sleep(3600)"], ids=["ignores cancellation", "blocks"]
)
async def test_a_hanging_tool_does_not_prevent_the_end(  # noqa: PLR0917 - fixtures
    slack, environment, model, model_env, config_file, tmp_path, statement
):
    source = tmp_path / "hanging.py"
    source.write_text(HANGING_TOOL.format(statement=statement))
    tools = f"tools: [{{module: hanging, source: {source}}}]"
    instances = f"instances: {{alpha: {{persona: {{name: Alpha, emoji: ':owl:'}}, {tools}}}}}"
    model.reply(tool_call("hang"))
    config = config_file(f"{instances}\nshutdown_grace_s: 1")
    async with environment.serving("--config", str(config), **model_env) as service:
        await service.says("service.ready")
        await slack.as_person("ana").say("general", "@alpha look")
        await service.says("it hangs")
        code = await service.ended(signal.SIGTERM, within_s=20)
    # If the agents have a process of their own, the tool hangs there.
    assert (code, "service.killed" in service.output) == ((0, False) if remote_sessions() else (1, True))


async def test_a_hanging_call_of_slack_does_not_prevent_the_end(posting):
    assert await posting.ended(signal.SIGTERM, within_s=15) == 0


async def test_a_second_signal_ends_the_service_immediately(posting):
    posting.process.send_signal(signal.SIGTERM)
    await posting.says("service.stopping")
    assert await posting.ended(signal.SIGTERM, within_s=5) == -signal.SIGTERM


async def test_the_cleanup_of_a_finished_run_is_completed_before_the_end(slack, environment, model, model_env):
    model.reply(text("the answer"))
    async with environment.serving(**model_env) as service:
        await service.says("service.ready")
        ts = await slack.as_person("ana").say("general", "@alpha look")
        deleting = environment.hold("chat.delete")
        await slack.until(lambda _: environment.found(ts, "the answer"))
        service.process.send_signal(signal.SIGTERM)
        await service.says("service.stopping")
        deleting.set()
        assert await service.ended() == 0
    assert environment.said(ts) == ["the answer"]
    assert not slack.workspace.message("general", ts).reacted("hourglass_flowing_sand")
