from __future__ import annotations

import asyncio
import contextlib


async def test_shutdown_does_not_wait_for_a_run_that_would_begin_only_then(process, sessions, slack):
    async def release() -> None:
        await slack.until(lambda ws: not ws.bot_online)
        lookup.set()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(1):
                await sessions.next_run()
        posts.set()

    async with asyncio.timeout(8), asyncio.TaskGroup() as tasks, process(shutdown_grace_s=2) as chat:
        thread = await chat.start()
        await thread.status()
        # The first run is about to end. It waits until the message in the other thread has its author's name.
        posts, lookup = chat.hold("chat.postMessage"), chat.hold("users.info")
        await thread.run.answer("the answer")
        await chat.ben.say("random", "@alpha one more")
        await chat.acknowledged()
        tasks.create_task(release())
