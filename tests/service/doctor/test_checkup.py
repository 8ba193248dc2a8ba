"""`amplifier-slack doctor`: what it finds in a workspace, and in what it was given."""

from __future__ import annotations

import contextlib
import json
import socket
from email.utils import formatdate

import aiohttp
import pytest
from anthropic_server import AnthropicServer
from pydantic import SecretStr
from redis_server import redis_server
from service_process import run_command
from stored_conversations import run

from connector.setup.manifest import manifest
from connector.setup.scopes import BOT_EVENTS, BOT_SCOPES
from local_slack import ErrorResponse, LocalSlack
from service.config.config import Environment, load_config
from service.doctor import FindingLevel
from service.doctor.app import of_two_apps
from service.doctor.bot import findings_in
from service.doctor.checkup import examined
from service.doctor.web_api import WebApiAnswer

ALL_SCOPES = {need.name for need in BOT_SCOPES}
URL = "https://agents.example.com/slack/events"
HTTP = "slack: {transport: http, listen: '127.0.0.1:%d'}"


def written(folder, text=""):
    path = folder / "agents.yaml"
    persona = "instances: {alpha: {persona: {name: Alpha, emoji: ':owl:'}}}\n"
    path.write_text(
        f"{persona if 'instances' not in text else ''}workspace: {{root: files}}\nstore: sqlite:kept.db\n{text}"
    )
    return path


def variables(slack, **more):
    tokens = {"slack_app_token": slack.app_token, "slack_bot_token": slack.bot_token}
    return {**tokens, "slack_api_url": slack.api_url, "anthropic_api_key": None, "amplifier_slack_store": None, **more}


async def found(slack, folder, text="", **more):
    """What is found, by its area; several findings of one area are in a list."""
    given = {
        name: SecretStr(value) if value and name != "slack_api_url" else value
        for name, value in variables(slack, **more).items()
    }
    areas = {}
    async for finding in examined(load_config(written(folder, text)), Environment(**given)):
        assert "\n" not in finding.message
        for secret in (slack.bot_token, slack.app_token, slack.config_token, slack.signing_secret):
            assert secret not in finding.line
        areas.setdefault(finding.area, []).append(finding)
    return areas


def only(findings):
    (finding,) = findings
    return finding


async def test_where_all_is_well_every_line_says_so(tmp_path, monkeypatch):
    async with LocalSlack(scopes=ALL_SCOPES, manifest=manifest(["Alpha"])) as slack, AnthropicServer() as model:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-of-the-test")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", model.base_url)
        areas = await found(
            slack, tmp_path, slack_config_token=slack.config_token, anthropic_api_key="sk-ant-of-the-test"
        )
        called = {entry["method"] for entry in slack.record if entry["what"] == "call"}
    wanted = ["bot token", "scopes", "clock", "Socket Mode", "events", "app", "store", "workspace", "disk"]
    assert list(areas) == [*wanted, "agent alpha", "model anthropic"]
    assert {only(findings).level for findings in areas.values()} == {FindingLevel.PASSED}
    assert [request.path.partition("?")[0] for request in model.requests] == ["/v1/models"], "which costs nothing"
    assert not (tmp_path / "files").exists(), "nothing is made"
    assert not (tmp_path / "kept.db").exists()
    assert called == {"auth.test", "bots.info", "apps.connections.open", "apps.manifest.export"}, "nothing is posted"


async def test_each_missing_scope_is_told_with_what_it_is_for_and_what_to_do(tmp_path):
    async with LocalSlack(scopes=ALL_SCOPES - {"reactions:write", "users:read"}) as slack:
        needed, lacking = sorted((await found(slack, tmp_path))["scopes"], key=lambda finding: finding.level)
    assert (needed.level, lacking.level) == (FindingLevel.FAILED, FindingLevel.WARNING)
    assert needed.message.startswith("reactions:write is missing; it is required to show the state of a message")
    assert lacking.message.startswith("users:read is missing: agents see user ids instead of names, and")
    assert needed.message.endswith("Add it under OAuth & Permissions → Scopes, and reinstall the app.")


@pytest.mark.parametrize("word", ["invalid_auth", "token_revoked", "account_inactive"])
async def test_a_token_that_slack_does_not_accept_is_told(slack, tmp_path, word):
    slack.faults.next("auth.test", ErrorResponse(word))
    areas = await found(slack, tmp_path)
    assert only(areas["bot token"]).level is FindingLevel.FAILED
    assert f"({word})" in only(areas["bot token"]).message
    assert only(areas["scopes"]).level is FindingLevel.SKIPPED
    assert only(areas["Socket Mode"]).level is FindingLevel.PASSED, "all else is looked at"


@pytest.mark.parametrize(
    ("given", "area", "told"),
    [
        ({"slack_bot_token": None}, "bot token", "SLACK_BOT_TOKEN is not set."),
        ({"slack_bot_token": "xoxp-of-a-person"}, "bot token", "SLACK_BOT_TOKEN does not begin with xoxb-"),
        ({"slack_app_token": None}, "app token", "SLACK_APP_TOKEN is not set."),
        (
            {"slack_app_token": "xapp-1-A0-unknown"},
            "app token",
            "Slack does not accept SLACK_APP_TOKEN (invalid_auth).",
        ),
        ({"slack_config_token": "xoxb-1"}, "events", "SLACK_CONFIG_TOKEN does not begin with xoxe"),
        ({"slack_api_url": "nowhere"}, "Slack", "SLACK_API_URL is not a valid URL"),
    ],
)
async def test_a_token_or_address_that_is_none_is_told(slack, tmp_path, given, area, told):
    finding = only((await found(slack, tmp_path, **given))[area])
    assert finding.level is FindingLevel.FAILED
    assert told in finding.message


async def test_a_slack_that_is_out_of_reach_is_told_once_for_each_thing_that_needs_it(tmp_path):
    async with LocalSlack() as gone:
        pass
    areas = await found(gone, tmp_path)
    assert only(areas["Slack"]).message.startswith(f"cannot be reached at {gone.api_url}")
    assert only(areas["Socket Mode"]).level is FindingLevel.FAILED


def test_tokens_of_two_apps_are_told_and_where_slack_does_not_say_it_nobody_guesses():
    (finding,) = of_two_apps("A0ONE", "A0OTHER")
    assert finding.level is FindingLevel.FAILED
    assert "A0ONE" in finding.message
    assert "A0OTHER" in finding.message
    assert [*of_two_apps("A0ONE", "A0ONE"), *of_two_apps(None, "A0ONE"), *of_two_apps("A0ONE", None)] == []


@pytest.mark.parametrize(
    ("word", "area", "told"),
    [
        ("missing_scope", "app token", "lacks the scope connections:write. Create a token"),
        (
            "not_allowed_token_type",
            "app token",
            "does not accept SLACK_APP_TOKEN (not_allowed_token_type). Create a token",
        ),
        ("forbidden_team", "Socket Mode", "does not open a connection (forbidden_team). Turn it on"),
        ("internal_error", "Socket Mode", "(apps.connections.open: internal_error). Try again."),
    ],
)
async def test_a_connection_that_slack_does_not_open_is_told(slack, tmp_path, word, area, told):
    slack.faults.next("apps.connections.open", ErrorResponse(word))
    finding = only((await found(slack, tmp_path))[area])
    assert (finding.level, told in finding.message) == (FindingLevel.FAILED, True)


async def test_socket_mode_that_is_turned_off_is_told(slack, tmp_path):
    slack.socket_mode.disconnect("link_disabled")
    finding = only((await found(slack, tmp_path))["Socket Mode"])
    assert (finding.level, "Turn it on" in finding.message) == (FindingLevel.FAILED, True)


async def test_where_no_connection_is_left_it_is_told_why(slack, tmp_path):
    async with contextlib.AsyncExitStack() as stack, aiohttp.ClientSession() as http:
        for _ in range(10):
            headers = {"Authorization": f"Bearer {slack.app_token}"}
            async with http.post(f"{slack.api_url}apps.connections.open", headers=headers) as answer:
                url = (await answer.json())["url"]
            await (await stack.enter_async_context(http.ws_connect(url))).receive()
        finding = only((await found(slack, tmp_path))["Socket Mode"])
    assert (finding.level, "maximum of 10 connections" in finding.message) == (FindingLevel.FAILED, True)


async def test_the_doctor_takes_no_event_away(tmp_path):
    """Its connection is closed before an event is acknowledged over it."""
    async with LocalSlack() as slack:
        await found(slack, tmp_path)
        await slack.until(lambda _: not slack.socket_mode.connections)


async def test_without_a_token_for_it_the_settings_are_said_to_be_unknown(slack, tmp_path):
    finding = only((await found(slack, tmp_path))["events"])
    assert finding.level is FindingLevel.SKIPPED
    assert "cannot be read with these tokens" in finding.message
    assert all(need.name in finding.message for need in BOT_EVENTS)


async def test_settings_that_differ_from_the_manifest_are_told_one_by_one(tmp_path):
    other = manifest(["Alpha"], "https://agents.example.com/slack/events")
    other["settings"]["event_subscriptions"]["bot_events"] = ["app_mention", "message.channels", "message.im"]
    other["settings"]["interactivity"]["is_enabled"] = False
    other["features"]["app_home"]["messages_tab_read_only_enabled"] = True
    del other["features"]["agent_view"]
    async with LocalSlack(manifest=other) as slack:
        areas = await found(slack, tmp_path, slack_config_token=slack.config_token)
    events = {finding.message.partition(" ")[0]: finding.level for finding in areas["events"]}
    assert events == {
        "agent_session_stopped": FindingLevel.WARNING,
        "message.groups": FindingLevel.WARNING,
        "message.mpim": FindingLevel.WARNING,
        "reaction_added": FindingLevel.FAILED,
    }
    assert [finding.level for finding in areas["app"]] == [FindingLevel.FAILED] * 3 + [FindingLevel.WARNING]
    assert "Socket Mode is turned off, but `slack.transport` is socket." in areas["app"][2].message


@pytest.mark.parametrize(
    ("events", "clicks", "verdict", "told"),
    [
        (URL, URL, FindingLevel.PASSED, f"Slack sends requests to {URL}."),
        (URL, None, FindingLevel.FAILED, f"events go to {URL}, interactions do not."),
        (None, None, FindingLevel.FAILED, "no URL for events is set."),
    ],
)
async def test_the_addresses_that_slack_has_are_looked_up(tmp_path, events, clicks, verdict, told):
    settings = manifest(["Alpha"], URL)
    settings["settings"]["event_subscriptions"]["request_url"] = events
    settings["settings"]["interactivity"]["request_url"] = clicks
    async with LocalSlack(manifest=settings) as slack:
        more = {"slack_signing_secret": slack.signing_secret, "slack_config_token": slack.config_token}
        finding = only((await found(slack, tmp_path, HTTP % free_port(), **more))["app"])
    assert (finding.level, told in finding.message) == (verdict, True)


@pytest.mark.parametrize(
    ("word", "told"), [("token_expired", "expires after 12 hours"), ("internal_error", "Try again.")]
)
async def test_settings_that_slack_does_not_tell_are_unknown(slack, tmp_path, word, told):
    slack.faults.next("apps.manifest.export", ErrorResponse(word))
    finding = only((await found(slack, tmp_path, slack_config_token=slack.config_token))["events"])
    assert finding.level is FindingLevel.SKIPPED
    assert told in finding.message


@pytest.mark.parametrize(
    ("late_s", "verdict", "told"),
    [
        (0, FindingLevel.PASSED, "agrees"),
        (-20, FindingLevel.PASSED, "agrees"),
        (100, FindingLevel.WARNING, "100 s ahead of"),
        (-100, FindingLevel.WARNING, "100 s behind"),
        (301, FindingLevel.FAILED, "301 s ahead of Slack's. Synchronize this machine's time (NTP)."),
    ],
)
def test_a_clock_that_is_off_is_told_with_how_much(late_s, verdict, told):
    answer = WebApiAnswer({"bot_id": "B0"}, {"date": formatdate(1_700_000_000, usegmt=True)}, 1_700_000_000 + late_s)
    finding = list(findings_in(answer))[-1]
    assert (finding.area, finding.level) == ("clock", verdict)
    assert told in finding.message


@pytest.mark.parametrize("headers", [{}, {"date": "yesterday"}])
def test_where_slack_tells_no_time_and_no_scopes_nothing_is_said_about_them(headers):
    _, scopes, clock = findings_in(WebApiAnswer({"bot_id": "B0"}, headers, 0))
    assert scopes.level is clock.level is FindingLevel.SKIPPED


def free_port():
    with socket.create_server(("127.0.0.1", 0)) as server:
        return server.getsockname()[1]


async def test_the_door_http_is_looked_at_where_it_will_be(slack, tmp_path):
    port = free_port()
    areas = await found(slack, tmp_path, HTTP % port, slack_app_token=None, slack_signing_secret=slack.signing_secret)
    assert only(areas["HTTP transport"]).level is FindingLevel.PASSED
    assert "https://YOUR-HOST/slack/events" in only(areas["HTTP transport"]).message
    assert "app token" not in areas


async def test_another_program_at_the_door_is_told(slack, tmp_path):
    async with AnthropicServer() as other:
        port = int(other.base_url.rpartition(":")[2])
        areas = await found(slack, tmp_path, HTTP % port, slack_signing_secret=slack.signing_secret)
    assert only(areas["HTTP transport"]).level is FindingLevel.FAILED
    assert "is in use by another program" in only(areas["HTTP transport"]).message


async def test_the_service_itself_at_the_door_is_known_by_its_answer(slack, stage, tmp_path):
    port = free_port()
    path = written(tmp_path, HTTP % port)
    secret = {"SLACK_SIGNING_SECRET": slack.signing_secret}
    async with stage.serving("--config", str(path), **secret) as service:
        await service.says("service.ready")
        areas = await found(slack, tmp_path, HTTP % port, slack_signing_secret=slack.signing_secret)
        other = await found(slack, tmp_path, HTTP % port, slack_signing_secret="another-secret")
    assert only(areas["HTTP transport"]).message.startswith(f"the service answers at 127.0.0.1:{port}.")
    assert only(areas["store"]).level is FindingLevel.PASSED, "it is looked at while the service uses it"
    assert only(other["HTTP transport"]).level is FindingLevel.FAILED


async def test_a_missing_signing_secret_is_told(slack, tmp_path):
    finding = only((await found(slack, tmp_path, HTTP % free_port()))["signing secret"])
    assert (finding.level, "SLACK_SIGNING_SECRET is not set" in finding.message) == (FindingLevel.FAILED, True)


async def test_a_module_that_cannot_be_mounted_is_told_by_its_agent(slack, tmp_path):
    persona = "{name: A, emoji: ':owl:'}"
    text = f"instances: {{a: {{persona: {persona}, tools: [tool-nowhere]}}, b: {{persona: {persona}}}}}"
    areas = await found(slack, tmp_path, text)
    assert only(areas["agent a"]).message.startswith("There is no module 'tool-nowhere'.")
    assert only(areas["agent b"]).level is FindingLevel.PASSED
    assert only(areas["model demo"]).level is FindingLevel.WARNING
    assert "offline demo without a model" in only(areas["model demo"]).message


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        ((401, "authentication_error"), "does not accept the key. Check ANTHROPIC_API_KEY."),
        ((400, "invalid_request_error"), "the models cannot be listed"),
    ],
)
async def test_a_key_that_is_not_accepted_is_told(slack, tmp_path, monkeypatch, failure, told):
    async with AnthropicServer() as model:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-of-the-test")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", model.base_url)
        model.fail(*failure)
        finding = only((await found(slack, tmp_path, anthropic_api_key="sk-ant-of-the-test"))["model anthropic"])
    assert finding.level is FindingLevel.FAILED
    assert told in finding.message


async def test_a_model_that_the_key_may_not_use_is_told(slack, tmp_path, monkeypatch):
    async with AnthropicServer() as model:
        monkeypatch.setenv("ANTHROPIC_API_KEY", "sk-ant-of-the-test")
        monkeypatch.setenv("ANTHROPIC_BASE_URL", model.base_url)
        made = {"type": "model", "created_at": "2026-01-01T00:00:00Z", "display_name": "Other"}
        model.models = [{**made, "id": "claude-other"}]
        finding = only((await found(slack, tmp_path, anthropic_api_key="sk-ant-of-the-test"))["model anthropic"])
        model.models.append({**made, "id": "claude-sonnet-5-20260401"})
        better = only((await found(slack, tmp_path, anthropic_api_key="sk-ant-of-the-test"))["model anthropic"])
    assert (finding.level, better.level) == (FindingLevel.WARNING, FindingLevel.PASSED)
    assert "claude-sonnet-5 is not one of the 1 models available to the key: claude-other." in finding.message


@pytest.mark.parametrize("url", ["mysql://x", "sqlite:", "sqlite://kept.db"])
async def test_a_url_that_is_no_stores_is_wrong_as_it_is_for_the_service(slack, tmp_path, url):
    areas = await found(slack, tmp_path, amplifier_slack_store=url)
    assert only(areas["store"]).level is FindingLevel.FAILED


async def test_a_store_that_cannot_be_used_is_told(slack, tmp_path):
    with redis_server() as server:
        areas = await found(slack, tmp_path, amplifier_slack_store=server.url)
        assert only(areas["store"]).level is FindingLevel.PASSED
        assert not server.ask("KEYS", "*"), "nothing is left there"
        server.kill()
        areas = await found(slack, tmp_path, amplifier_slack_store=server.url)
    assert only(areas["store"]).level is FindingLevel.FAILED
    (tmp_path / "kept.db").write_text("this is no database, but a text that is long enough to be taken for one")
    assert only((await found(slack, tmp_path))["store"]).level is not FindingLevel.PASSED
    (tmp_path / "file").write_text("")
    areas = await found(slack, tmp_path, "", amplifier_slack_store=f"sqlite:{tmp_path}/file/kept.db")
    assert only(areas["store"]).level is FindingLevel.FAILED


async def test_the_command_says_it_in_lines_and_by_its_exit_code(tmp_path):
    async with LocalSlack(scopes=ALL_SCOPES) as slack:
        env = {name.upper(): value for name, value in variables(slack).items() if value}
        path = str(written(tmp_path))
        well = await run_command("doctor", "--config", path, env=env)
        wrong = await run_command(
            "doctor", "--config", path, "--json", env={**env, "SLACK_BOT_TOKEN": "xoxb-of-the-test"}
        )
    assert well.code == 0, well.output
    assert well.output.splitlines()[0].startswith("✓ configuration")
    assert well.output.splitlines()[-1] == "No problems found, 1 warning (!), 1 check skipped (–)."  # noqa: RUF001
    assert wrong.code == 1, wrong.output
    told = json.loads(wrong.output)
    assert not told["holds"]
    assert {"area": "configuration", "level": "passed"}.items() <= told["findings"][0].items()
    assert "of-the-test" not in wrong.output


def test_a_configuration_that_cannot_be_read_is_an_error_of_its_own(tmp_path):
    result = run("doctor", "--config", str(tmp_path / "nowhere.yaml"))
    assert result.exit_code == 2
    assert "cannot be read" in result.output


async def test_what_of_the_template_is_not_copied_is_told(slack, tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "may.md").symlink_to("gone.md")
    text = "workspace: {root: files, template: notes}"
    path = written(tmp_path)
    path.write_text(path.read_text().replace("workspace: {root: files}", text))
    finding = only([f async for f in examined(load_config(path), Environment()) if f.area == "workspace"])
    assert finding.level is FindingLevel.WARNING
    assert finding.message == (
        f"workspace.template: not copied: may.md is a broken link to {tmp_path}/notes/gone.md: No such file or "
        "directory. Remove or fix it."
    )


async def test_a_disk_with_less_than_the_reserve_is_told(slack, tmp_path):
    path = written(tmp_path)
    path.write_text(path.read_text().replace("{root: files}", "{root: files, reserve_mb: 1000000000}"))
    finding = only([f async for f in examined(load_config(path), Environment()) if f.area == "disk"])
    assert finding.level is FindingLevel.WARNING
    assert finding.message.startswith("free: workspaces ")
    assert (
        "workspace.reserve_mb is 1,000,000,000. Free space on the disk of the workspaces and the store"
        in finding.message
    )
