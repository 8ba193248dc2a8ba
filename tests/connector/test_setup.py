from __future__ import annotations

import pytest
import yaml
from chat import ALPHA
from fake_sessions import FakeSessionManager
from hypothesis import given
from hypothesis import strategies as st

from connector import ConnectionRefused, SlackCredentials, SocketTransport
from connector.app import ConnectorParts, connected
from connector.setup import BOT_EVENTS, BOT_SCOPES, INSTALLATION_EVENTS, manifest
from connector.workspaces import WorkspaceSettings
from local_slack import DropBeforeCall, LocalSlack, RateLimited, ServerError

URL = "https://agents.example.com/slack/events"


@given(
    st.lists(st.text(min_size=1, max_size=80).filter(str.strip), min_size=1, max_size=12), st.sampled_from((None, URL))
)
def test_the_manifest_is_valid_for_any_names_of_agents(names, url):
    """The limits of https://github.com/slackapi/manifest-schema."""
    made = manifest(names, url)
    shown, bot = made["display_information"], made["features"]["bot_user"]
    assert 1 <= len(shown["name"]) <= 35
    assert 1 <= len(shown["description"]) <= 140
    assert 1 <= len(bot["display_name"]) <= 80
    assert yaml.safe_load(yaml.safe_dump(made, allow_unicode=True)) == made


@pytest.mark.parametrize("url", [None, URL])
def test_the_manifest_has_the_structure_of_the_schema_of_slack(url):
    """That schema lacks `agent_view`."""
    to_url = {"request_url": url} if url else {}
    made = manifest(["Alpha"], url)
    description = made["display_information"]["description"]
    assert made == {
        "display_information": {"name": "Alpha", "description": description},
        "features": {
            "app_home": {
                "home_tab_enabled": True,
                "messages_tab_enabled": True,
                "messages_tab_read_only_enabled": False,
            },
            "bot_user": {"display_name": "Alpha", "always_online": True},
            "agent_view": {"agent_description": description, "actions": made["features"]["agent_view"]["actions"]},
            "shortcuts": made["features"]["shortcuts"],
            "slash_commands": made["features"]["slash_commands"],
        },
        "oauth_config": {"scopes": {"bot": [need.name for need in BOT_SCOPES]}},
        "settings": {
            "event_subscriptions": {**to_url, "bot_events": [need.name for need in BOT_EVENTS]},
            "interactivity": {"is_enabled": True, **to_url},
            "org_deploy_enabled": False,
            "socket_mode_enabled": url is None,
            "token_rotation_enabled": False,
        },
    }


@pytest.mark.parametrize("url", [None, "https://bot.example/slack/events"])
def test_the_manifest_offers_the_slash_command_and_the_actions_on_messages(url):
    features = manifest(["Alpha"], url, "/helper")["features"]
    (command,) = features["slash_commands"]
    assert command["command"] == "/helper"
    assert command.get("url") == url
    # https://docs.slack.dev/reference/app-manifest: the length limits of a shortcut
    for shortcut in features["shortcuts"]:
        assert shortcut["type"] == "message"
        assert len(shortcut["name"]) <= 24
        assert len(shortcut["description"]) <= 150
    assert [shortcut["callback_id"] for shortcut in features["shortcuts"]] == [
        "ask",
        "fork",
        "rerun",
        "summarise",
    ]


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("A", "Ask A about this message"),
        ("Amplifier", "Ask Amplifier about this"),
        ("Amplifiers", "Ask Amplifiers"),
        ("A very long name of an agent", "Ask A very long name of…"),
    ],
)
def test_the_action_that_asks_has_the_name_of_the_first_agent_as_far_as_slack_permits(name, shown):
    assert manifest([name, "Beta"])["features"]["shortcuts"][0]["name"] == shown


def test_the_manifest_suggests_prompts_of_all_agents_up_to_the_limit_of_slack():
    general, alpha, beta = [("G1", "g")], [("A1", "a"), ("A2", "a"), ("A3", "a")], [("B1", "b"), ("G1", "g")]
    view = manifest(["Alpha", "Beta"], prompts=[general, alpha, beta])["features"]["agent_view"]
    assert [each["title"] for each in view["suggested_prompts"]] == ["G1", "A1", "B1", "A2"]
    assert view["suggested_prompts"][0] == {"title": "G1", "message": "g"}
    assert all({"name", "description"} == each.keys() for each in view["actions"])


def test_each_event_has_the_scope_that_slack_requires_for_it():
    """https://docs.slack.dev/reference/events, each event's page."""
    scope_of = {
        "app_mention": "app_mentions:read",
        "message.channels": "channels:history",
        "message.groups": "groups:history",
        "message.im": "im:history",
        "message.mpim": "mpim:history",
        "reaction_added": "reactions:read",
        "agent_session_stopped": "assistant:write",
        "app_context_changed": "assistant:write",
        "app_home_opened": "assistant:write",
    }
    scopes = {need.name: need for need in BOT_SCOPES}
    assert scope_of.keys() == {need.name for need in BOT_EVENTS}
    for event in BOT_EVENTS:
        assert scopes[scope_of[event.name]].is_required == event.is_required


@pytest.mark.parametrize("needs", [BOT_SCOPES, BOT_EVENTS, INSTALLATION_EVENTS])
def test_each_scope_and_event_has_a_purpose_and_they_are_sorted(needs):
    names = [need.name for need in needs]
    assert names == sorted(set(names))
    assert all(need.purpose for need in needs)


@pytest.fixture
def refusal(runs, slack):
    """Try to connect; return the reason of the refusal."""

    async def refusal(*, bot_token: str = "", app_token: str = "", url: str = "") -> str:
        transport = SocketTransport(app_token or slack.app_token)
        credentials = SlackCredentials(bot_token or slack.bot_token, url or slack.api_url, transport)
        settings = WorkspaceSettings([ALPHA])
        parts = ConnectorParts(sessions=FakeSessionManager(), runs=runs, settings_of=lambda _: settings)
        with pytest.raises(ConnectionRefused) as refused:
            async with connected(credentials, parts):
                pass
        assert "\n" not in str(refused.value)
        return str(refused.value)

    return refusal


async def test_a_wrong_token_is_named(refusal):
    assert "SLACK_BOT_TOKEN (invalid_auth)" in await refusal(bot_token="xoxb-wrong")
    assert "SLACK_APP_TOKEN (invalid_auth)" in await refusal(app_token="xapp-wrong")


async def test_an_unreachable_slack_is_named(refusal):
    async with LocalSlack() as gone:
        url = gone.api_url
    assert f"Slack cannot be reached at {url}" in await refusal(url=url)


@pytest.mark.parametrize("fault", [DropBeforeCall(), ServerError(503), ServerError(200)])
@pytest.mark.parametrize("method", ["auth.test", "apps.connections.open"])
async def test_a_slack_that_fails_is_not_reported_as_a_wrong_token(refusal, slack, method, fault):
    slack.faults.next(method, fault, times=4)
    assert "does not accept" not in await refusal()


async def test_an_address_without_a_web_api_is_not_reported_as_a_wrong_token(refusal, slack):
    reason = await refusal(url=slack.url)
    assert "does not accept" not in reason
    assert "SLACK_API_URL" in reason


async def test_the_connection_waits_for_a_rate_limit(process, slack):
    slack.faults.next("auth.test", RateLimited(0))
    slack.faults.next("apps.connections.open", RateLimited(0))
    async with process():
        pass
