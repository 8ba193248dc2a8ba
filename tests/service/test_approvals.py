"""Approvals and questions, from the model's call to the click in Slack and back."""

from __future__ import annotations

import json
import signal

import pytest
from anthropic_server import Gate, text, tool_call
from service_process import BOTH_PLACES

from local_slack import SlackRefused

FILE = """
instances:
  alpha:
    persona: {{name: Alpha, emoji: ":owl:"}}
    tools: [{{module: tool-filesystem}}, {{module: tool-ask-user}}]
    hooks: [{{module: hooks-approval, config: {{{options}}}}}]
  beta: {{persona: {{name: Beta, emoji: ":fox_face:"}}}}
workspace: {{root: files}}
store: sqlite:kept.db
audit: audit.jsonl
"""
PLAN = {"path": "plan.md", "content": "# Plan\n- ship it\n"}
NEWS = {"path": "news.md", "content": "none"}
ALLOW, DENY, REASON, ALWAYS = "request_choose_0", "request_choose_1", "request_reason", "request_always"


def results(body) -> str:
    """The text of the last message of a request, its parts joined."""
    return json.dumps(body["messages"][-1]["content"], ensure_ascii=False)


@pytest.fixture
def written(tmp_path):
    """Return the files that the agent has written, by name."""
    return lambda: {path.name: path.read_text() for path in (tmp_path / "files").rglob("*.md")}


@pytest.fixture
def serve(agents_in, environment, model_env, config_file):
    """Serve the instances of `FILE`, with these options of `hooks-approval`."""
    return lambda options="": environment.serving(
        "--config", str(config_file(FILE.format(options=options))), **model_env
    )


class Asker:
    """A thread in which Ana has asked Alpha to do something."""

    def __init__(self, slack, environment):
        self.slack, self._environment = slack, environment
        self.ana, self.ben = slack.as_person("ana"), slack.as_person("ben")

    async def begin(self, service, text="@alpha plan it"):
        await service.says("service.ready")
        await self.slack.until(lambda ws: ws.bot_online)
        self.root = await self.ana.say("general", text)

    async def until_said(self, text):
        return await self.slack.until(lambda _: self._environment.found(self.root, text))

    async def until_shown(self, message, text):
        """Return a message once its blocks contain a text."""

        def shown(workspace):
            found = workspace.message(message.channel, message.ts)
            return found if found and text in json.dumps(found.blocks, ensure_ascii=False) else None

        return await self.slack.until(shown)

    async def until_whispered(self, text):
        channel = self.slack.channel("general").id
        return await self.slack.until(
            lambda ws: next((each for each in ws.whispers(channel) if text in each.text), None)
        )

    async def answered(self, text="fine"):
        await self.slack.until(lambda _: self._environment.said(self.root)[-1:] == [text])

    def said(self):
        return self._environment.said(self.root)


@pytest.fixture
def thread(slack, environment):
    return Asker(slack, environment)


async def test_a_call_waits_for_its_approval_and_then_runs(serve, thread, model, written):
    async with serve() as service:
        model.reply(tool_call("write_file", PLAN))
        await thread.begin(service)
        question = await thread.until_said("Allow write_file?")
        shown = json.dumps(question.blocks)
        assert all(part in shown for part in ("+# Plan", "+- ship it", "It changes or deletes data", "until <!date^"))
        await thread.ben.click("general", question.ts, ALLOW)
        await thread.until_whispered("You may not answer this")
        assert written() == {}
        await thread.ana.click("general", question.ts, ALLOW)
        await thread.answered()
        assert written() == {"plan.md": PLAN["content"]}
        settled = await thread.until_shown(question, "✅ Ana allowed it")
        assert "actions" not in [block["type"] for block in settled.blocks]
        assert await service.ended(signal.SIGTERM) == 0


async def test_commands_name_the_owner_of_a_run_again_and_not_the_author_of_its_message(serve, thread, model):
    async with serve() as service:
        await thread.begin(service)
        await thread.answered()
        await thread.ben.say("general", "@alpha and then?", thread=thread.root)
        await thread.slack.until(lambda _: thread.said() == ["fine", "fine"])
        model.reply(tool_call("write_file", PLAN))
        first = await thread.until_said("fine")
        await thread.ben.react("general", first.ts, "repeat")
        await thread.until_said("Allow write_file?")
        for command, shown in (("!approvals", "{} may answer until"), ("!status", "of {} runs since")):
            await thread.ana.say("general", command, thread=thread.root)
            await thread.until_whispered(shown.format(f"<@{thread.ben.person.id}>"))
        assert await service.ended(signal.SIGTERM) == 0


async def test_the_model_reads_why_a_person_denies_a_call(serve, thread, model, written):
    async with serve() as service:
        model.reply(tool_call("write_file", PLAN))
        await thread.begin(service)
        question = await thread.until_said("Allow write_file?")
        await thread.ana.click("general", question.ts, REASON)
        await thread.slack.until(lambda ws: ws.views.modal(thread.ana.person.id))
        await thread.ana.submit(request_text="not on a friday")
        await thread.answered()
        assert "Denied: Ana denied it, and says: not on a friday" in results(model.bodies[-1])
        await thread.until_shown(question, "⛔ Ana denied it")
        assert written() == {}
        assert await service.ended(signal.SIGTERM) == 0


@BOTH_PLACES
@pytest.mark.parametrize("consent", ["ok", "yes, allow it", "Allow", "approve", "✅", "I approve write_file", "!allow"])
async def test_no_text_approves_and_messages_are_read_while_a_call_waits(serve, thread, model, written, consent):
    async with serve() as service:
        model.reply(tool_call("write_file", PLAN))
        model.reply(text("I wait for a click."))
        await thread.begin(service)
        question = await thread.until_said("Allow write_file?")
        await thread.until_said("Waiting for your answer: Allow write_file?")
        await thread.ana.say("general", consent, thread=thread.root)
        await thread.until_said("I wait for a click.")
        assert consent in results(model.bodies[-1])
        assert written() == {}
        await thread.ana.click("general", question.ts, ALLOW)
        await thread.answered()
        assert "Wrote plan.md" in results(model.bodies[-1])
        assert await service.ended(signal.SIGTERM) == 0


@BOTH_PLACES
async def test_a_stop_ends_the_wait_and_the_buttons(serve, thread, model, written):
    async with serve() as service:
        model.reply(tool_call("write_file", PLAN))
        await thread.begin(service)
        question = await thread.until_said("Allow write_file?")
        await thread.ana.say("general", "stop", thread=thread.root)
        await thread.until_said("🛑 Stopped by Ana. Not done: Writing plan.md.")
        await thread.until_shown(question, "No longer needed")
        with pytest.raises(SlackRefused, match="no_such_action"):
            await thread.ana.click("general", question.ts, ALLOW)
        assert written() == {}
        assert await service.ended(signal.SIGTERM) == 0


async def test_nobody_answers_in_time(serve, thread, model, written):
    async with serve("deadline_s: 0.5") as service:
        model.reply(tool_call("write_file", PLAN))
        await thread.begin(service)
        question = await thread.until_said("Allow write_file?")
        await thread.answered()
        assert "Denied: No one answered in time" in results(model.bodies[-1])
        await thread.until_shown(question, "⌛ No one answered in time. Deny")
        assert written() == {}
        assert await service.ended(signal.SIGTERM) == 0


@BOTH_PLACES
async def test_always_allow_makes_a_rule_for_the_conversation(serve, thread, model, written):
    async with serve() as service:
        model.reply(tool_call("write_file", PLAN))
        model.reply(tool_call("write_file", NEWS))
        await thread.begin(service)
        question = await thread.until_said("Allow write_file?")
        menu = next(each for each in question.blocks[-1]["elements"] if each["action_id"] == ALWAYS)
        await thread.ana.click("general", question.ts, ALWAYS, menu["options"][0]["value"])
        await thread.answered()
        assert written() == {"plan.md": PLAN["content"], "news.md": "none"}
        assert thread.said().count("✋ Allow write_file?") == 1
        await thread.until_shown(question, "allowed it, in this conversation")
        model.reply(tool_call("write_file", PLAN))
        await thread.ana.say("general", "@alpha again, elsewhere")
        await thread.slack.until(
            lambda ws: (
                len([m for m in ws.messages(thread.slack.channel("general").id) if "Allow write_file?" in m.text]) == 2
            )
        )
        assert await service.ended(signal.SIGTERM) == 0


async def test_two_people_have_to_allow_what_a_rule_names(serve, thread, model, written):
    rules = "approvers: anyone, rules: [{tool: write_file, arguments: {path: plan}, level: ask-two, name: plans}]"
    async with serve(rules) as service:
        model.reply(tool_call("write_file", PLAN))
        await thread.begin(service)
        question = await thread.until_said("Allow write_file?")
        await thread.ana.click("general", question.ts, ALLOW)
        await thread.until_shown(question, "1 of 2 have allowed it")
        await thread.ana.click("general", question.ts, ALLOW)
        await thread.until_whispered("One more person must allow it")
        assert written() == {}
        await thread.ben.click("general", question.ts, ALLOW)
        await thread.answered()
        await thread.until_shown(question, "✅ Ana and Ben allowed it")
        assert written() == {"plan.md": PLAN["content"]}
        assert await service.ended(signal.SIGTERM) == 0


@BOTH_PLACES
@pytest.mark.parametrize("ending", [signal.SIGKILL, signal.SIGTERM], ids=["kill", "redeploy"])
@pytest.mark.parametrize("is_postponed", [False, True], ids=["waiting", "postponed"])
async def test_an_approval_survives_the_process_and_its_call_runs_once(  # noqa: PLR0917 - fixtures
    serve, thread, model, written, ending, is_postponed
):
    async with serve() as service:
        model.reply(text("I write it."), tool_call("write_file", PLAN))
        await thread.begin(service)
        question = await thread.until_said("Allow write_file?")
        if is_postponed:
            model.reply(text("I wait."))
            await thread.ana.say("general", "hurry", thread=thread.root)
            await thread.until_said("I wait.")
        await thread.until_said("Waiting for your answer")
        code = await service.ended(ending)
        assert code == (-ending if ending is signal.SIGKILL else 0)
    async with serve() as service:
        await service.says("run.taken_over")
        await thread.slack.until(lambda ws: ws.bot_online)
        assert written() == {}
        await thread.ana.click("general", question.ts, ALLOW)
        await thread.answered()
        assert written() == {"plan.md": PLAN["content"]}
        assert thread.said().count("✋ Allow write_file?") == 1
        assert "Wrote plan.md" in results(model.bodies[-1])
        assert not any("outcome is unknown" in json.dumps(body) for body in model.bodies)
        assert await service.ended(signal.SIGTERM) == 0


@BOTH_PLACES
async def test_a_question_is_answered_by_a_button_or_a_reply_and_survives_a_kill(serve, thread, model):
    async with serve() as service:
        question = {"question": "Which database?", "options": ["Postgres", "SQLite <b>"]}
        model.reply(tool_call("ask_user", question))
        model.reply(tool_call("ask_user", {"question": "And when?"}))
        await thread.begin(service)
        asked = await thread.until_said("Which database?")
        assert await service.ended(signal.SIGKILL) == -signal.SIGKILL
    async with serve() as service:
        await service.says("run.taken_over")
        await thread.slack.until(lambda ws: ws.bot_online)
        await thread.ana.click("general", asked.ts, "request_choose_1")
        when = await thread.until_said("And when?")
        await thread.until_shown(asked, "Ana: SQLite")  # during the run
        assert "Ana answered: SQLite <b>" in results(model.bodies[-1])
        await thread.ana.say("general", "tomorrow", thread=thread.root)
        await thread.answered()
        read = results(model.bodies[-1])
        assert "They answered with a message, which follows." in json.dumps(model.bodies[-1])
        assert "tomorrow" in read
        await thread.until_shown(when, "Answered in the thread")
        assert thread.said().count("❓ Which database?") == 1
        assert await service.ended(signal.SIGTERM) == 0


@BOTH_PLACES
async def test_a_reply_that_is_written_while_the_service_is_down_answers_the_question(serve, thread, model):
    async with serve() as service:
        model.reply(tool_call("ask_user", {"question": "Which colour?"}))
        await thread.begin(service)
        asked = await thread.until_said("Which colour?")
        await thread.until_said("Waiting for your answer")
        assert await service.ended(signal.SIGTERM) == 0
    await thread.ana.say("general", "blue", thread=thread.root)
    async with serve() as service:
        await thread.answered()
        await thread.until_shown(asked, "Answered in the thread")
        assert "They answered with a message, which follows." in json.dumps(model.bodies[-1])
        assert "blue" in results(model.bodies[-1])
        assert await service.ended(signal.SIGTERM) == 0


async def test_several_options_and_a_private_question(serve, thread, model):
    async with serve() as service:
        many = {"question": "Which days?", "options": ["Mo", "Tu", "We"], "multiple": True}
        model.reply(tool_call("ask_user", many))
        model.reply(tool_call("ask_user", {"question": "Your salary?", "private_to": thread.ben.person.id}))
        await thread.begin(service)
        asked = await thread.until_said("Which days?")
        await thread.ana.click("general", asked.ts, "request_send")
        await thread.until_whispered("Choose an option first.")
        await thread.ana.click("general", asked.ts, "request_send", request_options=["0", "2"])
        whisper = await thread.until_whispered("Your salary?")
        assert "Ana answered: Mo, We" in results(model.bodies[-1])
        await thread.until_said("Waiting for your answer: a private question")
        await thread.ana.say("general", "!approvals", thread=thread.root)
        await thread.until_whispered("Nothing waits for an answer here.")
        await thread.ben.click("general", whisper.ts, "request_write")
        await thread.slack.until(lambda _: thread.ben.modal)
        await thread.ben.submit(request_text="none of your business")
        await thread.answered()
        assert "Ben answered: none of your business" in results(model.bodies[-1])
        public = [each for each in thread.slack.record if each.get("method") in {"chat.postMessage", "chat.update"}]
        assert "Waiting for your answer: a private question" in str(public)
        assert "salary" not in str(public)
        assert await service.ended(signal.SIGTERM) == 0


async def test_every_decision_is_in_the_log_and_the_audit(serve, thread, model, tmp_path):
    held = Gate()
    async with serve() as service:
        model.reply(tool_call("list_files", {}), tool_call("write_file", PLAN))
        model.reply(text("Done. ", held))
        await thread.begin(service)
        question = await thread.until_said("Allow write_file?")
        await thread.ana.click("general", question.ts, DENY)
        await held.reached.wait()
        held.open()
        await thread.answered("Done.")
        assert await service.ended(signal.SIGTERM) == 0
    entries = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    (answer,) = (each["fields"] for each in entries if each["kind"] == "request.answered")
    assert (answer["title"], answer["by"], answer["chosen"]) == ("Allow write_file?", ["U0ANA"], ["Deny"])
