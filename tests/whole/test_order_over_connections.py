"""The order of messages whose events arrive over two connections, one late."""

from __future__ import annotations

import asyncio
from uuid import uuid4

import foreign_loops
from anthropic_server import Gate, text, tool_call

from local_slack import HeldUntil
from service.config.config import ModuleConfig
from service.config.slack import SlackConfig

# All direct messages of a person are one conversation.
SINGLE = SlackConfig(dm="single")


async def say_late(
    place, words: str, thread: str | None, channel: str = "general", person: str = "ana"
) -> tuple[str, asyncio.Event]:
    """Write a message whose event stays on its way, over one of the two connections, until the event is set."""
    await place.slack.until(lambda _: place.slack.socket_mode.connections == 2)
    place.slack.deliveries.next(HeldUntil(arrives := asyncio.Event()))
    return await place.slack.as_person(person).say(channel, words, thread=thread), arrives


async def accepted(place, ts: str, channel: str = "general") -> None:
    await place.slack.until(lambda ws: ws.message(channel, ts).reacted("incoming_envelope"))


def words_in(body, *words: str) -> list[str]:
    """Return those of the words that the model reads, in its order."""
    read = str(body["messages"])
    return sorted((each for each in words if each in read), key=read.index)


async def test_messages_that_wait_are_read_in_the_order_of_writing_whichever_event_is_late(opened, model):
    model.reply(tool_call("run_tests", {}), stop_reason="tool_use")
    model.reply(text("All three."))
    async with opened() as place:
        root = await place.ask()
        await place.tests.reached.wait()
        first, arrives = await say_late(place, "the first", root)
        for words in ("the second", "the third"):
            await accepted(place, await place.ana.say("general", words, thread=root))
        arrives.set()
        await accepted(place, first)
        place.tests.open()
        await place.posted(root, "All three.")
    assert words_in(model.bodies[-1], "the first", "the second", "the third") == [
        "the first",
        "the second",
        "the third",
    ]


async def test_a_message_that_arrives_before_the_prompt_is_read_and_is_older_is_read_first(opened, model):
    model.reply(text("Both."))
    async with opened(slack_config=SINGLE) as place:
        await both_before_the_prompt(place, "Both.")
    assert words_in(model.bodies[0], "the older", "the newer") == ["the older", "the newer"]
    assert len(model.requests) == 1


async def test_a_loop_without_steering_gets_them_in_the_order_of_writing_too(tmp_path, opened, model):
    model.reply(text("Both."))
    path = tmp_path / f"exact_{uuid4().hex}.py"
    path.write_text(foreign_loops.EXACT)
    async with opened(orchestrator=ModuleConfig(module="loop-foreign", source=str(path)), slack_config=SINGLE) as place:
        await both_before_the_prompt(place, "Both.")
    assert words_in(model.bodies[0], "the older", "the newer") == ["the older", "the newer"]
    assert len(model.requests) == 1


async def both_before_the_prompt(place, answer: str) -> None:
    """Let the newer of two direct messages begin a run, and the older one arrive during its set-up."""
    place.set_up.close()
    dm = await place.ana.open_dm("alpha")
    older, arrives = await say_late(place, "the older", None, dm)
    await place.ana.say(dm, "the newer")
    await place.set_up.reached.wait()
    arrives.set()
    await accepted(place, older, dm)
    place.set_up.open()
    await place.slack.until(lambda ws: any(m.text == answer for m in ws.messages(dm)), 20)


async def test_an_older_message_that_arrives_after_a_newer_one_was_read_comes_next(opened, model):
    gate = Gate()
    model.reply(tool_call("run_tests", {}), stop_reason="tool_use")
    model.reply(gate, text("The newer."))
    model.reply(text("And the older."))
    async with opened() as place:
        root = await place.ask()
        await place.tests.reached.wait()
        older, arrives = await say_late(place, "the older", root)
        await accepted(place, await place.ana.say("general", "the newer", thread=root))
        place.tests.open()
        await gate.reached.wait()
        arrives.set()
        await accepted(place, older)
        gate.open()
        await place.posted(root, "And the older.")
    assert words_in(model.bodies[-2], "the older", "the newer") == ["the newer"]
    assert words_in(model.bodies[-1], "the older", "the newer") == ["the newer", "the older"]


async def test_a_message_that_was_read_as_talk_before_its_event_arrives_is_read_once(opened, model):
    model.reply(text("Hello."))
    model.reply(tool_call("run_tests", {}), stop_reason="tool_use")
    model.reply(text("A flaky test."))
    async with opened() as place:
        root = await place.ask()
        await place.posted(root, "Hello.")
        await mute(place, root)
        _, arrives = await say_late(place, "the build is red", root)
        await place.ana.say("general", "since friday", thread=root)
        await place.ana.say("general", "@alpha why?", thread=root)
        await place.tests.reached.wait()
        await mute(place, root)  # it was silent before, too
        arrives.set()
        await place.slack.until(lambda _: not place.slack.socket_mode.delivery.outstanding)
        place.tests.open()
        await place.posted(root, "A flaky test.")
    assert [str(each["messages"]).count("the build is red") for each in model.bodies] == [0, 1, 1]


async def test_a_command_that_is_found_in_the_thread_before_its_event_arrives_is_carried_out_and_not_read(
    opened, model
):
    model.reply(text("Hello."))
    model.reply(tool_call("run_tests", {}), stop_reason="tool_use")
    model.reply(text("You, too."))
    async with opened() as place:
        root = await place.ask()
        await place.posted(root, "Hello.")
        _, mention_arrives = await say_late(place, "@alpha and I?", root, person="ben")
        command, command_arrives = await say_late(place, "!mute", root)
        mention_arrives.set()  # it is Ben's first message, so the thread is read for others that were missed
        await place.tests.reached.wait()
        await place.reacted(command, "mute")
        command_arrives.set()
        await place.slack.until(lambda _: not place.slack.socket_mode.delivery.outstanding)
        place.tests.open()
        await place.posted(root, "You, too.")
    assert "mute" not in str(model.bodies[-1])


async def mute(place, root: str) -> None:
    await place.reacted(await place.ana.say("general", "!mute", thread=root), "mute")
