"""Who is answered, who may steer, and what an agent gets to know of talk in its thread."""

from __future__ import annotations

import asyncio
import re

import pytest
from chat import ALPHA, BETA, ENVELOPE, Chat, Thread

from connector import ChannelRules, Instance, Participation, Persona
from local_slack import HeldUntil

DAY_S = 86_400


def of(participation: Participation) -> Instance:
    return Instance("alpha", Persona("Alpha", ":owl:"), participation)


def talk_of(run_or_injection) -> list[tuple[str, str]]:
    return [(each.author.name, each.text) for each in run_or_injection.talk.messages]


@pytest.fixture
async def anyone(process):
    async with process(of(Participation(steerers="anyone"))) as chat:
        yield chat


async def answered(chat):
    """Return a thread whose run has ended."""
    thread = await chat.start()
    await thread.run.answer("done")
    await thread.contains("done")
    return thread


@pytest.fixture
def channel(slack):
    return slack.channel("general").id


async def test_people_who_do_not_take_part_are_not_answered_and_the_next_run_reads_what_they_said(chat):
    thread = await chat.start()
    await thread.run.answer("done")
    await thread.contains("done")
    lunch = await thread.say("lunch anyone?", who="ben")
    await thread.say("at noon @ana", who="chloe")
    await thread.say("and now?")
    run = await thread.next_run()
    assert run.prompt == "and now?"
    assert talk_of(run) == [("Ben", "lunch anyone?"), ("Chloe", f"at noon @Ana ({chat.ana.person.id})")]
    assert thread.message(lunch).reactions == ()
    await run.answer("yes")
    await thread.contains("yes")
    await thread.say("once more")
    assert talk_of(await thread.next_run()) == [], "it is read once"


async def test_a_mention_brings_the_thread_before_it_and_makes_its_author_take_part(chat):
    root = await chat.slack.as_person("ben").say("general", "the build is red")
    thread = Thread(chat, root)
    await thread.say("since friday", who="chloe")
    await thread.say("@alpha why?")
    run = await thread.next_run()
    assert talk_of(run) == [("Ben", "the build is red"), ("Chloe", "since friday")]
    await run.answer("a flaky test")
    await thread.contains("a flaky test")
    await thread.say("which one?")
    assert (await thread.next_run()).prompt == "which one?"


async def test_an_alert_that_got_the_stop_reaction_hides_no_talk(chat):
    root = await chat.slack.as_app("pager").post("general", "disk full", username="Pager")
    await chat.slack.as_person("ben").react("general", root, "x")
    thread = Thread(chat, root)
    await thread.say("since friday", who="chloe")
    await thread.say("@alpha why?")
    assert ("Chloe", "since friday") in talk_of(await thread.next_run())


async def test_a_remark_during_a_run_is_read_with_the_next_message_of_who_may_steer(chat):
    thread = await chat.start()
    remark = await thread.say("use postgres", who="ben")
    await thread.inject("do what ben says")
    (injection,) = thread.run.injections
    assert talk_of(injection) == [("Ben", "use postgres")]
    await thread.run.deliver()
    await thread.run.answer("done")
    await thread.contains("done")
    assert thread.message(remark).reactions == ()
    await thread.say("and now?")
    assert talk_of(await thread.next_run()) == []


async def test_a_withdrawn_message_leaves_the_talk_to_the_next_one(chat):
    thread = await chat.start()
    await thread.say("use postgres", who="ben")
    await thread.delete(await thread.inject("what ben says"))
    await thread.run.injected()
    await thread.inject("or not")
    assert [talk_of(each) for each in thread.run.injections] == [[("Ben", "use postgres")]]


async def test_muted_only_mentions_are_answered_until_it_is_unmuted(chat):
    thread = await chat.start()
    await thread.run.answer("done")
    await thread.contains("done")
    mute = await thread.say("!mute")
    await thread.marked(mute, "mute")
    await thread.say("ana and ben talk")
    await thread.say("@alpha summarise")
    run = await thread.next_run()
    assert (run.prompt, talk_of(run)) == ("summarise", [("Ana", "ana and ben talk")])
    await run.answer("talk")
    await thread.contains("talk")
    await thread.say("more talk")
    await thread.say("!unmute")
    await thread.marked(mute, "mute", gone=True)
    await thread.say("go on")
    run = await thread.next_run()
    assert (run.prompt, talk_of(run)) == ("go on", [("Ana", "more talk")])


async def test_an_unmute_ends_every_mute_before_it_and_none_after_it(chat):
    thread = await chat.start_shown()
    mutes = [await thread.say("!mute") for _ in range(2)]
    for each in mutes:
        await thread.marked(each, "mute")
    await chat.acknowledged()
    chat.slack.deliveries.next(HeldUntil(arrives := asyncio.Event()))
    await thread.say("!unmute")
    later = await thread.say("!mute")
    await thread.marked(later, "mute")
    arrives.set()
    for each in mutes:
        await thread.marked(each, "mute", gone=True)
    assert thread.message(later).reacted("mute")


async def test_a_mute_that_arrives_after_its_unmute_is_not_marked(chat):
    thread = await chat.start_shown()
    await chat.acknowledged()
    chat.slack.deliveries.next(HeldUntil(arrives := asyncio.Event()))
    mute = await thread.say("!mute")
    await thread.say("!unmute")
    await thread.contains("🔔")
    arrives.set()
    await thread.contains("🔇")
    await chat.acknowledged()
    assert not thread.message(mute).reacted("mute")


async def test_only_the_owner_of_a_run_steers_it_if_the_policy_says_so(process):
    async with process(of(Participation(steerers="owner"))) as chat:
        thread = await chat.start()
        await thread.accept("@alpha and the docs", who="ben")
        await thread.inject("and the tests")
        assert thread.run.texts == ["and the tests"]
        await thread.run.deliver()
        await thread.run.answer("done")
        run = await thread.next_run()
        assert (run.prompt, run.author.name) == ("and the docs", "Ben")
        await thread.accept("mine again")
        assert run.texts == [], "the run belongs to Ben"


async def test_a_message_of_someone_who_only_steers_is_not_read_after_its_deletion(anyone):
    thread = await anyone.start_shown()
    remark = await thread.inject("use postgres", who="ben")
    await anyone.ben.delete("general", remark)
    await anyone.acknowledged()
    await thread.inject("and this")
    assert thread.run.texts == ["and this"]


async def test_an_edit_of_a_message_of_someone_who_only_steers_counts(anyone):
    thread = await anyone.start_shown()
    remark = await thread.inject("use postgres", who="ben")
    await anyone.ben.edit("general", remark, "use sqlite")
    await anyone.acknowledged()
    await thread.inject("and this")
    assert thread.run.texts == ["use sqlite", "and this"]
    await thread.run.deliver()
    await anyone.ben.edit("general", remark, "use redis")
    await thread.run.until(lambda run: "use redis" in run.texts[-1])


@pytest.mark.parametrize("edited", ["!mute", "@ana use postgres"])
async def test_an_edit_withdraws_a_message_of_someone_who_only_steers(anyone, edited):
    thread = await anyone.start_shown()
    remark = await thread.accept("use postgres", who="ben")
    await anyone.ben.edit("general", remark, edited)
    await thread.marked(remark, ENVELOPE, gone=True)
    await thread.inject("and this")
    assert thread.run.texts == ["and this"]


async def test_who_only_steers_stops_a_run_by_an_edit_that_mentions_the_bot(anyone):
    thread = await anyone.start_shown()
    remark = await thread.inject("use postgres", who="ben")
    await anyone.ben.edit("general", remark, "@alpha stop")
    await thread.stopped()


@pytest.mark.parametrize("edited", ["use sqlite", "stop"])
async def test_an_edit_that_comes_before_a_message_of_someone_who_only_steers_counts(anyone, edited):
    thread = await answered(anyone)
    anyone.slack.deliveries.next(HeldUntil(arrives := asyncio.Event()))
    remark = await thread.say("use postgres", who="ben")
    await anyone.ben.edit("general", remark, edited)
    await anyone.slack.until(lambda _: anyone.slack.socket_mode.delivery.outstanding == 1)
    arrives.set()
    await anyone.acknowledged()
    await thread.say("@alpha and now?")
    assert talk_of(await thread.next_run()) == [("Ben", edited)]


async def test_a_mention_by_an_edit_that_comes_before_its_message_begins_a_run(anyone):
    thread = await answered(anyone)
    anyone.slack.deliveries.next(HeldUntil(arrives := asyncio.Event()))
    remark = await thread.say("use postgres", who="ben")
    await anyone.ben.edit("general", remark, "@alpha use sqlite")
    await anyone.slack.until(lambda _: anyone.slack.socket_mode.delivery.outstanding == 1)
    arrives.set()
    assert (await thread.next_run()).prompt == "use sqlite"


async def test_a_mention_that_an_edit_adds_begins_one_run(chat):
    thread = Thread(chat, await chat.slack.as_person("chloe").say("general", "the build is red"))
    reply = await thread.say("why?", who="ben")
    await chat.ben.edit("general", reply, "@alpha why?")
    run = await thread.next_run()
    assert run.prompt == "why?"
    await chat.ben.edit("general", reply, "@alpha and why?")
    await run.injected("(Correction of my earlier message. It now reads:) and why?")
    await chat.acknowledged()
    assert len(run.texts) == 1
    await chat.starts_next()


def change(chat, ts, before, after, edited_ts):
    """Deliver the edit of one of Ana's messages in the channel."""
    old, new = (chat.posted(ts, text.replace("@alpha", f"<@{chat.slack.bot_user_id}>")) for text in (before, after))
    edited = {"user": new["user"], "ts": f"{edited_ts.partition('.')[0]}.000000"}
    at = {"channel": chat.general, "ts": edited_ts, "event_ts": edited_ts}
    changed = {"type": "message", "subtype": "message_changed", "message": {**new, "edited": edited}, **at}
    chat.deliver({**changed, "previous_message": old})


@pytest.fixture
def missed(slack, sessions):
    """Post a message whose events no process receives."""

    async def missed(text):
        thread = await Chat(slack, sessions).say(text)
        slack.socket_mode.delivery.close()
        return thread

    return missed


def after(thread, s):
    return f"{float(thread.ts) + s:.6f}"


@pytest.mark.parametrize("before", ["@alpha look", "@alpha"])
async def test_an_edit_of_a_mention_that_was_missed_begins_a_run(process, missed, before):
    thread = await missed(before)
    async with process() as chat:
        change(chat, thread.ts, before, "@alpha look here", after(thread, DAY_S))
        assert (await thread.next_run()).prompt == "look here"
    async with process() as chat:
        await thread.next_run()
        change(chat, thread.ts, "@alpha look here", "@alpha look", after(thread, 2 * DAY_S))
        await thread.run.injected("(Correction of my earlier message. It now reads:) look")


async def test_an_edit_of_a_mention_whose_thread_has_an_answer_begins_none(process, missed):
    thread = await missed("@alpha look")
    async with process() as chat:
        await thread.say("@alpha please")
        await (await thread.next_run()).answer("done")
        await thread.contains("done")
        change(chat, thread.ts, "@alpha look", "@alpha look here", after(thread, DAY_S))
        await chat.starts_next()


async def test_of_two_edits_of_an_old_message_the_later_one_counts_if_it_comes_first(process, missed):
    thread = await missed("delete foo")
    async with process() as chat:
        change(chat, thread.ts, "@alpha delete foo", "@alpha delete bar", after(thread, DAY_S + 1))
        assert (await thread.next_run()).prompt == "delete bar"
        change(chat, thread.ts, "delete foo", "@alpha delete foo", after(thread, DAY_S))
        await chat.starts_next()


async def test_edits_after_the_one_that_removes_the_mention_count(chat):
    thread = await chat.start()
    correction = "(Correction of my earlier message. It now reads:) look"
    await thread.edit(thread.ts, "look closely")
    await thread.run.injected(f"{correction} closely")
    await thread.edit(thread.ts, "look very closely")
    await thread.run.injected(f"{correction} closely", f"{correction} very closely")


async def test_talk_from_before_a_run_that_is_edited_to_a_stop_stops_it(chat):
    thread = Thread(chat, await chat.slack.as_person("chloe").say("general", "the build is red"))
    reply = await thread.say("why?", who="ben")
    await thread.say("@alpha look")
    run = await thread.next_run()
    await chat.ben.edit("general", reply, "@alpha stop")
    await run.until(lambda run: run.stops)


@pytest.mark.parametrize("edited", ["@alpha stop", "@alpha", "@alpha !mute"])
async def test_a_message_edited_to_no_task_is_one_gesture_though_slack_sends_two_events(chat, edited):
    thread = await chat.start()
    await thread.inject("@alpha and the tests")
    reply = await thread.say("@alpha and the docs")
    await thread.run.injected("and the tests", "and the docs")
    await thread.edit(reply, edited)
    await thread.run.injected("and the tests")
    await chat.acknowledged()
    assert thread.run.stops == [False] * (edited == "@alpha stop")
    assert len(thread.texts) == 1, "the status"


async def test_an_edit_of_talk_to_a_command_is_answered_and_no_command(chat):
    thread = await chat.start()
    talk = await thread.say("@ben please look")
    await thread.edit(talk, "@alpha !mute")
    await chat.slack.until(lambda ws: any("An edit is no command" in each.text for each in ws.whispers("general")))
    await thread.inject("and now?")
    await chat.acknowledged()
    assert not thread.message(talk).reacted("mute")


async def test_the_deletion_of_talk_that_was_read_is_reported_once(chat):
    thread = await chat.start()
    talk = await thread.say("@ben please look")
    await thread.run.answer("done")
    await thread.contains("done")
    await thread.say("and now?")
    run = await thread.next_run()
    assert [text for _, text in talk_of(run)] == [f"@{chat.ben.person.id} please look"]
    await run.deliver()
    await chat.ana.delete("general", talk)
    await run.until(lambda run: run.texts)
    assert [each.startswith("(I have deleted my earlier message:)") for each in run.texts] == [True]


@pytest.mark.parametrize("again", ["@alpha use sqlite", "use sqlite"])
async def test_who_only_steers_is_told_that_a_mention_came_too_late_and_takes_part(anyone, again):
    thread = await answered(anyone)
    remark = await thread.say("use postgres", who="ben")
    await anyone.acknowledged()
    await anyone.ben.edit("general", remark, "@alpha use sqlite")
    await anyone.slack.until(
        lambda workspace: any("write your message again" in each.text for each in workspace.whispers(anyone.general))
    )
    await thread.say(again, who="ben")
    assert (await thread.next_run()).prompt == "use sqlite"


@pytest.mark.parametrize("words", ["!cost", "!mute", "!statsu"])
async def test_where_every_message_is_answered_a_command_needs_no_thread(process, words):
    async with process(of(Participation(answers="every"))) as chat:
        thread = await chat.say(words)
        if words == "!mute":
            await thread.marked(thread.ts, "mute")
        else:
            await chat.slack.until(lambda _: chat.calls("chat.postEphemeral"))
        await chat.acknowledged()
        assert chat.sessions.prompts == []


async def test_anyone_steers_a_run_if_the_policy_says_so_and_begins_none(process):
    async with process(of(Participation(steerers="anyone"))) as chat:
        thread = await chat.start()
        await thread.inject("also this", who="ben")
        await thread.run.deliver()
        unread = await thread.accept("too late", who="ben")
        await thread.run.answer("done")
        await thread.marked(unread, ENVELOPE, gone=True)
        await thread.say("lunch?", who="ben")
        await thread.say("and now?")
        run = await thread.next_run()
        assert (run.prompt, talk_of(run)) == ("and now?", [("Ben", "too late"), ("Ben", "lunch?")])


@pytest.mark.parametrize("words", ["!mute", "!status", "!statsu"])
async def test_where_anyone_steers_a_command_needs_an_agent_in_its_thread(anyone, words):
    thread = await anyone.say(words)
    await thread.say(words, who="ben")
    await anyone.starts_next()
    assert [each.reactions for each in anyone.slack.workspace.thread("general", thread.ts)] == [(), ()]
    assert not anyone.calls("chat.postEphemeral")


@pytest.mark.parametrize("allows", [True, False])
async def test_the_owner_decides_by_a_button_whether_a_newcomer_steers(process, allows):
    async with process(of(Participation(asks_consent=True))) as chat:
        thread = await chat.start()
        await thread.accept("@alpha use postgres", who="ben")
        question = await thread.contains("Let Ben steer this run?")
        assert thread.run.texts == []
        action = "steer_allow" if allows else "steer_deny"
        await chat.ben.click("general", question.ts, action)
        await chat.slack.until(
            lambda ws: any("Only the person who began" in each.text for each in ws.whispers("general"))
        )
        await thread.say("yes, let Ben steer")
        await thread.run.until(lambda run: len(run.texts) == 1)
        await chat.ana.click("general", question.ts, action)
        verdict = "Ana lets Ben steer" if allows else "I read Ben next"
        await thread.contains(verdict)
        if allows:
            await thread.run.until(lambda run: "use postgres" in run.texts)
            await thread.inject("and redis", who="ben")
        await thread.run.deliver()
        await thread.run.answer("done")
        if not allows:
            assert (await thread.next_run()).prompt == "use postgres"


async def test_policies_of_a_channel_come_first_and_watched_channels_are_filtered(process, channel):
    rules = ChannelRules("beta", Participation("every"), re.compile("(?i)alert"))
    async with process(ALPHA, BETA, channels={channel: rules}) as chat:
        await chat.ana.say("general", "good morning")
        await chat.ana.say("general", "Alert: disk full")
        run = await chat.sessions.next_run()
        assert (run.instance, run.prompt) == ("beta", "Alert: disk full")
        await chat.ana.say("random", "Alert: no one watches here")
        await chat.ana.say("random", "@alpha hello")
        run = await chat.sessions.next_run()
        assert (run.instance, run.prompt) == ("alpha", "hello")


async def test_by_the_policy_mention_a_reply_needs_a_mention(process):
    async with process(of(Participation(answers="mention"))) as chat:
        thread = await chat.start()
        await thread.run.answer("done")
        await thread.contains("done")
        await thread.say("and now?")
        await thread.say("@alpha go on")
        run = await thread.next_run()
        assert (run.prompt, talk_of(run)) == ("go on", [("Ana", "and now?")])


async def test_a_thread_is_handed_over_and_the_other_agent_gets_to_know_it(chat):
    thread = await chat.start()
    await thread.run.answer("alpha was here")
    await thread.contains("alpha was here")
    await thread.say("!instance nobody")
    await thread.contains("I know no agent of that name. There is alpha and beta.")
    await thread.say("!instance Beta")
    await thread.contains("From now on, Beta answers in this thread.")
    await thread.say("what did alpha say?")
    run = await thread.next_run()
    assert run.instance == "beta"
    assert talk_of(run) == [("Ana", "look"), ("Alpha", "alpha was here")]


async def test_the_topic_of_a_channel_names_its_agent(chat, channel):
    topic = "All about builds [instance: Beta]"
    await chat.ana.call("conversations.setTopic", channel=channel, topic=topic)
    await chat.ana.say("general", "@alpha hello")
    assert (await chat.sessions.next_run()).instance == "beta"
    await chat.ana.say("general", "@alpha hey Alpha, hello")
    run = await chat.sessions.next_run()
    assert (run.instance, run.prompt) == ("alpha", "hello")
