"""The service as a process beside a local Slack."""

from __future__ import annotations

import re

import pytest
from anthropic_server import Gate, text
from redis_server import redis_server
from stage import Stage

from connector.setup.scopes import BOT_EVENTS, BOT_SCOPES
from local_slack import LocalSlack

REQUIRED_SCOPES = {need.name for need in BOT_SCOPES if need.is_required}
EVENTS = {need.name.partition(".")[0] for need in BOT_EVENTS}
RETRY = re.compile(r"⚙️ The model's service is busy; trying again in \d s \(1 of 3\)…")


async def test_calls_of_a_service_over_redis_are_counted_in_redis(slack, stage):
    with redis_server() as server:
        async with stage.serving(AMPLIFIER_SLACK_STORE=server.url) as service:
            await service.says("service.ready")
            asked = await slack.as_person("ana").say("general", "@alpha hello")
            await slack.until(lambda _: stage.said(asked), 20)
            counted = {key.decode() for key in server.ask("KEYS", "budget:*")}
    channel = slack.channel("general").id
    assert {f"budget:{{{slack.team_id}}}:chat.postMessage{end}" for end in ("", f":{channel}")} <= counted


async def test_the_required_scopes_suffice_for_answers_and_stops(tmp_path, model, model_env):
    gate = Gate()
    model.reply(text("Here you are."))
    model.reply(text("I begin. "), gate, text("And end."))
    async with LocalSlack(scopes=REQUIRED_SCOPES, events=EVENTS) as slack:
        stage, ana = Stage.of(slack, tmp_path), slack.as_person("ana")
        async with stage.serving(**model_env) as service:
            await service.says("service.ready")
            answered = await ana.say("general", "@alpha look")
            await slack.until(lambda _: stage.found(answered, "Here you are."), 20)
            stopped = await ana.say("general", "@alpha look again")
            await gate.reached.wait()
            await ana.react("general", stopped, "x")
            await slack.until(lambda _: stage.found(stopped, "topped"), 20)
        calls = [entry for entry in slack.record if entry["what"] == "call"]
    refused = {entry["method"] for entry in calls if entry.get("error") == "missing_scope"}
    assert refused == {"users.info", "chat.postMessage"}, "only names of people and of the agent are missing"


@pytest.fixture
async def ask(slack, stage, config_file):
    """Write to a service with the offline demo."""
    demo = "providers: [{module: provider-demo, config: {think_s: 0, word_s: 0}}]"
    config = config_file(f"instances: {{alpha: {{persona: {{name: Alpha, emoji: ':owl:'}}, {demo}}}}}")
    async with stage.serving("--config", str(config)) as service:
        await service.says("service.ready")
        yield lambda text: slack.as_person("ana").say("general", f"@alpha {text}")


async def test_a_retry_is_shown_and_a_message_written_during_it_is_answered(slack, stage, ask):
    ts = await ask("demo: rate limit")
    await slack.until(lambda _: any(RETRY.fullmatch(text) for text in stage.said(ts)))
    steer = await slack.as_person("ana").say("general", "what's in roadmap.md?", thread=ts)
    await slack.until(lambda ws: ws.message("general", steer).reacted("eyes"))
    await slack.until(lambda ws: not ws.message("general", ts).reacted("hourglass_flowing_sand"))
    (answer,) = stage.said(ts)
    assert "While I was working you also wrote" in answer


async def test_a_refusal_of_the_model_is_shown_with_its_explanation(slack, stage, ask):
    ts = await ask("demo: refuse")
    await slack.until(lambda _: stage.found(ts, "The model declined"))
    await slack.until(lambda ws: not ws.message("general", ts).reacted("hourglass_flowing_sand"))
    (notice,) = stage.said(ts)
    assert notice.startswith("⏸️ The model declined this request. Rephrase it, or start a new thread. ")
    assert notice.endswith("Its explanation: “The demo refuses because you asked for it.”")
