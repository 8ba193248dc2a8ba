"""Other bots: those that are answered, the limit without a person, and the context that an agent gets."""

from __future__ import annotations

import asyncio
import re

import pytest
from chat import ALPHA, Thread

from connector import AccessRules, BotRules, ChannelRules, Participation, SlackOptions
from connector.protocols import PersonRequest

ALERT = [{"fallback": "disk full", "text": "disk full", "fields": [{"title": "Severity", "value": "critical"}]}]


def talk_of(run) -> list[tuple[str, str]]:
    return [(each.author.name, each.text) for each in run.talk.messages]


@pytest.fixture
def pager(slack):
    return slack.as_app("pager")


@pytest.fixture
def mention(slack):
    return f"<@{slack.workspace.directory.bot.id}>"


@pytest.fixture
def with_pager(process, pager):
    """Run a process that answers the pager, in a channel with these rules."""

    def start(exchanges=3, answers="thread", pattern=None, steering=(), **options):
        rules = ChannelRules(participation=Participation(answers, *steering), pattern=pattern)
        listed = SlackOptions(bots=BotRules(frozenset({pager.app.bot_id}), exchanges))
        channel = pager._workspace.channel("general").id
        return process(ALPHA, channels={channel: rules}, options=listed, **options)

    return start


async def test_a_bot_that_is_not_listed_is_not_answered_and_its_posts_are_talk(chat, pager, mention):
    root = await pager.post("general", f"{mention} look", attachments=ALERT)
    thread = Thread(chat, root)
    await thread.say("@alpha explain this")
    run = await thread.next_run()
    assert run.prompt == "explain this"
    ((author, text),) = talk_of(run)
    assert author == "Pager · app"
    assert "disk full" in text
    assert "Severity: critical" in text


async def test_a_listed_bot_is_answered_if_it_mentions_the_agent_and_takes_no_part(with_pager, pager, mention):
    async with with_pager(policy=AccessRules(users=frozenset({"U0NOBODY"}))) as chat:
        root = await pager.post("general", "deployed")
        thread = Thread(chat, await pager.post("general", f"{mention} is it up?", username="Deploys"))
        run = await thread.next_run()
        assert (run.prompt, run.author.name) == ("is it up?", "Deploys · app")
        await run.answer("yes")
        await thread.contains("yes")
        await pager.post("general", "thanks", thread=thread.ts)
        await pager.post("general", f"{mention} and now?", thread=thread.ts)
        run = await thread.next_run()
        assert (run.prompt, talk_of(run)) == ("and now?", [("Pager · app", "thanks")])
        assert [each.text for each in Thread(chat, root).posts if "deployed" not in each.text] == []


async def test_an_alert_of_attachments_only_begins_a_thread_in_a_watched_channel(with_pager, pager):
    async with with_pager(answers="every", pattern=re.compile("critical")) as chat:
        await pager.post("general", attachments=[{"text": "all is well"}])
        thread = Thread(chat, await pager.post("general", attachments=ALERT))
        run = await thread.next_run()
        assert "Severity: critical" in run.prompt
        await run.answer("I look at the disk")
        await thread.contains("I look at the disk")


async def test_two_bots_do_not_talk_to_each_other_without_end(with_pager, pager, mention):
    thread = None
    for number in range(2):  # the count outlives a process
        async with with_pager(exchanges=2) as chat:
            place = None if thread is None else thread.ts
            ts = await pager.post("general", f"{mention} {number}", thread=place)
            thread = Thread(chat, place or ts)
            run = await thread.next_run()
            assert run.prompt == str(number)
            await run.answer(f"answer {number}")
            await thread.contains(f"answer {number}")
    async with with_pager(exchanges=2) as chat:
        thread = Thread(chat, thread.ts)
        await pager.post("general", f"{mention} 2", thread=thread.ts)
        await thread.contains("I have answered Pager 2 times here. Mention me to continue.")
        await pager.post("general", f"{mention} 3", thread=thread.ts)
        await thread.say("@alpha continue")
        run = await thread.next_run()
        assert run.prompt == "continue"
        assert [text for _, text in talk_of(run)] == ["2", "3"]
        await run.answer("so be it")
        await thread.contains("so be it")
        await pager.post("general", f"{mention} 4", thread=thread.ts)
        run = await thread.next_run()
        assert run.prompt == "4"
        assert sum("times here" in text for text in thread.texts) == 1


async def test_the_bot_never_answers_itself(slack, process):
    own = slack.workspace.directory.bot
    listed = SlackOptions(bots=BotRules(frozenset({own.bot_id})))
    rules = ChannelRules(participation=Participation("every"))
    async with process(ALPHA, channels={slack.channel("general").id: rules}, options=listed) as chat:
        thread = await chat.start()
        await thread.run.answer(f"I ask <@{own.id}> myself")
        await thread.contains("myself")
        await chat.acknowledged()
        assert (await chat.starts_next()).prompt == "elsewhere"


async def test_a_bots_edit_of_a_waiting_message_counts(with_pager, pager, mention):
    async with with_pager() as chat:
        thread = await chat.start()
        ts = await pager.post("general", f"{mention} red", thread=thread.ts)
        await thread.run.until(lambda run: "red" in run.texts)
        where = {"channel": chat.general, "ts": ts}
        await pager.call("chat.update", **where, text=f"{mention} green")
        await thread.run.until(lambda run: "green" in run.texts)


async def test_people_who_take_part_answer_the_approvals_of_a_run_that_a_bot_began(with_pager, pager, mention):
    async with with_pager() as chat:
        thread = Thread(chat, await pager.post("general", f"{mention} clean up"))
        run = await thread.next_run()
        answer = asyncio.ensure_future(run.people.ask(PersonRequest("c1", "d", "Allow rm?")))
        asked = await chat.slack.until(
            lambda _: next((each for each in thread.posts if each.text.startswith("✋ Allow rm?")), None)
        )
        assert "Everyone who takes part here may answer" in str(asked.blocks)
        await chat.ben.click("general", asked.ts, "request_choose_0")
        whispers = chat.slack.workspace.whispers
        await chat.slack.until(lambda _: any("You may not answer" in each.text for each in whispers(asked.channel)))
        await thread.inject("@alpha go on", "ben")
        await chat.ben.click("general", asked.ts, "request_choose_0")
        assert (await answer).names == ("Ben",)
        await run.answer("cleaned")
        await thread.contains("cleaned")


@pytest.mark.parametrize("steer", ["owner", "participants"])
async def test_people_who_take_part_steer_a_run_that_a_bot_began_since_no_one_can_consent(
    with_pager, pager, mention, steer
):
    async with with_pager(steering=(steer, True)) as chat:
        thread = Thread(chat, await pager.post("general", f"{mention} clean up"))
        run = await thread.next_run()
        await thread.inject("@alpha but keep the logs", "ben")
        await run.deliver()
        await run.answer("cleaned")
        await thread.contains("cleaned")
        assert not any("steer this run" in each for each in thread.texts)
