from __future__ import annotations

import signal

import pytest
from anthropic_server import AnthropicServer, Gate, text


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
        await service.says("annot connect")
        assert await service.ended(signal.SIGTERM) == 0
    assert slack.app_token not in service.output
    assert slack.bot_token not in service.output


async def test_a_run_that_is_cut_by_the_end_of_the_service_is_told_and_nothing_lingers(slack, stage):
    async with AnthropicServer() as model:
        gate = Gate()
        model.reply(text("Half an ", gate, "answer"))
        env = {"ANTHROPIC_API_KEY": "sk-ant-of-the-test", "ANTHROPIC_BASE_URL": model.base_url}
        async with stage.serving(**env) as service:
            await service.says("service.ready")
            ana = slack.as_person("ana")
            ts = await ana.say("general", "@alpha look")
            await gate.reached.wait()
            steer = await ana.say("general", "and that", thread=ts)
            await slack.until(lambda ws: ws.message("general", steer).reacted("incoming_envelope"))
            assert await service.ended(signal.SIGTERM) == 0
        gate.open()
    assert "Traceback" not in service.output
    assert "sk-ant-of-the-test" not in service.output
    assert not slack.workspace.message("general", ts).reacted("hourglass_flowing_sand")
    (last,) = stage.said(ts)
    assert last.startswith("🛑 Stopped: the service is shutting down.")
    assert "1 message" in last, "that it was not read is told"
    assert "your next message takes them along" not in last, "nothing of it is left when the service starts again"


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
