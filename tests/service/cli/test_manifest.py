from __future__ import annotations

import json

import pytest
import yaml
from stored_conversations import run

URL = "https://agents.example.com/slack/events"


@pytest.fixture
def run_with(config_file):
    """Run the command for a configuration with two agents and this transport."""

    def run_with(door, *options):
        owl, fox = "{persona: {name: Wise Owl, emoji: ':owl:'}}", "{persona: {name: Fox, emoji: ':fox_face:'}}"
        config = config_file(f"slack: {{transport: {door}}}\ninstances: {{owl: {owl}, fox: {fox}}}")
        return run("manifest", "--config", str(config), *options)

    return run_with


def test_the_app_has_the_name_of_the_first_agent_and_its_description_names_all(run_with):
    result = run_with("socket")
    assert result.exit_code == 0, result.output
    made = yaml.safe_load(result.stdout)
    assert made["display_information"]["name"] == made["features"]["bot_user"]["display_name"] == "Wise Owl"
    assert "Wise Owl and Fox" in made["display_information"]["description"]
    assert made["features"]["bot_user"]["always_online"]
    assert "From a manifest" in result.stderr


def test_the_manifest_suggests_the_prompts_of_the_section_and_of_each_agent(config_file):
    def prompt(title):
        return f"suggested_prompts: [{{title: {title}, message: hi}}]"

    owl, fox = "persona: {name: Wise Owl, emoji: ':owl:'}", "persona: {name: Fox, emoji: ':fox_face:'}"
    agents = f"{{owl: {{{owl}, {prompt('Of the owl')}}}, fox: {{{fox}, {prompt('Of the fox')}}}}}"
    config = config_file(f"slack: {{{prompt('Of all')}}}\ninstances: {agents}")
    made = yaml.safe_load(run("manifest", "--config", str(config)).stdout)
    suggested = made["features"]["agent_view"]["suggested_prompts"]
    assert [each["title"] for each in suggested] == ["Of all", "Of the owl", "Of the fox"]


def test_without_a_file_the_manifest_is_for_the_default_agent_in_both_formats():
    made = json.loads(run("manifest", "--format", "json").stdout)
    assert made == yaml.safe_load(run("manifest").stdout)
    assert made["display_information"]["name"] == "Alpha"


@pytest.mark.parametrize(
    ("url", "request_url"),
    [
        ("https://agents.example.com", URL),
        ("https://agents.example.com/", URL),
        (URL, URL),
        ("https://example.com:8443/bots/one", "https://example.com:8443/bots/one"),
    ],
)
def test_for_http_the_manifest_contains_the_request_url(run_with, url, request_url):
    settings = yaml.safe_load(run_with("http", "--url", url).stdout)["settings"]
    assert settings["event_subscriptions"]["request_url"] == settings["interactivity"]["request_url"] == request_url
    assert not settings["socket_mode_enabled"]


@pytest.mark.parametrize(
    ("door", "options", "message"),
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
def test_a_missing_or_wrong_url_is_an_error(run_with, door, options, message):
    result = run_with(door, *options)
    assert (result.exit_code, result.stdout) == (2, "")
    assert message in result.stderr
