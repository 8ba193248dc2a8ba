"""Actions on a message: ask an agent about it, and summarise its thread."""

from __future__ import annotations

from dataclasses import replace

import pytest
from chat import ALPHA, ENVELOPE, Thread

from connector import Participation, RunLimits
from connector.inbound.access_policy import AccessRules
from connector.protocols import SlackOptions
from connector.setup import BOT_SCOPES, manifest
from connector.texts import SUMMARISE, SUMMARISE_QUOTED
from local_slack import DropAfterCall, ErrorResponse, LocalSlack


@pytest.fixture
async def slack():
    """A workspace in which the bot is no member of #random."""
    scopes = [each.name for each in BOT_SCOPES]
    made = manifest(["Alpha", "Beta"])
    async with LocalSlack(apps=("pager",), manifest=made, bot_channels=("general",), scopes=scopes) as slack:
        yield slack


async def choose(chat, kind: str, ts: str, channel: str = "general", who: str = "ana") -> None:
    person = chat.slack.as_person(who)
    await person.shortcut(kind, chat.slack.workspace.channel(channel).id, ts)
    await chat.slack.until(lambda _: person.modal)


async def ask(chat, ts: str, question: str, channel: str = "general", who: str = "ana", **values: str) -> None:
    await choose(chat, "ask", ts, channel, who)
    await chat.slack.as_person(who).submit(ask_question=question, **values)


async def in_dm(chat, part: str, who: str = "ana"):
    """Wait for a message of the bot in the direct messages of a person."""
    dm = await chat.slack.as_person(who).open_dm("alpha")
    return await chat.slack.until(lambda ws: next((m for m in ws.messages(dm) if m.by_bot and part in m.text), None))


def shown(chat, who: str = "ana") -> str:
    return str(chat.slack.as_person(who).modal.content["blocks"])


async def test_a_question_about_a_message_is_asked_in_its_thread_with_the_message_quoted(chat):
    thread = Thread(chat, await chat.ben.say("general", "Deploy is &lt;red&gt; &amp; late"))
    await ask(chat, thread.ts, "Why so *late*?")
    await thread.next_run()
    ana, ben = (chat.slack.person(who).id for who in ("ana", "ben"))
    assert thread.run.author.id == ana
    assert thread.run.conversation == f"T0LOCAL:{chat.general}:{thread.ts}"
    assert thread.run.prompt.startswith("Why so *late*?\n\nForwarded message of @")
    assert ben in thread.run.prompt
    assert "> Deploy is <red> & late" in thread.run.prompt
    await thread.run.answer("Because.")
    line = f"💬 <@{ana}>: Why so *late*?"
    await thread.shows(line, "Because.")
    await thread.say("and now?")  # by the question, Ana takes part in the thread
    await thread.next_run()
    assert thread.run.prompt == "and now?"


async def test_the_form_quotes_the_message_shortened_and_escaped(chat):
    thread = await chat.say(f"&lt;b&gt; {'x' * 1000}")
    await choose(chat, "ask", thread.ts)
    (quote, *_), view = chat.ana.modal.content["blocks"], chat.ana.modal.content
    assert quote["text"]["text"].startswith(">&lt;b&gt; xxx")
    assert len(quote["text"]["text"]) < 400
    assert view["submit"]["text"] == "Ask"


@pytest.mark.parametrize(("chosen", "expected"), [("beta", "beta"), (None, "alpha")])
async def test_the_form_offers_the_agents_with_the_one_of_the_channel_first(chat, chosen, expected):
    thread = await chat.say("look")
    await ask(chat, thread.ts, "who are you?", **({"ask_instance": chosen} if chosen else {}))
    await thread.next_run()
    assert thread.run.instance == expected


async def test_the_only_agent_is_not_offered_for_choice(process):
    async with process(ALPHA) as chat:
        thread = await chat.say("look")
        await choose(chat, "ask", thread.ts)
        assert "static_select" not in shown(chat)


async def test_a_question_during_a_run_reaches_the_run(chat):
    thread = await chat.start()
    await ask(chat, thread.ts, "is it red?")
    await thread.run.until(lambda run: any(text.startswith("is it red?") for text in run.texts))


async def test_a_stop_word_as_the_question_stops_the_run(chat):
    thread = await chat.start()
    await ask(chat, thread.ts, "stop")
    await thread.run.stopped()


async def test_only_the_owner_steers_a_run_by_a_question_where_the_policy_is_so(process):
    async with process(replace(ALPHA, participation=Participation(steerers="owner"))) as chat:
        thread = await chat.start()
        await ask(chat, thread.ts, "from ben", who="ben")
        line = await thread.contains("from ben")
        await thread.marked(line.ts, ENVELOPE)
        await ask(chat, thread.ts, "from ana")
        await thread.run.until(lambda run: any(text.startswith("from ana") for text in run.texts))
        assert not any("from ben" in text for text in thread.run.texts)


async def test_a_question_waits_for_a_run_slot_of_its_author(process):
    async with process(limits=RunLimits(runs_per_person=1)) as chat:
        busy, thread = await chat.start(), await chat.say("look")
        await ask(chat, thread.ts, "why?")
        await thread.contains("⏳ Waiting, position 1 in the queue: 1 run of yours is active.")
        await busy.run.answer("done")
        await thread.next_run()
        assert thread.run.prompt.startswith("why?")


async def test_a_muted_thread_answers_the_question(chat):
    thread = await chat.start()
    await thread.run.answer("ok")
    await thread.say("!mute")
    await thread.contains("🔇")
    await ask(chat, thread.ts, "still there?")
    await thread.next_run()
    assert thread.run.prompt.startswith("still there?")


async def test_a_file_without_text_is_quoted_by_its_name(chat):
    await chat.ana.snippet("general", "notes.py", "print(1)")
    message = await chat.slack.until(lambda ws: next((m for m in ws.messages(chat.general)), None))
    await ask(chat, message.ts, "  ")
    run = await chat.sessions.next_run()
    assert run.prompt.startswith("Look at this message.")
    assert "notes.py" in run.prompt


async def test_a_very_long_question_is_read_whole_and_shown_short(chat):
    thread = await chat.say("look")
    question = "why? " * 599 + "end"
    await ask(chat, thread.ts, question)
    await thread.next_run()
    assert question in thread.run.prompt
    assert len((await thread.contains("💬")).text) < 1100


@pytest.mark.parametrize("kind", ["ask", "summarise"])
async def test_a_refused_person_reads_the_reason_in_the_form(process, kind):
    async with process(policy=AccessRules(users=frozenset({"U0BEN"}))) as chat:
        thread = await chat.say("look")
        await choose(chat, kind, thread.ts)
        assert "my operator allows only certain people" in shown(chat)
        assert "submit" not in chat.ana.modal.content


async def test_a_person_refused_after_the_form_opened_reads_the_reason(process):
    allowed, none = AccessRules(), AccessRules(users=frozenset({"U0BEN"}))
    async with process(policy=allowed) as chat:
        thread = await chat.say("look")
        await choose(chat, "ask", thread.ts)
    async with process(policy=none) as chat:
        await chat.ana.submit(ask_question="why?")
        said = await chat.slack.until(lambda ws: ws.whispers(chat.general))
        assert "my operator allows only certain people" in said[0].text
        assert thread.posts == []


@pytest.mark.parametrize("kind", ["ask", "summarise"])
async def test_a_channel_without_the_bot_is_named_in_a_direct_message(chat, kind):
    ts = await chat.ana.say("random", "look")
    await choose(chat, kind, ts, "random")
    await chat.ana.submit(**({"ask_question": "why?"} if kind == "ask" else {}))
    assert "Invite me, then choose the action again." in (await in_dm(chat, "I did not ask that in")).text
    await chat.acknowledged()
    assert chat.sessions.idle


async def test_direct_messages_of_others_are_not_read(chat):
    dm = await chat.ana.open_dm("ben")
    ts = await chat.ana.dm("ben", "a secret")
    await choose(chat, "ask", ts, dm)
    await chat.ana.submit(ask_question="why?")
    await in_dm(chat, "Forward the message to me instead.")


async def test_a_deleted_message_is_named_in_a_direct_message(chat):
    thread = await chat.say("look")
    await choose(chat, "ask", thread.ts)
    await thread.delete(thread.ts)
    await chat.ana.submit(ask_question="why?")
    await in_dm(chat, "Slack no longer has that message.")


@pytest.mark.parametrize("channel", ["general", "random"])
async def test_an_expired_trigger_is_told_to_the_person(chat, channel):
    ts = await chat.ana.say(channel, "look")
    chat.fail("views.open", ErrorResponse("expired_trigger_id"))
    await chat.ana.shortcut("ask", chat.slack.workspace.channel(channel).id, ts)
    if channel == "random":
        await in_dm(chat, "Choose the action again.")
    else:
        (said,) = await chat.slack.until(lambda ws: ws.whispers(chat.general))
        assert "Choose the action again." in said.text


def submission(chat, **given: str) -> dict:
    """Return the payload of the form that Ana sees, with values of its fields; it may be changed."""
    ana, view = chat.ana.person, chat.ana.modal
    fields = {
        name: {name: {"value": value} if name == "ask_question" else {"selected_option": {"value": value}}}
        for name, value in given.items()
    }
    return {
        "type": "view_submission",
        "team": {"id": chat.slack.team_id},
        "user": {"id": ana.id, "team_id": chat.slack.team_id},
        "view": {**view.content, "id": view.id, "state": {"values": fields}},
    }


async def test_a_form_delivered_several_times_to_two_processes_is_one_message(process):
    async with process() as one, process() as two:
        thread = await one.say("look")
        await choose(one, "ask", thread.ts)
        for chat in (one, two, one, two):
            chat.deliver_payload(submission(chat, ask_question="why?"), "interactive")
        run = await one.sessions.next_run()
        await two.acknowledged()
        await run.answer("Because.")
        await thread.contains("Because.")
        assert sum("💬" in text for text in thread.texts) == 1
        other = await one.start("@alpha elsewhere")
        assert other.run.prompt == "elsewhere"
        assert run.injections == []


async def test_a_post_of_unknown_outcome_is_one_message(chat):
    thread = await chat.say("look")
    chat.fail("chat.postMessage", DropAfterCall())
    await ask(chat, thread.ts, "why?")
    await thread.next_run()
    await thread.run.answer("Because.")
    await thread.contains("Because.")
    assert sum("💬" in text for text in thread.texts) == 1


async def test_a_process_that_ends_before_the_question_is_posted_leaves_it_to_the_next(process):
    async with process() as chat:
        thread = await chat.say("look")
        hold = chat.hold("chat.postMessage")
        await ask(chat, thread.ts, "why?")
        await hold.reached.wait()
    hold.set()
    async with process() as chat:
        thread.chat = chat
        await thread.next_run()
        await thread.run.answer("Because.")
        await thread.contains("Because.")
        assert sum("💬" in text for text in thread.texts) == 1


@pytest.mark.parametrize(
    "metadata",
    [
        "",
        "x",
        "T0LOCAL:C1:1.1 1.1 1.1",
        "T0OTHER:{channel}:{ts} {ts} {ts} {ana}",
        "T0LOCAL:{channel}:{ts} {ts} {ts} {ben}",
        "T0LOCAL:../x:{ts} {ts} {ts} {ana}",
        "T0LOCAL:{channel}:{ts} later {ts} {ana}",
    ],
)
async def test_forged_metadata_are_ignored(chat, metadata):
    thread = await chat.say("look")
    await choose(chat, "ask", thread.ts)
    made = submission(chat, ask_question="why?")
    ids = {who: chat.slack.person(who).id for who in ("ana", "ben")}
    made["view"]["private_metadata"] = metadata.format(ts=thread.ts, channel=chat.general, **ids)
    chat.deliver_payload(made, "interactive")
    await chat.acknowledged()
    other = await chat.start("@alpha elsewhere")
    assert other.run.prompt == "elsewhere"
    assert thread.posts == []


async def test_a_chosen_agent_that_does_not_exist_gives_way_to_the_one_of_the_channel(chat):
    thread = await chat.say("look")
    await choose(chat, "ask", thread.ts)
    chat.deliver_payload(submission(chat, ask_question="why?", ask_instance="gamma"), "interactive")
    await thread.next_run()
    assert thread.run.instance == "alpha"


# Summaries


async def test_a_private_post_of_unknown_outcome_is_one_message(chat):
    thread = await chat.say("look")
    chat.fail("chat.postMessage", DropAfterCall())
    await choose(chat, "summarise", thread.ts)
    await chat.ana.submit(summarise_for="private")
    run = await chat.sessions.next_run()
    await run.answer("Nothing happened.")
    await in_dm(chat, "Nothing happened.")
    dm = await chat.ana.open_dm("alpha")
    assert sum("💬" in m.text for m in chat.slack.workspace.messages(dm)) == 1


async def test_a_thread_is_summarised_for_everyone_with_its_messages_as_context(chat):
    thread = await chat.say("the build is red")
    await thread.say("I fixed it", "ben")
    await choose(chat, "summarise", thread.ts)
    await chat.ana.submit(summarise_for="thread")
    await thread.next_run()
    assert thread.run.prompt == SUMMARISE
    assert [each.text for each in thread.run.talk.messages] == ["the build is red", "I fixed it"]
    await thread.run.answer("It was red, and Ben fixed it.")
    await thread.shows(f"💬 <@{chat.slack.person('ana').id}>: {SUMMARISE}", "It was red, and Ben fixed it.")


@pytest.mark.parametrize("dm_threads", [True, False])
async def test_a_thread_is_summarised_in_private(process, dm_threads):
    async with process(options=SlackOptions(dm_threads=dm_threads)) as chat:
        thread = await chat.start("@alpha the build is red")
        await thread.run.answer("I look at it.")
        await thread.contains("I look at it.")
        reply = await thread.say("it is green again, @ben", "ben")
        await choose(chat, "summarise", reply)
        await chat.ana.submit(summarise_for="private")
        run = await chat.sessions.next_run()
        dm = await chat.ana.open_dm("alpha")
        root = await in_dm(chat, "Summarise <")
        assert run.conversation == f"T0LOCAL:{dm}:{root.ts}"
        assert run.author.id == chat.slack.person("ana").id
        assert run.prompt.startswith(SUMMARISE_QUOTED)
        said = ["the build is red", "I look at it.", "it is green again"]
        assert sorted(said, key=run.prompt.index) == said
        assert "⚙️" not in run.prompt
        await run.answer("It was red.")
        await in_dm(chat, "It was red.")
        assert len(thread.posts) == 1
        await chat.ana.say(dm, "since when?", thread=root.ts)
        assert (await chat.sessions.next_run()).conversation == run.conversation


async def test_of_a_very_long_thread_the_newest_messages_are_quoted(chat):
    thread = await chat.say("the first")
    for number in range(6):
        await thread.say(f"{number} " + "x" * 3500)
    await choose(chat, "summarise", thread.ts)
    await chat.ana.submit(summarise_for="private")
    run = await chat.sessions.next_run()
    assert "(3 older messages of the thread are left out.)" in run.prompt
    assert "5 xxx" in run.prompt
    assert "the first" not in run.prompt


async def test_without_the_scope_for_direct_messages_the_person_reads_what_to_do(chat):
    thread = await chat.say("look")
    chat.fail("conversations.open", ErrorResponse("missing_scope"))
    await choose(chat, "summarise", thread.ts)
    await chat.ana.submit(summarise_for="private")
    await in_dm(chat, "add the scope `im:write`")


async def test_a_question_about_a_direct_message_is_asked_there(chat):
    dm = await chat.ana.open_dm("alpha")
    thread = await chat.start("hello", dm)
    await thread.run.answer("hi")
    answer = await thread.contains("hi")
    await ask(chat, answer.ts, "what do you mean?", dm)
    await thread.next_run()
    assert thread.run.conversation == f"T0LOCAL:{dm}:{thread.ts}"
    assert "> hi" in thread.run.prompt
    assert "Alpha · app" in thread.run.prompt
