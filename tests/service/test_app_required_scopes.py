"""The service in a workspace that has granted those scopes of the manifest that are required, and no other."""

from __future__ import annotations

from anthropic_server import AnthropicServer, Gate, text
from slack_environment import SlackEnvironment

from connector.setup.scopes import BOT_EVENTS, BOT_SCOPES
from local_slack import LocalSlack

REQUIRED = {need.name for need in BOT_SCOPES if need.is_required}
EVENTS = {need.name.partition(".")[0] for need in BOT_EVENTS}


async def test_with_what_is_required_people_are_answered_and_runs_are_stopped(tmp_path):
    async with LocalSlack(scopes=REQUIRED, events=EVENTS) as slack, AnthropicServer() as model:
        stage, gate = SlackEnvironment.of(slack, tmp_path), Gate()
        model.reply(text("Here you are."))
        model.reply(text("I begin. "), gate, text("And end."))
        env = {"ANTHROPIC_API_KEY": "sk-ant-of-the-test", "ANTHROPIC_BASE_URL": model.base_url}
        async with stage.serving(**env) as service:
            await service.says("service.ready")
            ana = slack.as_person("ana")
            answered = await ana.say("general", "@alpha look")
            await slack.until(lambda _: stage.found(answered, "Here you are."), 20)
            stopped = await ana.say("general", "@alpha look again")
            await gate.reached.wait()
            await ana.react("general", stopped, "x")
            await slack.until(lambda _: stage.found(stopped, "topped"), 20)
        refused = {(entry["method"], entry.get("error")) for entry in slack.record if entry["what"] == "call"}
    missing = {method for method, error in refused if error == "missing_scope"}
    assert missing == {"users.info", "chat.postMessage"}, "there are no names, neither people's nor the agent's own"
