"""The metrics of a service that works in a workspace, over HTTP."""

from __future__ import annotations

from anthropic_server import Gate, text, tool_call
from observed import counted, scraped

from service.observe.metrics import Metrics

MODEL = "claude-of-the-test"


async def test_a_conversation_is_counted_and_no_label_names_a_person_or_a_channel(
    slack, environment, model, model_env, free_port
):
    gate, ana = Gate(), slack.as_person("ana")
    model.reply(tool_call("list_files", {}))
    model.reply(text("Look: "), gate, text("done."))
    model.reply(text("And blue."))
    model.reply(text("I begin. "), Gate())
    async with environment.serving(**model_env, AMPLIFIER_SLACK_OBSERVE=f"127.0.0.1:{free_port}") as service:
        await service.says("service.ready")
        asked = await ana.say("general", "@alpha look")
        await slack.until(lambda _: model.requests[1:], 20)
        at_work = await scraped(free_port)
        await ana.say("general", "and blue", thread=asked)
        gate.open()
        await slack.until(lambda _: environment.found(asked, "And blue."), 20)
        stopped = await ana.say("general", "@alpha look again")
        await slack.until(lambda _: model.requests[3:], 20)
        await ana.say("general", "stop", thread=stopped)
        await slack.until(lambda _: environment.found(stopped, "Stopped by"), 20)
        samples = await counted(free_port, "runs_total", "alpha", "cancelled")
    assert (at_work["runs_active", "alpha"], at_work["inbox_depth",]) == (1, 1)
    expected = {
        ("runs_active", "alpha"): 0,
        ("runs_waiting",): 0,
        ("runs_total", "alpha", "success"): 1,
        ("run_seconds_count", "alpha"): 2,
        ("turns_total", "alpha"): 3,
        ("messages_total", "delivered"): 3,
        ("stops_total", "word"): 1,
        ("tool_seconds_count", "finished", "list_files"): 1,
        ("tokens_total", "input", MODEL): 40,
        ("tokens_total", "output", MODEL): 16,  # with those of the answer that was stopped
        ("leases_total", "taken"): 2,
        ("inbox_depth",): 0,
    }
    assert {sample: samples.get(sample) for sample in expected} == expected
    assert samples["cost_dollars_total", MODEL] > 0
    assert samples["slack_calls_total", "chat.postMessage", "ok"] >= 3
    assert 0 < samples["rate_budget_left", "chat.postMessage"] <= 30
    assert samples["process_resident_memory_bytes",] > 0
    ids = (slack.team_id, slack.channel("general").id, slack.person("ana").id, asked, stopped)
    assert [label for _, *labels in samples for label in labels if any(each in label for each in ids)] == []


async def test_a_run_that_another_process_resumes_is_counted_as_taken_over(
    slack, environment, model, model_env, free_port
):
    model.reply(text("I begin. "), Gate())
    model.reply(text("I have resumed."))
    async with environment.serving(**model_env) as first:
        await first.says("service.ready")
        asked = await slack.as_person("ana").say("general", "@alpha look")
        await slack.until(lambda _: model.requests, 20)
        first.process.kill()
    async with environment.serving(**model_env, AMPLIFIER_SLACK_OBSERVE=f"127.0.0.1:{free_port}") as second:
        await second.says("service.ready")
        await slack.until(lambda _: environment.found(asked, "I have resumed."), 30)
        samples = await counted(free_port, "runs_total", "alpha", "success")
    assert (samples["leases_total", "taken_over"], samples["turns_total", "alpha"]) == (1, 1)
    assert samples["tokens_total", "output", MODEL] == 5  # the first process has counted its own


def test_names_that_a_model_invents_do_not_add_labels_without_bound():
    metrics = Metrics(("alpha",))
    for number in range(500):
        metrics.tool(f"tool-{number}", "failed", 0.1)
    (family,) = (family for family in metrics.registry.collect() if family.name == "amplifier_slack_tool_seconds")
    tools = {sample.labels["tool"] for sample in family.samples}
    assert (len(tools), "other" in tools) == (101, True)
