"""Commands in a thread: their answers, and the history that the agent reads afterwards."""

from __future__ import annotations

from contextlib import aclosing
from itertools import count
from typing import Any

import pytest
from anthropic_server import Gate, text, tool_call
from service_fixtures import service_fixture
from slack_environment import Hold

from local_slack import BlockUntil, LocalSlack, WorkspaceMessage
from local_slack.delivery.delivery import Envelope
from orchestrator_interactive.interactions.stores import open_store
from service.config.slack import SlackConfig
from service.doctor.delivery_audit import check
from service.store import inspect_run_store

_numbers = count(1)


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
    said = await command(stage, "!rewind", "⏪ Rewound by 1 message and 1 answer.", root)
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
    await command(stage, "!new", "🌱 I begin anew here. Branch `main` keeps the earlier conversation", root)
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


@pytest.mark.parametrize(
    ("copies", "held", "moves"),
    [("!fork", "chat.getPermalink", "!rewind"), ("!export", "files.getUploadURLExternal", "!new")],
)
async def test_a_branch_stays_as_it_is_until_a_fork_or_an_export_is_finished(stage, copies, held, moves):
    root = await exchange(stage, "@alpha one", "first")
    hold = Hold()
    stage.slack.faults.next(held, BlockUntil(hold))
    await stage.ana.say("general", copies, thread=root)
    await hold.reached.wait()
    await command(stage, moves, "A fork or an export of this conversation is not finished. Try again", root)
    hold.set()
    channel = stage.slack.channel("general").id
    await stage.slack.until(
        lambda ws: any(m.files or m.text.startswith("🍴") for m in ws.thread(channel, root) if m.by_bot)
    )
    await exchange(stage, "two", "second", root)
    assert "first" in read(stage)
    await command(stage, "!rewind", "⏪ Rewound by 1 message and 1 answer.", root)


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


def offer(stage, kind: str, payload: dict[str, Any]) -> str:
    """Deliver a payload; return the id of its envelope."""
    slack = stage.slack
    of_ana = {"id": stage.ana.person.id, "team_id": slack.team_id}
    whole = {"team": {"id": slack.team_id}, "user": of_ana, "channel": {"id": slack.channel("general").id}, **payload}
    envelope = Envelope(f"test-{next(_numbers)}", kind, whole)
    slack.socket_mode.delivery.offer(envelope)
    return envelope.id


def choose(stage, callback_id: str, ts: str, root: str, *, by_bot: bool = False) -> None:
    """Choose an action on a message."""
    message = {"type": "message", "ts": ts, "thread_ts": root, "text": "…", **({"bot_id": "B1"} if by_bot else {})}
    at = f"{stage.slack.workspace.now():.6f}"
    offer(
        stage,
        "interactive",
        {"type": "message_action", "callback_id": callback_id, "action_ts": at, "message": message},
    )


async def slash(stage, said: str) -> str:
    """Write a slash command in #general; return the answer."""
    slack = stage.slack
    payload = {
        "command": "/alpha",
        "text": said,
        "user_id": stage.ana.person.id,
        "team_id": slack.team_id,
        "channel_id": slack.channel("general").id,
        "trigger_id": f"1.2.{next(_numbers)}",
    }
    envelope = Envelope(f"test-{next(_numbers)}", "slash_commands", payload)
    return str((await slack.socket_mode.delivery.ask(envelope))["text"])


async def forked(stage) -> str:
    """Return the root of the newest forked thread, once its agent knows the conversation."""
    channel = stage.slack.channel("general").id
    roots = await stage.slack.until(
        lambda ws: [m.ts for m in ws.messages(channel) if m.text.startswith("🍴 Forked from")]
    )
    await stage.posted(roots[-1], "🍴 I know the conversation up to there.")
    return roots[-1]


async def test_a_fork_from_a_message_knows_nothing_after_it(stage):
    root = await exchange(stage, "@alpha one", "first")
    two = await exchange(stage, "two", "second", root)
    choose(stage, "fork", two, root)
    await exchange(stage, "three", "third", await forked(stage))
    assert "first" in read(stage)
    assert "two" in read(stage)
    assert "second" not in read(stage)


async def test_a_fork_from_an_answer_knows_it_and_nothing_after_it(stage):
    root = await exchange(stage, "@alpha one", "first")
    await exchange(stage, "two", "second", root)
    answer = await stage.posted(root, "first")
    choose(stage, "fork", answer.ts, root, by_bot=True)
    await exchange(stage, "three", "third", await forked(stage))
    assert "first" in read(stage)
    assert "two" not in read(stage)


async def test_a_message_runs_again_with_its_present_text_once_its_author_has_confirmed(stage):
    root = await exchange(stage, "@alpha one", "first")
    stage.model.reply(tool_call("write_file", {"path": "plan.md", "content": "a plan"}))
    stage.model.reply(text("second"))
    two = await stage.ana.say("general", "two", thread=root)
    await stage.posted(root, "second")
    await stage.said(root)
    await stage.ana.edit("general", two, "deux")
    choose(stage, "rerun", two, root)
    asked = await whispered(stage, "Run this message again, with its present text?")
    assert "1 message and 1 answer" in asked
    assert "plan.md" in asked
    message = next(w for w in stage.slack.workspace.whispers(stage.slack.channel("general").id) if w.text == asked)
    stage.model.reply(text("third"))
    await stage.ana.click("general", message.ts, "rerun")
    await stage.ana.click("general", message.ts, "rerun")
    await stage.posted(root, "third")
    assert "deux" in read(stage)
    assert "two" not in read(stage)
    assert "second" not in read(stage)
    assert sum("runs again." in each for each in await stage.said(root)) == 1


async def test_a_repeat_reaction_runs_the_message_of_an_answer_again_and_again(stage, tmp_path):
    url = f"sqlite:{tmp_path}/office.db"
    root = await exchange(stage, "@alpha one", "first")
    for before, after in (("first", "second"), ("second", "third")):
        stage.model.reply(text(after))
        await stage.ana.react("general", (await stage.posted(root, before)).ts, "repeat")
        await stage.posted(root, after)
        await stage.said(root)
        assert before not in read(stage)
    await exchange(stage, "two", "fourth", root)
    async with aclosing(await inspect_run_store(url)) as runs, aclosing(await open_store(url)) as logs:
        audit = await check(runs, logs)
    assert audit.violations == ()
    assert (audit.tally.accepted, audit.tally.delivered) == (4, 4)


async def test_the_slash_command_begins_shows_and_stops_runs(stage):
    assert "Nothing is running here." in await slash(stage, "status")
    assert "`/alpha new TEXT`" in await slash(stage, "")
    assert "Write `!fork` in the thread" in await slash(stage, "fork")
    gate = Gate()
    stage.model.reply(text("slow", gate))
    assert "I begin a thread" in await slash(stage, "new look at <@U0BEN>")
    await gate.reached.wait()
    assert "“look at @U0BEN” of" in await slash(stage, "status")
    assert "🛑 I stop" in await slash(stage, "stop")
    gate.open()
    channel = stage.slack.channel("general").id
    (root,) = [m for m in stage.slack.workspace.messages(channel) if m.text.startswith("💬")]
    assert root.by_bot
    await stage.posted(root.ts, "🛑 Stopped by Ana.")


@pytest.mark.parametrize("kind", ["threads", "single"])
async def test_commands_work_in_direct_messages(model, tmp_path, kind):
    async with service_fixture(model, tmp_path, slack_config=SlackConfig(dm=kind)) as stage:
        channel = await stage.ana.open_dm("alpha")

        async def posted(part: str) -> WorkspaceMessage:
            return await stage.slack.until(
                lambda ws: next((m for m in ws.messages(channel) if m.by_bot and part in m.text), None)
            )

        stage.model.reply(text("first"))
        root = await stage.ana.dm("alpha", "one")
        answer = await posted("first")
        stage.model.reply(text("second"))
        await stage.ana.react(channel, answer.ts, "repeat")
        await posted("“one” runs again.")
        await posted("second")
        assert "first" not in read(stage)
        await stage.ana.dm("alpha", "!rewind", thread=root if kind == "threads" else None)
        await posted("⏪ Rewound by 1 message and 1 answer.")
        await stage.ana.dm("alpha", "!fork", thread=root if kind == "threads" else None)
        await posted("🍴 This conversation continues in a new thread, too")
