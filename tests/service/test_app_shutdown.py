from __future__ import annotations

import signal

import pytest
from anthropic_server import AnthropicServer, Gate, text, tool_call

# A tool that does not end.
HANGING = """
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
                {hangs}
            except asyncio.CancelledError:
                pass

async def mount(coordinator, config):
    await coordinator.mount("tools", Hang(), name="hang")
"""
CONFIG = """
instances: {{alpha: {{persona: {{name: Alpha, emoji: ':owl:'}}, tools: [{{module: hanging, source: {source}}}]}}}}
shutdown_grace_s: 1
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_service_without_work_ends_at_once_and_well(stage, number):
    async with stage.serving() as service:
        await service.says("service.ready")
        assert await service.ended(number) == 0
    assert "Traceback" not in service.output


async def test_a_service_that_cannot_reach_slack_ends_when_it_is_told_to(slack, stage):
    never = stage.hold("auth.test")
    async with stage.serving() as service:
        await never.reached.wait()
        try:
            await service.ended(signal.SIGTERM, within_s=5)
        finally:
            never.set()
    assert "Traceback" not in service.output


async def test_a_service_whose_slack_is_gone_ends_when_it_is_told_to(slack, stage):
    async with stage.serving() as service:
        await service.says("service.ready")
        await slack.__aexit__(None, None, None)
        await service.says("socket.reconnecting")
        assert await service.ended(signal.SIGTERM) == 0
    assert slack.app_token not in service.output
    assert slack.bot_token not in service.output


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
async def test_a_run_that_is_on_when_the_service_ends_is_gone_on_with_by_the_next_one(slack, stage, number):
    async with AnthropicServer() as model:
        gate = Gate()
        model.reply(text("Half an ", gate, "answer"))
        model.reply(text("the whole answer"))
        env = {"ANTHROPIC_API_KEY": "sk-ant-of-the-test", "ANTHROPIC_BASE_URL": model.base_url}
        async with stage.serving(**env) as service:
            await service.says("service.ready")
            ana = slack.as_person("ana")
            ts = await ana.say("general", "@alpha look")
            await gate.reached.wait()
            steer = await ana.say("general", "and that", thread=ts)
            await slack.until(lambda ws: ws.message("general", steer).reacted("incoming_envelope"))
            assert await service.ended(number) == (0 if number == signal.SIGTERM else -number)
            assert slack.workspace.message("general", ts).reacted("hourglass_flowing_sand")
        gate.open()
        async with stage.serving(**env) as later:
            await later.says("service.ready")
            await slack.until(lambda _: stage.found(ts, "the whole answer"), 30)
            await slack.until(lambda ws: not ws.message("general", ts).reacted("hourglass_flowing_sand"), 30)
            assert await later.ended(signal.SIGTERM) == 0
    for output in (service.output, later.output):
        assert "Traceback" not in output
        assert "sk-ant-of-the-test" not in output
    assert stage.said(ts) == ["the whole answer"]
    assert slack.workspace.message("general", steer).reacted("eyes")
    assert str(model.bodies[-1]["messages"]).count("and that") == 1


@pytest.mark.parametrize("hangs", ["await asyncio.sleep(3600)", "time.sleep(3600)"], ids=["heeds nothing", "blocks"])
async def test_a_tool_that_does_not_end_does_not_keep_the_service_from_ending(slack, stage, tmp_path, hangs):
    (tmp_path / "hanging.py").write_text(HANGING.format(hangs=hangs))
    config = tmp_path / "config.yaml"
    config.write_text(CONFIG.format(source=tmp_path / "hanging.py"))
    async with AnthropicServer() as model:
        model.reply(tool_call("hang"))
        env = {"ANTHROPIC_API_KEY": "sk-ant-of-the-test", "ANTHROPIC_BASE_URL": model.base_url}
        async with stage.serving("--config", str(config), **env) as service:
            await service.says("service.ready")
            await slack.as_person("ana").say("general", "@alpha look")
            await service.says("it hangs")
            assert await service.ended(signal.SIGTERM, within_s=20) == 1
    assert "service.killed" in service.output


async def test_the_end_does_not_wait_for_ever_for_a_slack_that_does_not_answer(slack, stage):
    async with stage.serving() as service:
        await service.says("service.ready")
        never = stage.hold("chat.postMessage")
        await slack.as_person("ana").say("general", "@alpha look")
        await never.reached.wait()
        try:
            assert await service.ended(signal.SIGTERM, within_s=15) == 0
        finally:
            never.set()


async def test_a_second_signal_ends_a_service_that_does_not_end(slack, stage):
    async with stage.serving() as service:
        await service.says("service.ready")
        never = stage.hold("chat.postMessage")
        await slack.as_person("ana").say("general", "@alpha look")
        await never.reached.wait()
        service.process.send_signal(signal.SIGTERM)
        await service.says("service.stopping")
        try:
            assert await service.ended(signal.SIGTERM, within_s=5) == -signal.SIGTERM
        finally:
            never.set()


async def test_the_answer_of_a_run_that_is_over_is_posted_before_the_service_ends(slack, stage):
    async with AnthropicServer() as model:
        model.reply(text("the answer"))
        env = {"ANTHROPIC_API_KEY": "sk-ant-of-the-test", "ANTHROPIC_BASE_URL": model.base_url}
        async with stage.serving(**env) as service:
            await service.says("service.ready")
            ts = await slack.as_person("ana").say("general", "@alpha look")
            taking_away = stage.hold("chat.delete")
            await slack.until(lambda _: stage.found(ts, "the answer"))
            service.process.send_signal(signal.SIGTERM)
            await service.says("service.stopping")
            taking_away.set()
            assert await service.ended() == 0
    assert stage.said(ts) == ["the answer"]
    assert not slack.workspace.message("general", ts).reacted("hourglass_flowing_sand")
