"""Sub-agents, from the model's call to their steps in the status message, their messages, and a kill of the process."""

from __future__ import annotations

import json
import signal

import pytest
from anthropic_server import Gate, message, text, tool_call

from orchestrator_interactive.interactions.stores import open_store

FILE = """
instances:
  alpha:
    persona: {name: Alpha, emoji: ":owl:"}
    instructions: You lead.
    tools: [{module: tool-filesystem}, {module: tool-delegate}]
    agents:
      researcher: {description: Finds sources., instructions: You research.}
      writer: {description: Writes., instructions: You write., tools: []}
workspace: {root: files}
store: sqlite:kept.db
"""


def role(body) -> str:
    return next(name for name in ("lead", "research", "write") if f"You {name}" in json.dumps(body["system"]))


def told(body) -> str:
    """The text of the last message of a request."""
    return json.dumps(body["messages"][-1]["content"], ensure_ascii=False)


class Scripts:
    """The answers of each agent, in order; each is a list of blocks, and then `fine`."""

    def __init__(self, model):
        self.model, self.answers = model, {}
        model.otherwise = self._answer

    def of(self, name, *answers):
        self.answers[name] = [list(answer) for answer in answers]

    def _answer(self, body):
        left = self.answers.get(role(body))
        return message(*(left.pop(0) if left else [text("fine")]))

    def asked(self, name):
        return [body for body in self.model.bodies if role(body) == name]


@pytest.fixture
def scripts(model):
    return Scripts(model)


@pytest.fixture
def serve(environment, model_env, config_file):
    path = str(config_file(FILE))
    return lambda: environment.serving("--config", path, **model_env)


class Thread:
    def __init__(self, slack, environment):
        self.slack, self.environment, self.ana = slack, environment, slack.as_person("ana")
        self.channel = slack.channel("general").id

    async def begin(self, service, say="@alpha compare the two"):
        await service.says("service.ready")
        await self.slack.until(lambda ws: ws.bot_online)
        self.root = await self.ana.say("general", say)

    async def say(self, words):
        return await self.ana.say("general", words, thread=self.root)

    async def until_said(self, words):
        return await self.slack.until(lambda _: self.environment.found(self.root, words))

    async def until_shown(self, *parts):
        """Wait until a message of the thread shows all these parts in its blocks."""

        def shown(workspace):
            shown = [json.dumps(each.blocks, ensure_ascii=False) for each in workspace.messages(self.channel)]
            return any(all(part in blocks for part in parts) for blocks in shown)

        await self.slack.until(shown)

    async def until_marked(self, ts, emoji):
        await self.slack.until(lambda ws: any(each.name == emoji for each in ws.message(self.channel, ts).reactions))

    async def answered(self, words="fine"):
        await self.slack.until(lambda _: self.environment.said(self.root)[-1:] == [words])


@pytest.fixture
def thread(slack, environment):
    return Thread(slack, environment)


def delegate(agent, instruction, **more):
    return tool_call("delegate", {"agent": agent, "instruction": instruction, **more})


async def test_two_agents_work_at_once_and_their_answers_reach_the_agent_that_asked(serve, thread, scripts, tmp_path):
    one, two = Gate(), Gate()
    scripts.of("lead", [delegate("researcher", "find A"), delegate("writer", "write B")])
    scripts.of("research", [one, text("A is blue.")])
    scripts.of("write", [two, text("B is red.")])
    async with serve() as service:
        await thread.begin(service)
        await one.reached.wait()
        await two.reached.wait()
        await thread.until_shown("↳ researcher: Thinking…", "↳ writer: Thinking…")
        one.open()
        two.open()
        await thread.answered()
        results = told(scripts.asked("lead")[-1])
        assert "A is blue." in results
        assert "B is red." in results
        assert "session_id researcher-" in results
        assert scripts.asked("write")[0].get("tools") in (None, [])  # the writer has none
        assert await service.ended(signal.SIGTERM) == 0
    store = await open_store(f"sqlite:{tmp_path}/kept.db")
    agents = {key.agent_id for key in await store.keys() if "/" in key.conversation_id}
    await store.aclose()
    assert agents == {"researcher", "writer"}


async def test_a_message_with_its_name_reaches_the_agent_and_no_other(serve, thread, scripts):
    gate = Gate()
    scripts.of("lead", [delegate("researcher", "find A")])
    scripts.of("research", [gate, text("A is blue."), tool_call("list_files", {"path": "."})])
    async with serve() as service:
        await thread.begin(service)
        await gate.reached.wait()
        said = await thread.say("@researcher also check 2024")
        await thread.until_marked(said, "incoming_envelope")
        gate.open()
        await thread.answered()
        await thread.until_marked(said, "eyes")
        assert "also check 2024" in told(scripts.asked("research")[-1])
        assert not any("also check 2024" in json.dumps(body["messages"]) for body in scripts.asked("lead"))
        assert await service.ended(signal.SIGTERM) == 0


async def test_an_agent_continues_from_its_log_after_a_kill(serve, thread, scripts):
    gate = Gate()
    scripts.of("lead", [delegate("researcher", "find A")])
    scripts.of("research", [tool_call("write_file", {"path": "a.md", "content": "blue"})], [gate])
    async with serve() as service:
        await thread.begin(service)
        await gate.reached.wait()
        said = await thread.say("@researcher also check 2024")
        await thread.until_marked(said, "incoming_envelope")
        await service.ended(signal.SIGKILL)
    gate.open()
    scripts.of("research", [text("A is blue, as I have written.")])
    async with serve() as service:
        await thread.answered()
        assert sum("find A" in told(body) for body in scripts.asked("research")) == 1
        assert "A is blue, as I have written." in told(scripts.asked("lead")[-1])
        read = [body for body in scripts.model.bodies if "also check 2024" in told(body)]
        assert len(read) == 1
        assert await service.ended(signal.SIGTERM) == 0


async def test_a_stop_reaches_the_agents(serve, thread, scripts):
    gate = Gate()
    scripts.of("lead", [delegate("researcher", "find A")])
    scripts.of("research", [gate, text("too late")])
    async with serve() as service:
        await thread.begin(service)
        await gate.reached.wait()
        request = scripts.model.requests[-1]
        await thread.say("stop")
        await request.ended.wait()
        await thread.until_said("🛑 Stopped by Ana.")
        assert request.left
        assert await service.ended(signal.SIGTERM) == 0
