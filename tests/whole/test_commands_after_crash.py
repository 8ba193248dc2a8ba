"""A process is killed while it carries out a command or stores a rating: the next one does it once."""

from __future__ import annotations

from contextlib import aclosing, asynccontextmanager

import pytest
from anthropic_server import text
from scenario import Scenario, served

from orchestrator_interactive.interactions.feedback import feedback
from orchestrator_interactive.interactions.records import Key
from orchestrator_interactive.interactions.stack import InteractionStack
from orchestrator_interactive.interactions.stores import open_store


@pytest.fixture(params=["sqlite", "redis"])
def serving(request, tmp_path):
    """Run one process with SQLite, or one of two with Redis."""

    @asynccontextmanager
    async def serving():
        async with served(tmp_path, request.param) as there:
            yield there, there.redis.url if there.redis else f"sqlite:{tmp_path}/service.db"

    return serving


async def exchange(there: Scenario, said: str, answer: str) -> None:
    there.model.reply(text(answer))
    await there.say(said)
    await there.sees(answer)
    await there.final_texts()


def key_of(there: Scenario) -> Key:
    return Key(f"{there.slack.team_id}:{there.slack.channel('general').id}:{there.root}", "alpha")


async def branches(there: Scenario, url: str) -> int:
    async with aclosing(await open_store(url)) as store:
        key = key_of(there)
        return len(await InteractionStack(store, key.conversation_id, key.agent_id).get_branch_info())


async def test_a_rewind_is_carried_out_and_answered_once(serving):
    async with serving() as (there, url):
        await exchange(there, "@alpha one", "first")
        await exchange(there, "two", "second")
        held = there.hold("chat.postMessage")
        await there.say("!rewind")
        await held.reached.wait()
        await there.kill()
        held.set()
        await there.sees("⏪ Rewound by 1 message and 1 answer.")
        await exchange(there, "three", "third")
        await there.final_texts()
        await there.says_once("⏪")
        assert "first" in str(there.model.bodies[-1])
        assert "second" not in str(there.model.bodies[-1])
        assert await branches(there, url) == 2


async def test_a_fork_begins_one_thread(serving):
    async with serving() as (there, _):
        await exchange(there, "@alpha one", "first")
        held = there.hold("chat.postMessage")
        await there.say("!fork")
        await held.reached.wait()
        await there.kill()
        held.set()
        await there.sees("🍴 This conversation continues in a new thread, too")
        channel = there.slack.channel("general").id
        (root,) = [m.ts for m in there.slack.workspace.messages(channel) if m.text.startswith("🍴 Forked from")]
        await there.slack.until(lambda _: there.stage.found(root, "🍴 I know the conversation up to there."), 60)
        there.model.reply(text("second"))
        await there.ana.say("general", "two", thread=root)
        await there.slack.until(lambda _: there.stage.found(root, "second"), 60)
        assert "first" in str(there.model.bodies[-1])


async def test_a_message_runs_again_once(serving):
    async with serving() as (there, url):
        await exchange(there, "@alpha one", "first")
        answer = await there.sees("first")
        held = there.hold("chat.postMessage")
        there.model.reply(text("second"))
        await there.ana.react("general", answer.ts, "repeat")
        await held.reached.wait()
        await there.kill()
        held.set()
        await there.sees("second")
        said = await there.final_texts()
        assert said.count("second") == 1
        await there.says_once("runs again.")
        assert await branches(there, url) == 2


async def test_a_rating_is_stored_once(serving):
    async with serving() as (there, url):
        await exchange(there, "@alpha one", "first")
        answer = await there.sees("first")
        held = there.hold("conversations.replies")
        await there.ana.react("general", answer.ts, "+1")
        await held.reached.wait()
        await there.kill()  # before the event is acknowledged: Slack sends it again
        held.set()
        async with aclosing(await open_store(url)) as store:
            while not (found := [each async for each in feedback(store, key_of(there))]):
                await there.slack.until(lambda _: not there.board.outstanding, 60)
        assert len(found) == 1
