"""Actions on messages, with the whole service: each message is delivered once, with its quotes."""

from __future__ import annotations

from contextlib import aclosing

import pytest
from anthropic_server import text

from orchestrator_interactive.interactions.stores import open_store
from service.doctor.delivery_audit import check
from service.store import inspect_run_store


@pytest.fixture
async def stage(opened):
    async with opened() as stage:
        yield stage


async def choose(stage, kind: str, ts: str, **given: str) -> None:
    """Choose an action on a message in #general, and submit its form."""
    await stage.ana.shortcut(kind, "general", ts)
    await stage.slack.until(lambda _: stage.ana.modal)
    await stage.ana.submit(**given)


def read(stage) -> str:
    """Return all that the model got with the last request."""
    return str(stage.model.bodies[-1]["messages"])


async def test_a_question_that_the_bot_posted_does_not_run_again_under_its_name(stage):
    root = await stage.ana.say("general", "the build is red")
    stage.model.reply(text("A test fails."))
    await choose(stage, "ask", root, ask_question="why is it red?")
    answer = await stage.posted(root, "A test fails.")
    await stage.said(root)
    await stage.ana.react("general", answer.ts, "repeat")
    await stage.posted(root, "I posted that message for a person and cannot run it again.")


async def test_the_model_reads_a_question_with_the_message_and_a_summary_in_private_with_the_thread(stage, tmp_path):
    ben = stage.slack.as_person("ben")
    root = await ben.say("general", "the build is red")
    stage.model.reply(text("A test fails."))
    await choose(stage, "ask", root, ask_question="why is it red?")
    await stage.posted(root, "A test fails.")
    assert (await stage.said(root))[0].endswith(": why is it red?")
    assert "Ana" in read(stage)
    assert "> the build is red" in read(stage)

    stage.model.reply(text("It is red because of a test."))
    await choose(stage, "summarise", root, summarise_for="private")
    dm = await stage.ana.open_dm("alpha")
    await stage.slack.until(lambda ws: any("because of a test" in m.text for m in ws.messages(dm)))
    assert all(part in read(stage) for part in ("> the build is red", "> A test fails.", "Summarise the quoted thread"))
    assert "because of a test" not in str(await stage.said(root))

    stage.model.reply(text("Ben fixed it."))
    await ben.say("general", "I fixed it", thread=root)
    await choose(stage, "summarise", root, summarise_for="thread")
    await stage.posted(root, "Ben fixed it.")
    assert "I fixed it" in read(stage)

    url = f"sqlite:{tmp_path}/office.db"
    async with aclosing(await inspect_run_store(url)) as runs, aclosing(await open_store(url)) as logs:
        audit = await check(runs, logs)
    assert audit.violations == ()
    assert (audit.tally.accepted, audit.tally.delivered) == (3, 3)
