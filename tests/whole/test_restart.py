"""A service that is started again goes on where its threads stood."""

from __future__ import annotations

import asyncio
import signal
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest
from anthropic_server import AnthropicServer, Gate, text, thinking, tool_call
from click.testing import CliRunner
from imitations import messages_in, user_texts
from in_process_service import serving_in_process
from playwright.async_api import expect
from service_process import Serving
from slack_environment import SlackEnvironment
from tool_gate import GATED_TOOL, ToolGate

from service.cli.main import main
from service.config.config import load_config

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from local_slack import Message, PersonClient

CONFIG = """
instances:
  alpha:
    persona: {{name: Alpha, emoji: ":owl:"}}
    tools: [tool-filesystem, {{module: gated-tool, source: {tool}, config: {{port: {port}}}}}]
  beta:
    persona: {{name: Beta, emoji: ":fox_face:"}}
store: sqlite:conversations.db
workspace: {{root: files}}
"""


@dataclass
class Thread:
    """What Ana and the bot say in #general, while services come and go."""

    stage: SlackEnvironment
    model: AnthropicServer
    tests: ToolGate
    config: Path
    root: str = ""
    asked: str = ""

    @property
    def ana(self) -> PersonClient:
        return self.stage.slack.as_person("ana")

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[Serving]:
        env = {"ANTHROPIC_API_KEY": "sk-ant-of-the-test", "ANTHROPIC_BASE_URL": self.model.base_url}
        async with self.stage.serving("--config", str(self.config), **env) as service:
            await service.says("service.ready")
            await self.stage.slack.until(lambda ws: ws.bot_online)
            yield service

    @asynccontextmanager
    async def alive(self) -> AsyncIterator[None]:
        """What `serving` has, in this process: that is quicker."""
        async with serving_in_process(self.stage.slack, load_config(self.config)):
            yield
        await self.stage.slack.until(lambda ws: not ws.bot_online)

    async def say(self, words: str) -> str:
        """Write to the thread, or begin it."""
        ts = await self.ana.say("general", words, thread=self.root or None)
        self.root, self.asked = self.root or ts, ts
        return ts

    async def hears(self, words: str) -> Message:
        """Wait until the bot has said this, and the run that says it is over."""
        message = await self.stage.slack.until(lambda _: self.stage.found(self.root, words))
        await self.stage.slack.until(lambda ws: not ws.message("general", self.asked).reacted("hourglass_flowing_sand"))
        return message

    async def command(self, *arguments: str) -> str:
        """What a command says of the conversations."""
        words = ["conversations", *arguments, "--config", str(self.config)]
        result = await asyncio.to_thread(CliRunner().invoke, main, words)
        assert result.exit_code == 0, result.output
        return result.output


@pytest.fixture
async def thread(
    stage: SlackEnvironment, model: AnthropicServer, tests_at_work: ToolGate, tmp_path: Path, monkeypatch
) -> Thread:
    monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-of-the-test")
    monkeypatch.setenv("ANTHROPIC_BASE_URL", model.base_url)
    monkeypatch.delenv("AMPLIFIER_SLACK_STORE", raising=False)
    config = tmp_path / "agents.yaml"
    config.write_text(CONFIG.format(tool=GATED_TOOL, port=tests_at_work.port))
    return Thread(stage, model, tests_at_work, config)


def asked(body: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages of a request, without the marks of the prompt cache."""
    return [
        {**m, "content": [{k: v for k, v in block.items() if k != "cache_control"} for block in m["content"]]}
        for m in body["messages"]
    ]


def said_by_user(body: dict[str, Any]) -> list[str]:
    return [each.text for each in messages_in(user_texts(body))]


async def test_a_reply_after_a_restart_is_answered_with_all_that_was_said_and_done_before(thread, model, tmp_path):
    model.reply(thinking("a note, then"), tool_call("write_file", {"path": "a.md", "content": "kept"}))
    model.reply(text("Noted."))
    async with thread.serving() as service:
        await thread.say("@alpha note it")
        await thread.hears("Noted.")
        assert await service.ended(signal.SIGTERM) == 0
    model.reply(tool_call("read_file", {"path": "a.md"}))
    model.reply(text("It says: kept."))
    async with thread.serving():
        await thread.say("what does the note say?")
        await thread.hears("It says: kept.")

    before, after, last = (asked(body) for body in model.bodies[1:])
    assert after[: len(before)] == before, "thinking, signature, call and result, each as it was"
    assert [m["role"] for m in after[len(before) :]] == ["assistant", "user"]
    assert said_by_user(model.bodies[2])[-1] == "what does the note say?"
    assert "kept" in str(last[-1]["content"]), "the folder of the conversation is the same one"
    assert model.bodies[2]["system"] == model.bodies[1]["system"]


@pytest.mark.browser
async def test_a_person_goes_on_in_the_thread_after_a_restart_and_the_conversation_is_a_page(
    thread, model, stage_seat, tmp_path
):
    seat = stage_seat
    model.reply(thinking("The notes come first."), tool_call("write_file", {"path": "plan.md", "content": "# Plan\n"}))
    model.reply(text("I have begun a *plan* in `plan.md`:\n\n- roadmap\n- budget"))
    model.reply(text("Two points: the roadmap and the budget."))
    async with thread.serving() as service:
        await seat.write(seat.channel, "@alpha begin a plan")
        await seat.see(seat.thread, "I have begun a")
        await seat.see_reaction(seat.channel, "begin a plan", "hourglass_flowing_sand", gone=True)
        assert await service.ended(signal.SIGTERM) == 0
    async with thread.serving():
        await seat.write(seat.thread, "what is in it?")
        await seat.see(seat.thread, "Two points: the roadmap and the budget.")
        await seat.picture("10-after-a-restart")
    page = tmp_path / "conversation.html"
    await thread.command("export", "C0GENERAL", "--format", "html", "--output", str(page))
    await seat.page.goto(page.as_uri())
    for said in ("begin a plan", "The notes come first.", "write_file", "what is in it?", "Two points: the roadmap"):
        await expect(seat.page.get_by_text(said).first).to_be_attached()
    await seat.picture("11-conversation-as-a-page")


async def test_a_run_after_a_restart_can_be_steered_and_stopped(thread, model):
    model.reply(text("Hello."))
    async with thread.alive():
        await thread.say("@alpha hello")
        await thread.hears("Hello.")
    half = Gate()
    model.reply(text("I begin ", half), tool_call("run_tests", {}))
    async with thread.alive():
        await thread.say("run the tests")
        await half.reached.wait()
        steer = await thread.say("the slow ones, too")
        await thread.stage.slack.until(lambda ws: ws.message("general", steer).reacted("incoming_envelope"))
        half.open()
        await thread.tests.reached.wait()
        await thread.say("stop")
        await thread.hears("🛑 Stopped by Ana. Outcome unknown: Running the tests.")
        model.reply(text("Both, then."))
        await thread.say("go on")
        await thread.hears("Both, then.")
    assert "the slow ones, too" in str(model.bodies[-1]["messages"])


async def test_a_thread_goes_on_with_the_instance_that_spoke_last_in_it(thread, model):
    for name in ("alpha", "beta"):
        model.reply(text(f"I am {name}."))
    async with thread.alive():
        await thread.say("@alpha who are you?")
        await thread.hears("I am alpha.")
        await thread.say("beta: and you?")
        await thread.hears("I am beta.")
    model.reply(text("Beta, still."))
    async with thread.alive():
        await thread.say("who was that?")
        assert (await thread.hears("Beta, still.")).username == "Beta"
    assert said_by_user(model.bodies[-1]) == ["and you?", "who was that?"], "each has a log of its own"


async def test_what_a_killed_service_was_at_is_told_before_the_thread_goes_on(thread, model):
    model.reply(text("The tests first."), tool_call("run_tests", {}, call_id="toolu_1"))
    async with thread.serving() as service:
        await thread.say("@alpha check it")
        await thread.tests.reached.wait()
        assert await service.ended(signal.SIGKILL) == -signal.SIGKILL
    model.reply(text("I do not know what came of the tests."))
    model.reply(text("Nothing else."))
    async with thread.serving():
        await thread.hears("I do not know what came of the tests.")
        await thread.say("and?")
        await thread.hears("Nothing else.")
    assert thread.stage.said(thread.root) == [
        (
            "🔁 I was interrupted and have resumed. Outcome unknown: Running the tests. "
            "Check whether it is done before you ask for it again."
        ),
        "I do not know what came of the tests.",
        "Nothing else.",
    ]
    first, call, result, *_ = asked(model.bodies[-1])
    assert first["content"][-1]["text"] == "Ana (U0ANA): check it"
    assert [block["type"] for block in call["content"]] == ["text", "tool_use"]
    assert (result["content"][0]["tool_use_id"], result["content"][0]["is_error"]) == ("toolu_1", True)


async def test_a_conversation_that_was_rewound_while_it_rested_goes_on_from_there(thread, model):
    for answer in ("One.", "Two.", "Three, after one."):
        model.reply(text(answer))
    async with thread.alive():
        await thread.say("@alpha one")
        await thread.hears("One.")
        await thread.say("two")
        await thread.hears("Two.")
        rewound = await thread.command("rewind", thread.root, "1")
        await thread.say("three")
        await thread.hears("Three, after one.")
        assert said_by_user(model.bodies[-1]) == ["one", "three"]

        undo = rewound.split("To undo this:")[1].split()
        await thread.command(*undo[2 : undo.index("--config")])
        model.reply(text("Four, after two."))
        await thread.say("four")
        await thread.hears("Four, after two.")
        assert said_by_user(model.bodies[-1]) == ["one", "two", "four"]


async def test_a_run_whose_conversation_is_rewound_meanwhile_ends_and_says_so(thread, model):
    model.reply(text("One."))
    model.reply(tool_call("run_tests", {}))
    async with thread.alive():
        await thread.say("@alpha one")
        await thread.hears("One.")
        await thread.say("run the tests")
        await thread.tests.reached.wait()
        await thread.command("rewind", thread.root, "1")
        thread.tests.open()
        await thread.hears("Another program changed this conversation, so I stopped.")
        model.reply(text("From one, then."))
        await thread.say("go on")
        await thread.hears("From one, then.")
    assert said_by_user(model.bodies[-1]) == ["one", "go on"]
