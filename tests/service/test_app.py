"""The service in its own process, with a local Slack."""

from __future__ import annotations

from anthropic_server import Gate, text
from redis_server import redis_server
from slack_environment import SlackEnvironment

from connector.setup import BOT_EVENTS, BOT_SCOPES
from local_slack import LocalSlack

REQUIRED_SCOPES = {need.name for need in BOT_SCOPES if need.is_required}
EVENTS = {need.name.partition(".")[0] for need in BOT_EVENTS}


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
    assert refused == {"users.info", "chat.postMessage"}, "only names of people and of the agent are missing"
