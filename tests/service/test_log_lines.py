"""The lines that a service logs about its runs, as JSON."""

from __future__ import annotations

import json

import pytest
from anthropic_server import Gate, text, tool_call

from local_slack import ErrorResponse

MARKER = "zebra-7431"
LOSING_TOOL = """
class Lose:
    name = "lose"
    description = "Fail."
    input_schema = {"type": "object", "properties": {"what": {"type": "string"}}}

    async def execute(self, input):
        raise ValueError(f"cannot find {input['what']}")

async def mount(coordinator, config):
    await coordinator.mount("tools", Lose(), name="lose")
"""


@pytest.fixture
def config(config_file, tmp_path):
    source = tmp_path / "losing.py"
    source.write_text(LOSING_TOOL)
    tools = f"tools: [tool-filesystem, {{module: losing, source: {source}}}]"
    return config_file(f"instances: {{alpha: {{persona: {{name: A, emoji: ':owl:'}}, {tools}}}}}")


async def test_lines_of_a_run_name_it_and_no_line_has_text_of_the_conversation(
    slack, environment, model_env, config, model
):
    gate, ana = Gate(), slack.as_person("ana")
    model.reply(tool_call("write_file", {"path": "a.txt", "content": MARKER}))
    model.reply(tool_call("lose", {"what": MARKER}))
    model.reply(text(f"I found {MARKER}. "), gate, text("All."))
    model.reply(text(f"Blue {MARKER}."))
    model.reply(text(f"I begin {MARKER}. "), Gate())
    model.fail(401, "authentication_error")
    slack.faults.next("reactions.add", ErrorResponse("not_allowed"), times=20)
    async with environment.serving("--config", str(config), **model_env) as service:
        await service.says("service.ready")
        asked = await ana.say("general", f"@alpha look at {MARKER}")
        await slack.until(lambda _: model.requests[2:], 20)
        steered = await ana.say("general", f"and blue {MARKER}", thread=asked)
        await ana.edit("general", steered, f"and light blue {MARKER}")
        await ana.delete("general", await ana.say("general", f"or red {MARKER}", thread=asked))
        gate.open()
        await slack.until(lambda _: environment.found(asked, "Blue"), 20)
        stopped = await ana.say("general", f"@alpha look at {MARKER} again")
        await slack.until(lambda _: model.requests[4:], 20)
        await ana.say("general", "stop", thread=stopped)
        await slack.until(lambda _: environment.found(stopped, "Stopped by"), 20)
        failed = await ana.say("general", f"@alpha and {MARKER} fails")
        await slack.until(lambda _: environment.found(failed, "⚠️"), 20)
        await service.says('"status": "error"')
    assert MARKER not in service.output
    lines = [json.loads(line) for line in service.lines]
    of_runs = [line for line in lines if line["event"] in {"tool.failed", "slack.call_failed", "run.failed"}]
    assert {line["event"] for line in of_runs} == {"tool.failed", "slack.call_failed", "run.failed"}
    assert [line for line in of_runs if not line.keys() >= {"run_id", "conversation", "instance"}] == []
    begun = {line["run_id"]: line["conversation"] for line in lines if line["event"] == "run.started"}
    assert len(set(begun.values())) == 3  # one run each, or a second one for a message that comes late
    assert [line for line in of_runs if begun[line["run_id"]] != line["conversation"]] == []
