"""Tools on the page: a command that people approve, its progress and its denial, the memory, the models, a budget."""

from __future__ import annotations

import pytest
from anthropic_server import message, text, tool_call
from playwright.async_api import expect
from sandboxes import require

pytestmark = pytest.mark.browser

FILE = """
instances:
  alpha:
    persona: {name: Alpha, emoji: ":owl:"}
    instructions: You lead.
    tools:
      - tool-filesystem
      - tool-memory
      - {module: tool-bash, config: {rules: [{command: rm, level: deny}]}}
    hooks:
      - hooks-approval
      - {module: hooks-budget, config: {limits: [{per: person, period: day, tokens: 20000}], output_tokens: 100}}
    providers:
      - {module: provider-anthropic, name: strong, config: {model: claude-strong}}
      - {module: provider-anthropic, name: quick, config: {model: claude-quick}}
"""
COMMAND = "for step in build test; do\n  echo \"$step: ok\"\ndone\nsleep 8\necho 'all < done & shipped'"


@pytest.fixture
async def page(open_page, environment, model, tmp_path):
    require("bubblewrap")
    path = tmp_path / "agents.yaml"
    path.write_text(FILE)
    async with environment.serving("--config", str(path), **model.env) as service:
        await service.says("service.ready")
        yield await open_page(environment.slack.url)


async def test_a_thread_shows_commands_models_memory_and_budgets(page, model):
    answers = [
        message(tool_call("bash", {"command": COMMAND, "description": "Build and package"})),
        message(tool_call("bash", {"command": "ls $(rm -rf /workspace)"})),
        message(text("The package is ready."), usage={"input_tokens": 16_000}),
    ]
    model.otherwise = lambda _: answers.pop(0) if answers else message(text("Fine."), usage={"input_tokens": 4_500})
    await page.write(page.channel, "@alpha ship it")
    question = await page.see(page.thread, "Allow bash?")
    await expect(question).to_contain_text("echo 'all < done & shipped'")
    await expect(question).to_contain_text("sandbox: bubblewrap, network: none")
    await page.screenshot("command-approval")
    await page.by("action-request_choose_0", page.thread).click()
    await page.see(page.thread, "test: ok")
    await page.screenshot("command-progress")
    await page.see(page.thread, "The package is ready.")
    await page.see(page.thread, "💰 75 % of the daily budget")
    for command, answer in {
        "!model": "Models: strong (current), quick.",
        "!model quick": "the model quick answers in this thread",
        "!memory add Releases are on *Tuesdays*.": "Remembered as",
        "!memory forget nothing": "I remember nothing with the id 'nothing' here",
        "!memoy": "Did you mean !memory",
    }.items():
        await page.write(page.thread, command)
        await page.see(page.thread, answer)
    await page.write(page.thread, "and again")
    await page.see(page.thread, "💰 95 % of the daily budget")
    await page.see(page.thread, "Fine.")
    await page.write(page.thread, "once more")
    await page.see(page.thread, "The daily budget of the person who began this (20,000 tokens) is used up.")
    await page.screenshot("tools")
    assert "a rule denies" in str(model.bodies[2]["messages"][-1])
