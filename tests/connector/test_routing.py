from __future__ import annotations

import pytest
from chat import ALPHA, Thread

from connector.protocols import SlackOptions


@pytest.fixture
async def thread(process) -> Thread:
    """A thread in which beta has answered in an earlier process."""
    async with process() as chat:
        thread = await chat.start("@alpha beta: look")
        assert (thread.run.instance, thread.run.prompt) == ("beta", "look")
        await thread.run.answer("ok")
        await thread.shows("ok")
        assert thread.posts[0].username == "Beta"
    return thread


async def test_a_message_without_a_mention_starts_nothing_outside_of_the_threads_of_an_agent(chat):
    await chat.say("good morning")
    await (await chat.say("shall we have lunch?")).say("yes", who="ben")
    thread = await chat.start("@alpha first for you")
    assert thread.run.prompt == "first for you"
    await thread.run.answer("ok")
    await thread.shows("ok")
    await thread.say("@ben did you see that?")
    await thread.say("and what now")
    assert (await thread.next_run()).prompt == "and what now"


async def test_a_reply_without_a_mention_goes_to_the_instance_of_the_thread(process, thread):
    async with process() as chat:
        await thread.say("@ben have you seen this?")
        await thread.say("continue")
        run = await thread.next_run()
        assert run.conversation == f"{chat.slack.team_id}:{chat.general}:{thread.ts}"
        assert (run.instance, run.prompt) == ("beta", "continue")


async def test_the_instance_that_a_reply_names_answers_the_thread_from_then_on(process, thread):
    async with process():
        for text, prompt in (("alpha: your turn", "your turn"), ("and now", "and now")):
            await thread.say(text)
            run = await thread.next_run()
            assert (run.instance, run.prompt) == ("alpha", prompt)
            await run.answer("ok")
            await thread.ended()


async def test_a_thread_keeps_an_instance_that_is_no_longer_configured(process, thread):
    """The sessions answer with a sentence that says so."""
    async with process(ALPHA):
        await thread.say("continue")
        assert (await thread.next_run()).instance == "beta"


async def test_a_direct_message_goes_to_the_instance_of_the_earlier_ones_in_its_conversation(process, slack, sessions):
    ana = slack.as_person("ana")
    for text, prompt in (("beta: hello", "hello"), ("hello again", "hello again")):
        async with process(options=SlackOptions(dm_threads=False)):
            await ana.dm("alpha", text)
            run = await sessions.next_run()
            assert (run.instance, run.prompt) == ("beta", prompt)
            await run.answer("ok")
            await slack.until(lambda _: sessions.idle)
