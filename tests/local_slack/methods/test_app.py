"""Scopes of a token, and the manifest of the app."""

from __future__ import annotations

import pytest
from endpoint import endpoint
from slack_errors import error_of
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from local_slack import LocalSlack
from local_slack.methods.app import EVERY_SCOPE

MANIFEST = {"display_information": {"name": "Mine"}}


def client_of(slack, token=None):
    return AsyncWebClient(token=token or slack.bot_token, base_url=slack.api_url)


@pytest.fixture
def manifest(slack):
    async def manifest():
        client = client_of(slack, slack.config_token)
        return (await client.apps_manifest_export(app_id="A0ALPHA"))["manifest"]

    return manifest


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
async def test_a_missing_scope_is_named_with_the_granted_ones(method, arguments, needed):
    granted = EVERY_SCOPE - {needed}
    async with LocalSlack(scopes=granted) as slack:
        with pytest.raises(SlackApiError) as refused:
            await client_of(slack).api_call(method, json=arguments)
        answer = refused.value.response
        assert (answer["error"], answer["needed"]) == ("missing_scope", needed)
        assert answer["provided"] == answer.headers["x-oauth-scopes"] == ",".join(sorted(granted))


@pytest.mark.slack(scopes=())
async def test_people_and_methods_without_a_scope_always_work(slack, ana, client):
    me = await client.auth_test()
    assert me.headers["x-oauth-scopes"] == ""
    assert "Date" in me.headers
    await client.apps_connections_open(app_token=slack.app_token)
    await ana.say("general", "hi")


@pytest.mark.slack(manifest=MANIFEST)
async def test_the_given_manifest_is_exported_for_the_config_token_only(slack, manifest):
    assert await manifest() == MANIFEST
    for token, app_id, error in (
        (slack.config_token, "A0OTHER", "invalid_app_id"),
        (slack.bot_token, "A0ALPHA", "not_allowed_token_type"),
        ("xoxe-wrong", "A0ALPHA", "invalid_auth"),
    ):
        assert await error_of(client_of(slack, token).apps_manifest_export(app_id=app_id)) == error


async def test_the_manifest_contains_the_request_url(slack, manifest):
    async with endpoint() as app:
        await slack.deliver_to(app.url)
        settings = (await manifest())["settings"]
        assert settings["socket_mode_enabled"] is False
        assert settings["event_subscriptions"]["request_url"] == settings["interactivity"]["request_url"] == app.url


@pytest.mark.slack(events=("message", "app_mention"), scopes=("chat:write",), agent_view=False)
async def test_the_default_manifest_describes_the_app(slack, manifest):
    slack.workspace.rules.messages_tab = False
    made = await manifest()
    assert made["oauth_config"]["scopes"]["bot"] == ["chat:write"]
    messages = [f"message.{kind}" for kind in ("channels", "groups", "im", "mpim")]
    assert made["settings"]["event_subscriptions"]["bot_events"] == ["app_mention", *messages]
    assert made["settings"]["socket_mode_enabled"] is True
    assert "agent_view" not in made["features"]
    assert made["features"]["app_home"]["messages_tab_enabled"] is False
