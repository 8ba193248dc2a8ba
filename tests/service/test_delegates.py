"""Sub-agents, from the model's call to their steps in the status message, their messages, and a kill of the process."""

from __future__ import annotations

import json
import signal

import pytest
from anthropic_server import Gate, text, tool_call
from model_scripts import Scripts, TestThread, told
from service_process import BOTH_PLACES

from orchestrator_interactive.interactions.stores import open_store

FILE = """
instances:
  alpha:
    persona: {name: Alpha, emoji: ":owl:"}
    instructions: You lead.
    tools: [{module: tool-filesystem}, {module: tool-delegate}, {module: tool-ask-user}]
    hooks: [HOOKS]
    agents:
      researcher: {description: Finds sources., instructions: You research.}
      writer: {description: Writes., instructions: You write., tools: []}
workspace: {root: files}
store: sqlite:kept.db
"""


@pytest.fixture
def scripts(model):
    return Scripts(model)


@pytest.fixture
def serve(agents_in, environment, model_env, config_file):
    def serve(hooks=""):
        path = str(config_file(FILE.replace("HOOKS", hooks)))
        return environment.serving("--config", path, **model_env)

    return serve


@pytest.fixture
def thread(slack, environment):
    return TestThread(slack, environment)


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


async def test_the_usage_of_sub_agents_is_that_of_the_run_and_stays_in_its_log(serve, thread, scripts):
    scripts.of("lead", [delegate("researcher", "find A"), delegate("writer", "write B")])
    async with serve() as service:
        await thread.begin(service)
        await thread.answered()
        requests = len(scripts.asked("lead")) + len(scripts.asked("research")) + len(scripts.asked("write"))
        assert requests == 4
        await service.says(f'"input_tokens": {10 * requests}')
        await thread.say("!cost")
        await thread.until_whispered(f"This conversation: {10 * requests} tokens read")


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


@BOTH_PLACES
async def test_a_question_of_an_agent_says_how_to_answer_it(serve, thread, scripts):
    scripts.of("lead", [delegate("researcher", "find A")])
    scripts.of("research", [tool_call("ask_user", {"question": "Which colour?"})], [text("A is blue.")])
    async with serve() as service:
        await thread.begin(service)
        await thread.until_shown("Which colour?", "researcher asks", "or write `@researcher …`")
        await thread.say("@researcher blue")
        await thread.answered()
        await thread.until_shown("Which colour?", "Answered in the thread")
        assert "They answered with a message, which follows." in json.dumps(scripts.asked("research")[-1])
        assert "blue" in told(scripts.asked("research")[-1])
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


async def test_an_edit_and_a_deletion_reach_a_message_that_an_agent_has_not_read(serve, thread, scripts):
    gate = Gate()
    scripts.of("lead", [delegate("researcher", "find A")])
    scripts.of("research", [gate, text("A is blue.")])
    async with serve() as service:
        await thread.begin(service)
        await gate.reached.wait()
        said = [await thread.say(f"@researcher {words}") for words in ("check 2023", "check 2022")]
        for each in said:
            await thread.until_marked(each, "incoming_envelope")
        await thread.ana.edit("general", said[0], "@researcher check 2024")
        await thread.ana.delete("general", said[1])
        await thread.slack.until(lambda ws: ws.message(thread.channel, said[1]) is None)
        gate.open()
        await thread.answered()
        read = told(scripts.asked("research")[-1])
        assert "check 2024" in read
        assert "check 2023" not in read
        assert "check 2022" not in json.dumps([body["messages"] for body in scripts.model.bodies])
        assert await service.ended(signal.SIGTERM) == 0


@BOTH_PLACES
async def test_a_stop_of_an_agent_ends_the_request_of_its_call(serve, thread, scripts):
    gate = Gate()
    scripts.of("lead", [delegate("researcher", "find A"), delegate("writer", "write B")])
    scripts.of("research", [tool_call("write_file", {"path": "a.md", "content": "blue"})])
    scripts.of("write", [gate, text("B is red.")])
    async with serve("hooks-approval") as service:
        await thread.begin(service)
        await gate.reached.wait()
        await thread.until_said("Allow write_file?")
        await thread.say("!stop researcher")
        await thread.until_shown("Allow write_file?", "No longer needed: its call was stopped.")
        gate.open()
        await thread.answered()
        assert await service.ended(signal.SIGTERM) == 0


@BOTH_PLACES
async def test_an_agent_is_stopped_by_its_name_and_the_others_go_on(serve, thread, scripts):
    one, two = Gate(), Gate()
    scripts.of("lead", [delegate("researcher", "find A"), delegate("writer", "write B")])
    scripts.of("research", [one, text("late")])
    scripts.of("write", [two, text("B is red.")])
    async with serve() as service:
        await thread.begin(service)
        await one.reached.wait()
        await two.reached.wait()
        said = await thread.say("@researcher also check 2024")
        await thread.until_marked(said, "incoming_envelope")
        await thread.say("!stop Researcher")
        await thread.until_said("🛑 I am stopping Researcher.")
        await thread.until_marked(said, "eyes")  # by the agent that asked
        two.open()
        await thread.slack.until(lambda _: "B is red." in json.dumps(scripts.asked("lead")[-1]["messages"]))
        assert "cancelled]" in json.dumps(scripts.asked("lead")[-1]["messages"])
        await thread.say("!stop unknown")
        await thread.until_said("No sub-agent or worker unknown is at work here.")
        assert await service.ended(signal.SIGTERM) == 0


async def test_agents_delegate_two_levels_deep_and_no_deeper(serve, thread, scripts):
    scripts.of("lead", [delegate("researcher", "find A")])
    scripts.of("research", [delegate("researcher", "find half of A")], [delegate("self", "a quarter")], [text("half")])
    async with serve() as service:
        await thread.begin(service)
        await thread.answered()
        said = [told(body) for body in scripts.asked("research")]
        assert any("at most 2 levels deep" in each for each in said)
        assert await service.ended(signal.SIGTERM) == 0


async def test_a_new_task_for_an_agent_finds_what_it_did_before(serve, thread, scripts):
    scripts.of("lead", [delegate("researcher", "find A")])
    scripts.of("research", [text("A is blue.")])
    async with serve() as service:
        await thread.begin(service)
        await thread.answered()
        session = json.dumps(scripts.asked("lead")[-1]["messages"]).partition("session_id ")[2].partition(",")[0]
        scripts.of("lead", [tool_call("delegate", {"session_id": session, "instruction": "and its shade?"})])
        scripts.of("research", [text("Light.")])
        await thread.say("which shade?")
        await thread.slack.until(lambda _: thread.environment.said(thread.root).count("fine") == 2)
        assert "A is blue." in json.dumps(scripts.asked("research")[-1]["messages"])
        scripts.of("lead", [tool_call("delegate", {"agent": "stranger", "instruction": "x"})])
        await thread.say("ask a stranger")
        await thread.slack.until(lambda _: thread.environment.said(thread.root).count("fine") == 3)
        assert "There is no agent 'stranger'. Agents: researcher, writer." in told(scripts.asked("lead")[-1])
        assert await service.ended(signal.SIGTERM) == 0
