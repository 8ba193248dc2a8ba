"""Commands in a thread: what people see, and what the agent knows afterwards."""

from __future__ import annotations

import pytest
from anthropic_server import Gate, text

from local_slack import LocalSlack


@pytest.fixture
async def stage(opened):
    async with opened() as stage:
        yield stage


def read(stage) -> str:
    """Return all that the model got with the last request."""
    return str(stage.model.bodies[-1]["messages"])


async def exchange(stage, said: str, answer: str, root: str | None = None) -> str:
    """Say something, and wait for the answer; gives the ts of the message."""
    stage.model.reply(text(answer))
    ts = await stage.ana.say("general", said, thread=root)
    await stage.posted(root or ts, answer)
    await stage.said(root or ts)
    return ts


async def command(stage, said: str, answer: str, root: str) -> str:
    await stage.ana.say("general", said, thread=root)
    return (await stage.posted(root, answer)).text


def whispers(slack: LocalSlack) -> list[str]:
    return [each.text for each in slack.workspace.whispers(slack.channel("general").id)]


async def whispered(stage, part: str) -> str:
    return await stage.slack.until(lambda _: next((each for each in whispers(stage.slack) if part in each), None))


async def test_rewind_takes_back_the_last_exchange_and_checkout_restores_it(stage):
    root = await exchange(stage, "@alpha one", "first")
    await exchange(stage, "two", "second", root)
    said = await command(stage, "!rewind", "⏪ Taken back: 1 message and 1 answer.", root)
    branch = said.rpartition("!checkout ")[2].split("`")[0]
    await exchange(stage, "three", "third", root)
    assert "first" in read(stage)
    assert "second" not in read(stage)
    await command(stage, f"!checkout {branch}", "🔀 I continue on", root)
    await exchange(stage, "four", "fourth", root)
    assert "second" in read(stage)
    assert "third" not in read(stage)


async def test_new_begins_an_empty_branch_and_the_earlier_one_is_kept(stage):
    root = await exchange(stage, "@alpha one", "first")
    await command(stage, "!new", "🌱 I begin anew here. The earlier conversation is on `main`", root)
    await exchange(stage, "two", "second", root)
    assert "first" not in read(stage)
    listed = await command(stage, "!branches", "• `main`", root)
    assert "→ `new-" in listed
    await command(stage, "!checkout nowhere", "There is no branch 'nowhere'", root)
    await command(stage, "!checkout main", "🔀 I continue on `main`", root)
    await exchange(stage, "three", "third", root)
    assert "first" in read(stage)
    assert "second" not in read(stage)


async def test_a_fork_knows_the_conversation_and_both_threads_go_their_own_way(stage):
    root = await exchange(stage, "@alpha one", "first")
    await command(stage, "!fork", "🍴 This conversation continues in a new thread, too: http", root)
    channel = stage.slack.channel("general").id
    fork = await stage.slack.until(
        lambda ws: next((m for m in ws.messages(channel) if m.text.startswith("🍴 Forked from")), None)
    )
    await stage.posted(fork.ts, "🍴 I know the conversation up to there.")
    await exchange(stage, "two", "second", fork.ts)
    assert "first" in read(stage)
    await exchange(stage, "three", "third", root)
    assert "second" not in read(stage)


async def test_export_posts_the_conversation_as_a_file(stage):
    root = await exchange(stage, "@alpha one", "first")
    await stage.ana.say("general", "!export", thread=root)
    channel = stage.slack.channel("general").id
    message = await stage.slack.until(lambda ws: next((m for m in ws.thread(channel, root) if m.files), None))
    assert message.by_bot


async def test_a_command_on_the_log_asks_to_stop_an_active_run_and_status_shows_it(stage):
    gate = Gate()
    stage.model.reply(text("slow", gate))
    root = await stage.ana.say("general", "@alpha one")
    await gate.reached.wait()
    await command(stage, "!rewind", "Stop the run first: write `!stop`.", root)
    await stage.ana.say("general", "!status", thread=root)
    assert "⚙️ “one” of" in await whispered(stage, "runs since")
    gate.open()


async def test_a_typo_is_answered_in_private_and_not_given_to_the_model(stage):
    root = await exchange(stage, "@alpha one", "first")
    await stage.ana.say("general", "!statsu", thread=root)
    await whispered(stage, "Did you mean `!status`?")
    await stage.ana.say("general", "!rewind much", thread=root)
    await whispered(stage, "Usage: `!rewind [N]`")
    await stage.ana.say("general", "!help", thread=root)
    await whispered(stage, "• `!checkout NAME`")
    await stage.ana.say("general", "!cost", thread=root)
    await whispered(stage, "This conversation: ")
    await exchange(stage, "!wait, use the other file", "second", root)
    assert "statsu" not in read(stage)
