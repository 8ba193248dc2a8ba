"""Services of different workspaces with one Redis do not touch each other's conversations."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import asdict
from typing import TYPE_CHECKING

from anthropic_server import AnthropicServer, text, tool_call
from replicas import Replica, Replicas
from scenario import scenario
from service_process import run_command

from connector.events import SlackMessage
from connector.protocols import InboxEntry
from connector.records import PendingMessage
from local_slack import LocalSlack
from service.store import inspect_run_store

if TYPE_CHECKING:
    from pathlib import Path

    from local_slack.clients import InstalledTeam


def due_message(team: InstalledTeam, ts: str) -> PendingMessage:
    """Return a message as a replica writes it to the inbox, so that another replica finds it as due."""
    message = SlackMessage(
        team.team_id, team.channel("general").id, ts, None, team.person("ana").id, "hi", (), direct=False
    )
    return PendingMessage(message, "alpha", "hi", message.id)


async def test_a_run_of_a_killed_service_waits_untouched_for_a_service_of_its_workspace(tmp_path: Path):
    (tmp_path / "other").mkdir()
    async with (
        scenario(tmp_path, "redis") as there,
        LocalSlack(teams=("Playground", "Second")) as other_slack,
        AnthropicServer() as other_model,
    ):
        assert there.redis is not None
        (here,), second = there.replicas.each, other_slack.teams[1]
        env = {
            **here.env,
            "SLACK_API_URL": other_slack.api_url,
            "SLACK_APP_TOKEN": other_slack.app_token,
            "SLACK_BOT_TOKEN": second.bot_token,
            **other_model.env,
        }
        other = Replica("other", env, here.config)
        async with Replicas((other,), tmp_path / "other"), aclosing(await inspect_run_store(there.redis.url)) as store:
            await there.start(here)
            await other.start()
            there.model.reply(tool_call("run_tests", {}))
            await there.say("@alpha check it")
            await there.tests.reached.wait()
            foreign = f"{there.slack.team_id}:{there.slack.channel('general').id}:{there.root}"
            await here.kill()
            async with asyncio.timeout(50):
                while (known := await store.record(foreign)).is_owned:  # noqa: ASYNC110 - until its lease expires
                    await asyncio.sleep(0.05)

            # The other service finds this message by its search for due conversations, which ran after the lease ended.
            ana = second.as_person("ana")
            inbound = due_message(second, await ana.say("general", "hi"))
            other_model.reply(text("Hello."))
            await store.admit(
                inbound.message.place.conversation_id, InboxEntry(inbound.id, "message", asdict(inbound)), "alpha"
            )
            thread = (second.channel("general").id, inbound.message.ts)
            await other_slack.until(lambda _: any(m.text == "Hello." for m in second.workspace.thread(*thread)), 30)

            assert await store.record(foreign) == known
            assert there.slack.channel("general").id not in other_slack.record.text
            assert (len(there.model.requests), len(other_model.requests)) == (1, 1)
            doctor = await run_command("doctor", "--store", there.redis.url)
            assert doctor.code == 0, doctor.output
            assert (
                f"1 conversation of {there.slack.team_id} waits for a service that serves this workspace."
                in doctor.output
            )

            budgets = [key.decode() for key in there.redis.ask("KEYS", "budget:*")]
            teams = (there.slack.team_id, second.team_id)
            assert all(key.startswith(tuple(f"budget:{{{team}}}:" for team in teams)) for key in budgets), budgets

            there.model.reply(text("I do not know the result of the tests."))
            await there.start(here)
            there.tests.open()
            assert (await there.final_texts()).count("I do not know the result of the tests.") == 1
            assert (len(there.model.requests), len(other_model.requests)) == (2, 1)
            assert foreign not in other.log
