"""How people rate answers, and where the ratings are found."""

from __future__ import annotations

import json
from contextlib import aclosing

import pytest
from anthropic_server import text

from local_slack import ErrorResponse
from orchestrator_interactive.interactions.export import as_json_lines
from orchestrator_interactive.interactions.feedback import FeedbackState, feedback, latest
from orchestrator_interactive.interactions.records import Key
from orchestrator_interactive.interactions.stores import open_store


@pytest.fixture
async def stage(opened):
    async with opened() as stage:
        yield stage


async def answered(stage, said: str = "@alpha one", answer: str = "first", root: str | None = None) -> tuple[str, str]:
    """Say something; gives the ts of the root and of the answer."""
    stage.model.reply(text(answer))
    ts = await stage.ana.say("general", said, thread=root)
    posted = await stage.posted(root or ts, answer)
    await stage.said(root or ts)
    return root or ts, posted.ts


def key_of(stage, root: str) -> Key:
    return Key(f"{stage.slack.team_id}:{stage.slack.channel('general').id}:{root}", "alpha")


async def rated(stage, tmp_path, root: str, count: int) -> list[FeedbackState]:
    """Wait for a number of ratings in the store; return the valid ones."""
    async with aclosing(await open_store(f"sqlite:{tmp_path}/office.db")) as store:
        while True:
            found = [each async for each in feedback(store, key_of(stage, root))]
            if len(found) >= count:
                return latest(found)
            await stage.slack.until(lambda _: not stage.slack.socket_mode.delivery.outstanding)


async def test_the_last_rating_of_a_person_counts_by_button_or_reaction(stage, tmp_path):
    root, answer = await answered(stage)
    await stage.ana.click("general", answer, "feedback", (await value(stage, root, "positive_button")))
    await rated(stage, tmp_path, root, 1)
    await stage.ana.react("general", answer, "-1::skin-tone-3")
    await stage.slack.as_person("ben").react("general", answer, "+1")
    found = await rated(stage, tmp_path, root, 3)
    people = {each.user: each.reward for each in found}
    assert people == {stage.ana.person.id: -1, stage.slack.person("ben").id: 1}
    assert {each.ref for each in found} == {found[0].ref}
    assert found[0].ref.startswith(f"{key_of(stage, root).conversation_id}/alpha/")


async def value(stage, root: str, button: str) -> str:
    """Return the value of a button of the last answer."""
    answer = [m for m in stage.slack.workspace.thread(stage.slack.channel("general").id, root) if m.by_bot][-1]
    return answer.blocks[-1]["elements"][0][button]["value"]


async def test_a_bad_rating_asks_for_a_comment_and_the_commands_show_it(stage, tmp_path):
    root, answer = await answered(stage)
    await stage.ana.click("general", answer, "feedback", (await value(stage, root, "negative_button")))
    await stage.slack.until(lambda ws: ws.views.modal(stage.ana.person.id))
    await stage.ana.submit(feedback_comment="It is wrong.")
    (rating,) = await rated(stage, tmp_path, root, 2)
    assert (rating.reward, rating.comment) == (-1, "It is wrong.")
    async with aclosing(await open_store(f"sqlite:{tmp_path}/office.db")) as store:
        lines = [json.loads(line) async for line in as_json_lines(store, key_of(stage, root))]
    assert [line["data"].get("comment", "") for line in lines if line.get("kind") == "FeedbackState"] == [
        "",
        "It is wrong.",
    ]


async def test_where_slack_refuses_the_buttons_answers_come_without_them(stage):
    stage.slack.faults.next("chat.postMessage", ErrorResponse("invalid_blocks"))
    root, _ = await answered(stage)
    assert await stage.said(root) == ["first"]


async def test_a_rewind_loses_no_rating(stage, tmp_path):
    root, answer = await answered(stage)
    await stage.ana.react("general", answer, "+1")
    await rated(stage, tmp_path, root, 1)
    await stage.ana.say("general", "!rewind", thread=root)
    await stage.posted(root, "⏪ Rewound by")
    assert [each.reward for each in await rated(stage, tmp_path, root, 1)] == [1]
