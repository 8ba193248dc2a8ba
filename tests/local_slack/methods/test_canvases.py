from __future__ import annotations

import json

import aiohttp
import pytest
from slack_errors import error_of

TEXT = {"type": "markdown", "markdown": "# Plan"}


async def read(slack, canvas_id, client):
    """Return the canvas as its link shows it."""
    found = await client.files_info(file=canvas_id)
    async with aiohttp.ClientSession() as http, http.get(found["file"]["permalink"]) as response:
        return response.status, await response.text()


async def test_a_canvas_is_readable_once_a_channel_has_access(slack, client):
    canvas = (await client.canvases_create(title="The plan", document_content=TEXT))["canvas_id"]
    assert (await read(slack, canvas, client))[0] == 404
    await client.canvases_access_set(canvas_id=canvas, access_level="read", channel_ids=["C0GENERAL"])
    assert await read(slack, canvas, client) == (200, "The plan\n\n# Plan")
    change = {"operation": "insert_at_end", "document_content": {"type": "markdown", "markdown": "done"}}
    await client.canvases_edit(canvas_id=canvas, changes=[change])
    assert (await read(slack, canvas, client))[1].endswith("# Plan\ndone")
    await client.canvases_delete(canvas_id=canvas)
    assert await error_of(client.canvases_delete(canvas_id=canvas)) == "canvas_not_found"


async def test_in_direct_messages_a_canvas_is_readable_once_a_person_has_access(slack, client):
    dm = await slack.as_person("ana").open_dm("alpha")
    canvas = (await client.canvases_create(title="The plan", document_content=TEXT))["canvas_id"]
    given = await client.canvases_access_set(canvas_id=canvas, access_level="read", channel_ids=[dm])
    assert given["failed_to_update_channel_ids"] == [dm]
    assert (await read(slack, canvas, client))[0] == 404
    await client.canvases_access_set(canvas_id=canvas, access_level="read", user_ids=["U0ANA"])
    assert (await read(slack, canvas, client))[0] == 200


@pytest.mark.parametrize(
    ("method", "arguments", "error"),
    [
        ("canvases.create", {"document_content": json.dumps({"type": "html", "html": "x"})}, "invalid_arguments"),
        ("canvases.edit", {"canvas_id": "F1", "changes": "[]"}, "canvas_not_found"),
        ("canvases.access.set", {"canvas_id": "F1", "access_level": "read"}, "canvas_not_found"),
    ],
)
async def test_what_slack_refuses(client, method, arguments, error):
    assert await error_of(client.api_call(method, data=arguments)) == error
