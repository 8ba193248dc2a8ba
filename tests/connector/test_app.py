from __future__ import annotations

import asyncio
import gc

import pytest
from ports import free_port

from connector import ConnectionRefused, HttpTransport
from local_slack import ErrorResponse


async def test_closing_leaves_no_task_behind(process, recwarn):
    before = asyncio.all_tasks()
    async with process() as chat:
        await (await chat.start()).status()
        ours = {t for t in asyncio.all_tasks() - before if "connector" in repr(t) or "slack_" in repr(t)}
    remaining = {t for t in ours if not t.done()}
    if remaining:
        await asyncio.wait(remaining, timeout=1)
    assert not [t for t in remaining if not t.done()]
    gc.collect()
    assert not [w for w in recwarn if "never" in str(w.message)]


@pytest.mark.parametrize("error", ["token_revoked", "invalid_auth", "account_inactive", "missing_scope"])
async def test_rejected_credentials_end_the_service_and_the_next_process_posts_the_answer(process, slack, error):
    with pytest.raises(ConnectionRefused, match=error):  # noqa: PT012 - it is raised at the end of the body
        async with asyncio.timeout(10), process() as chat:
            thread = await chat.start_shown()
            chat.fail("chat.postMessage", ErrorResponse(error), times=50)
            await thread.run.answer("The answer.")
            await asyncio.Event().wait()
    slack.faults.clear()
    async with process():
        await thread.shows("The answer.")
    assert chat.sessions.prompts == ["look"]


async def test_with_http_no_app_token_is_used_and_no_socket_opened(process, slack):
    slack.faults.next("apps.connections.open", ErrorResponse("invalid_auth"))
    async with process(transport=HttpTransport(slack.signing_secret, "127.0.0.1", free_port())):
        pass
    assert slack.socket_mode.opened == 0
    assert slack.faults.pending("apps.connections.open") == 1
