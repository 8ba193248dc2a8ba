"""What a token may do, and what the app says of itself."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from local_slack import LocalSlack
from local_slack.installation.app import EVERY_SCOPE


def client_of(slack: LocalSlack, token: str | None = None) -> AsyncWebClient:
    return AsyncWebClient(token=token or slack.bot_token, base_url=slack.api_url)


@pytest.mark.parametrize(
    ("method", "arguments", "needed"),
    [
        ("chat.postMessage", {"channel": "C0GENERAL", "text": "x"}, "chat:write"),
        ("chat.postMessage", {"channel": "C0GENERAL", "text": "x", "username": "x"}, "chat:write.customize"),
        ("conversations.history", {"channel": "C0GENERAL"}, "channels:history"),
        ("conversations.history", {"channel": "D0ANA"}, "im:history"),
        ("conversations.list", {"types": "public_channel,im"}, "im:read"),
        ("files.getUploadURLExternal", {"filename": "a", "length": 1}, "files:write"),
        ("reactions.add", {"channel": "C0GENERAL", "timestamp": "1.0", "name": "x"}, "reactions:write"),
        ("users.info", {"user": "U0ANA"}, "users:read"),
    ],
)
async def test_a_missing_scope_is_named_beside_those_that_are_there(
    method: str, arguments: dict[str, Any], needed: str
) -> None:
    granted = EVERY_SCOPE - {needed}
    async with LocalSlack(scopes=granted) as slack:
        with pytest.raises(SlackApiError) as refused:
            await client_of(slack).api_call(method, json=arguments)
        answer = refused.value.response
        assert (answer["error"], answer["needed"]) == ("missing_scope", needed)
        assert answer["provided"] == ",".join(sorted(granted))
        assert answer.headers["x-oauth-scopes"] == answer["provided"]


async def test_people_and_methods_without_a_scope_work_always() -> None:
    async with LocalSlack(scopes=()) as slack:
        me = await client_of(slack).auth_test()
        assert me.headers["x-oauth-scopes"] == ""
        assert "Date" in me.headers
        await client_of(slack).apps_connections_open(app_token=slack.app_token)
        await slack.as_person("ana").say("general", "hi")


async def test_the_manifest_that_was_given_is_exported_for_the_config_token() -> None:
    manifest = {"display_information": {"name": "Mine"}}
    async with LocalSlack(manifest=manifest) as slack:
        client = client_of(slack, slack.config_token)
        assert (await client.apps_manifest_export(app_id="A0ALPHA"))["manifest"] == manifest
        with pytest.raises(SlackApiError, match="invalid_app_id"):
            await client.apps_manifest_export(app_id="A0OTHER")
        with pytest.raises(SlackApiError, match="not_allowed_token_type"):
            await client_of(slack).apps_manifest_export(app_id="A0ALPHA")
        with pytest.raises(SlackApiError, match="invalid_auth"):
            await client_of(slack, "xoxe-wrong").apps_manifest_export(app_id="A0ALPHA")


async def test_the_manifest_names_the_request_url_while_events_go_there() -> None:
    async def echo(request: web.Request) -> web.Response:
        return web.json_response({"challenge": (await request.json())["challenge"]})

    app = web.Application()
    app.router.add_post("/slack/events", echo)
    async with TestServer(app) as there, LocalSlack() as slack:
        url = str(there.make_url("/slack/events"))
        await slack.deliver_to(url)
        answer = await client_of(slack, slack.config_token).apps_manifest_export(app_id="A0ALPHA")
        settings = answer["manifest"]["settings"]
        assert settings["socket_mode_enabled"] is False
        assert settings["event_subscriptions"]["request_url"] == url
        assert settings["interactivity"]["request_url"] == url


async def test_without_one_the_manifest_fits_what_the_app_can_do() -> None:
    async with LocalSlack(events=("message", "app_mention"), scopes=("chat:write",), agent_view=False) as slack:
        slack.workspace.rules.messages_tab = False
        client = client_of(slack, slack.config_token)
        manifest = (await client.apps_manifest_export(app_id="A0ALPHA"))["manifest"]
    assert manifest["oauth_config"]["scopes"]["bot"] == ["chat:write"]
    assert manifest["settings"]["event_subscriptions"]["bot_events"] == [
        "app_mention",
        "message.channels",
        "message.groups",
        "message.im",
        "message.mpim",
    ]
    assert manifest["settings"]["socket_mode_enabled"] is True
    assert "agent_view" not in manifest["features"]
    assert manifest["features"]["app_home"]["messages_tab_enabled"] is False
