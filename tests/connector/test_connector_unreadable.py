"""What another version has kept, and nobody here can read, is told, and holds nothing up."""

from __future__ import annotations

from contextlib import aclosing

import pytest
from successors import begun, texts

from connector.protocols import Changes, Entry
from service.store import open_run_store

RUN = "⚠️ Another version of this service was at work here, and I cannot read how far it came. Write again."
MESSAGE = "📭 Not taken: a message that another version of this service has kept here. Write it again."
PENDING = {"number": 1, "texts": ["a &lt; b"], "by_agent": True}


@pytest.fixture
async def root(ana) -> str:
    return await ana.say("general", "look")


@pytest.fixture
def kept(slack, root, tmp_path):
    """Have another version keep something in a thread, and end."""
    conversation = f"{slack.team_id}:{slack.channel('general').id}:{root}"

    async def kept(changes: Changes | None, *entries: Entry) -> None:
        async with aclosing(await open_run_store(f"sqlite:{tmp_path}/runs.db")) as store:
            for entry in entries:
                await store.admit(conversation, entry, "alpha")
            if changes is not None:
                claim = await store.claim(conversation, "another version", 60)
                await store.write(conversation, claim.token, changes)

    return kept


@pytest.mark.parametrize("run", [{"id": "r"}, {"id": "r", "first": "a new form"}, {"traces": ["a new form"]}])
async def test_a_run_is_given_up_and_what_it_had_to_say_is_said(  # noqa: PLR0917 - fixtures
    slack, sessions, process, ana, root, kept, run
):
    sessions.obedient = False
    posts = {"1": PENDING, "2": {"a": "new form"}} if "id" in run else {}
    await kept(Changes(run=run, posts=posts))
    async with process():
        await slack.until(lambda _: sorted(texts(slack, root)) == sorted([*(["a &lt; b"] if posts else []), RUN]))
        _, another = await begun(slack, ana, sessions)
        await another.answer("ok")


@pytest.mark.parametrize("kind", ["message", "edit", "stop", "a new kind"])
async def test_an_entry_is_closed_and_who_wrote_a_message_is_told(  # noqa: PLR0917 - fixtures
    slack, sessions, process, ana, root, kept, kind
):
    sessions.obedient = False
    await kept(None, Entry(f"T0LOCAL:C0GENERAL:{root}:x", kind, {"a": "new form"}))
    async with process():
        if kind == "message":
            await slack.until(lambda _: texts(slack, root) == [MESSAGE])
        await ana.say("general", "@alpha go on", thread=root)
        run = await sessions.next_run()
        await run.answer("ok")
        await slack.until(lambda _: texts(slack, root) == [MESSAGE, "ok"] if kind == "message" else ["ok"])
