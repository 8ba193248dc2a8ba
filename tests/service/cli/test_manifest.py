"""`amplifier-slack manifest`, and the table of what the app needs."""

from __future__ import annotations

import json

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field
from stored_conversations import run

from connector.setup.manifest import manifest
from connector.setup.scopes import BOT_EVENTS, BOT_SCOPES

URL = "https://agents.example.com/slack/events"


class Part(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class DisplayInformation(Part):
    name: str = Field(min_length=1, max_length=35)
    description: str = Field(min_length=1, max_length=140)


class AppHome(Part):
    home_tab_enabled: bool
    messages_tab_enabled: bool
    messages_tab_read_only_enabled: bool


class BotUser(Part):
    display_name: str = Field(min_length=1, max_length=80)
    always_online: bool


class AgentView(Part):
    agent_description: str = Field(min_length=1)


class Features(Part):
    app_home: AppHome
    bot_user: BotUser
    agent_view: AgentView


class Scopes(Part):
    bot: list[str] = Field(max_length=255)


class OauthConfig(Part):
    scopes: Scopes


class EventSubscriptions(Part):
    request_url: str = Field(default="https://", pattern="^https?://", max_length=3500)
    bot_events: list[str] = Field(max_length=100)


class Interactivity(Part):
    is_enabled: bool
    request_url: str = Field(default="https://", pattern="^https?://", max_length=3500)


class Settings(Part):
    event_subscriptions: EventSubscriptions
    interactivity: Interactivity
    org_deploy_enabled: bool
    socket_mode_enabled: bool
    token_rotation_enabled: bool


class Manifest(Part):
    """What we use of Slack's schema, https://github.com/slackapi/manifest-schema, and `agent_view`, which it lacks."""

    display_information: DisplayInformation
    features: Features
    oauth_config: OauthConfig
    settings: Settings


def written(tmp_path, text):
    path = tmp_path / "agents.yaml"
    path.write_text(text)
    return str(path)


def two_agents(transport="socket"):
    owl, fox = "{persona: {name: Wise Owl, emoji: ':owl:'}}", "{persona: {name: Fox, emoji: ':fox_face:'}}"
    return f"slack: {{transport: {transport}}}\ninstances: {{owl: {owl}, fox: {fox}}}"


@given(
    st.lists(st.text(min_size=1, max_size=80).filter(str.strip), min_size=1, max_size=12), st.sampled_from((None, URL))
)
def test_whatever_the_agents_are_called_the_manifest_is_one_that_slack_takes(names, url):
    made = manifest(names, url)
    Manifest.model_validate(made)
    assert made["settings"]["socket_mode_enabled"] == (url is None)
    assert yaml.safe_load(yaml.safe_dump(made, allow_unicode=True)) == made


def test_it_asks_for_what_is_needed_and_nothing_else():
    made = manifest(["Alpha"])
    assert made["oauth_config"]["scopes"] == {"bot": [need.name for need in BOT_SCOPES]}
    assert made["settings"]["event_subscriptions"] == {"bot_events": [need.name for need in BOT_EVENTS]}


def test_every_event_has_the_scope_under_which_slack_sends_it():
    """https://docs.slack.dev/reference/events, each event's page."""
    scope_of = {
        "app_mention": "app_mentions:read",
        "message.channels": "channels:history",
        "message.groups": "groups:history",
        "message.im": "im:history",
        "message.mpim": "mpim:history",
        "reaction_added": "reactions:read",
        "agent_session_stopped": "assistant:write",
    }
    scopes = {need.name: need for need in BOT_SCOPES}
    assert scope_of.keys() == {need.name for need in BOT_EVENTS}
    for event in BOT_EVENTS:
        assert scopes[scope_of[event.name]].is_required == event.is_required


@pytest.mark.parametrize("needs", [BOT_SCOPES, BOT_EVENTS])
def test_the_tables_are_in_order_and_say_what_each_is_for(needs):
    names = [need.name for need in needs]
    assert names == sorted(set(names))
    assert all(need.purpose for need in needs)


def test_the_app_is_called_like_the_first_agent_and_names_all(tmp_path):
    result = run("manifest", "--config", written(tmp_path, two_agents()))
    assert result.exit_code == 0, result.output
    made = yaml.safe_load(result.stdout)
    assert made["display_information"]["name"] == made["features"]["bot_user"]["display_name"] == "Wise Owl"
    assert "Wise Owl and Fox" in made["display_information"]["description"]
    assert made["features"]["bot_user"]["always_online"]
    assert "From a manifest" in result.stderr


def test_without_a_file_it_is_for_the_default_agent_and_json_says_the_same():
    made = json.loads(run("manifest", "--format", "json").stdout)
    assert made == yaml.safe_load(run("manifest").stdout)
    assert made["display_information"]["name"] == "Alpha"


@pytest.mark.parametrize(
    ("given", "entered"),
    [
        ("https://agents.example.com", URL),
        ("https://agents.example.com/", URL),
        (URL, URL),
        ("https://example.com:8443/bots/one", "https://example.com:8443/bots/one"),
    ],
)
def test_for_the_door_http_slack_is_told_the_address(tmp_path, given, entered):
    made = yaml.safe_load(run("manifest", "--config", written(tmp_path, two_agents("http")), "--url", given).stdout)
    Manifest.model_validate(made)
    settings = made["settings"]
    assert settings["event_subscriptions"]["request_url"] == settings["interactivity"]["request_url"] == entered
    assert not settings["socket_mode_enabled"]


@pytest.mark.parametrize(
    ("transport", "options", "told"),
    [
        ("http", (), "Add --url https://"),
        ("http", ("--url", "agents.example.com"), "--url is not a valid HTTPS URL."),
        ("http", ("--url", "http://agents.example.com"), "--url is not a valid HTTPS URL."),
        ("http", ("--url", "https://[::1"), "--url is not a valid HTTPS URL."),
        ("http", ("--url", "https://a b"), "--url is not a valid HTTPS URL."),
        ("socket", ("--url", URL), "this configuration uses Socket Mode. Leave it out."),
        ("window", (), "slack.transport: must be 'socket' or 'http'."),
    ],
)
def test_what_cannot_be_a_manifest_is_told(tmp_path, transport, options, told):
    result = run("manifest", "--config", written(tmp_path, two_agents(transport)), *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert told in result.stderr
