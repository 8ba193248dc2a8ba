"""What a thread looks like to people while one process of the service succeeds another."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fake_sessions import FakeRun, FakeSessionManager

    from local_slack import LocalSlack, Message, PersonClient


def bot_posts(slack: LocalSlack, root: str) -> list[Message]:
    return [m for m in slack.workspace.thread(slack.channel("general").id, root) if m.by_bot]


def texts(slack: LocalSlack, root: str) -> list[str]:
    return [m.text for m in bot_posts(slack, root)]


def is_marked(slack: LocalSlack, ts: str, name: str = "hourglass_flowing_sand") -> bool:
    return slack.workspace.message("general", ts).reacted(name)


async def over(slack: LocalSlack, root: str, within_s: float = 10) -> list[str]:
    """What the bot has said when nothing runs any more."""
    await slack.until(lambda _: not is_marked(slack, root), within_s)
    return texts(slack, root)


async def begun(slack: LocalSlack, ana: PersonClient, sessions: FakeSessionManager) -> tuple[str, FakeRun]:
    """A run with its hourglass and its status."""
    root = await ana.say("general", "@alpha look")
    run = await sessions.next_run()
    await slack.until(lambda _: bot_posts(slack, root) and is_marked(slack, root))
    return root, run


async def of_an_earlier_run(slack, sessions, process, ana) -> str:
    """A thread in which something was read, and nothing runs."""
    sessions.obedient = False
    async with process():
        root, run = await begun(slack, ana, sessions)
        await run.answer("ok")
        await over(slack, root)
    return root
