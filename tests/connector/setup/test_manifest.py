from __future__ import annotations

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from connector.setup.manifest import BOT_EVENTS, BOT_SCOPES, manifest

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
    """The part of https://github.com/slackapi/manifest-schema in use, and `agent_view`, which it lacks."""

    display_information: DisplayInformation
    features: Features
    oauth_config: OauthConfig
    settings: Settings


@given(
    st.lists(st.text(min_size=1, max_size=80).filter(str.strip), min_size=1, max_size=12), st.sampled_from((None, URL))
)
def test_the_manifest_is_valid_for_any_names_of_agents(names, url):
    made = manifest(names, url)
    Manifest.model_validate(made)
    assert made["settings"]["socket_mode_enabled"] == (url is None)
    assert yaml.safe_load(yaml.safe_dump(made, allow_unicode=True)) == made


def test_the_manifest_requests_the_listed_scopes_and_events_only():
    made = manifest(["Alpha"])
    assert made["oauth_config"]["scopes"] == {"bot": [need.name for need in BOT_SCOPES]}
    assert made["settings"]["event_subscriptions"] == {"bot_events": [need.name for need in BOT_EVENTS]}


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
    }
    scopes = {need.name: need for need in BOT_SCOPES}
    assert scope_of.keys() == {need.name for need in BOT_EVENTS}
    for event in BOT_EVENTS:
        assert scopes[scope_of[event.name]].is_required == event.is_required


@pytest.mark.parametrize("needs", [BOT_SCOPES, BOT_EVENTS])
def test_each_scope_and_event_has_a_purpose_and_they_are_sorted(needs):
    names = [need.name for need in needs]
    assert names == sorted(set(names))
    assert all(need.purpose for need in needs)
