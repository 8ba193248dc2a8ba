"""`amplifier-slack doctor`: the findings about a workspace, the configuration and the credentials."""

from __future__ import annotations

import contextlib
import json
from base64 import b64encode
from contextlib import aclosing
from email.utils import formatdate
from uuid import uuid4

import aiohttp
import foreign_loops
import pytest
from anthropic_server import AnthropicServer
from pydantic import SecretStr
from redis_server import redis_server
from sandboxes import require
from service_process import run_command
from slack_sdk.oauth.installation_store import Installation
from stored_conversations import run

from connector.setup import BOT_EVENTS, BOT_SCOPES, manifest
from local_slack import Client, ErrorResponse, LocalSlack
from orchestrator_interactive.storage.retry import StoreRetryPolicy, retrying
from service.config.config import Environment, load_config
from service.doctor import FindingLevel
from service.doctor.checkup import examined
from service.doctor.slack_app import SlackProbeAnswer, findings_in, of_two_apps
from service.installations.stored import StoredInstallations
from service.store import open_run_store
from service.vault import Vault

PASSED, WARNING, FAILED, SKIPPED = FindingLevel.PASSED, FindingLevel.WARNING, FindingLevel.FAILED, FindingLevel.SKIPPED
ALL_SCOPES = {need.name for need in BOT_SCOPES}
URL = "https://agents.example.com/slack/events"
HTTP = "slack: {transport: http, listen: '127.0.0.1:%d'}"
INSTANCE = "instances: {alpha: {persona: {name: Alpha, emoji: ':owl:'}}}\n"
KEY = "sk-ant-of-the-test"


def variables(slack, **more):
    tokens = {"slack_app_token": slack.app_token, "slack_bot_token": slack.bot_token}
    return {**tokens, "slack_api_url": slack.api_url, "anthropic_api_key": None, "amplifier_slack_store": None, **more}


@pytest.fixture
def config_text():
    def config_text(text="", workspace="{root: files}"):
        instances = "" if "instances" in text else INSTANCE
        return f"{instances}workspace: {workspace}\nstore: sqlite:kept.db\n{text}"

    return config_text


@pytest.fixture
def findings(config_file, config_text):
    """Run all checks; return the findings of each area."""

    async def findings(slack, text="", *, workspace="{root: files}", **more):
        given = {
            name: SecretStr(value)
            if value and name not in ("slack_api_url", "slack_client_id", "amplifier_slack_sessions")
            else value
            for name, value in variables(slack, **more).items()
        }
        areas = {}
        config = load_config(config_file(config_text(text, workspace)))
        async for finding in examined(config, Environment(**given)):
            assert "\n" not in finding.message
            for secret in (slack.bot_token, slack.app_token, slack.config_token, slack.signing_secret):
                assert secret not in finding.line
            areas.setdefault(finding.area, []).append(finding)
        return areas

    return findings


@pytest.fixture
def finding(findings):
    """Run all checks; return the only finding of an area."""

    async def finding(area, slack, text="", **more):
        (only,) = (await findings(slack, text, **more))[area]
        return only

    return finding


async def test_a_working_set_up_has_no_problem_and_nothing_is_changed(findings, model, tmp_path):
    async with LocalSlack(scopes=ALL_SCOPES, manifest=manifest(["Alpha"])) as slack:
        areas = await findings(slack, slack_config_token=slack.config_token, anthropic_api_key=KEY)
        called = {entry["method"] for entry in slack.record if entry["what"] == "call"}
    checks = ["bot token", "scopes", "clock", "Socket Mode", "events", "app", "store", "workspace", "disk"]
    assert list(areas) == [*checks, "agent alpha", "model anthropic"]
    assert [[each.level for each in found] for found in areas.values()] == [[PASSED]] * len(areas)
    assert [request.path.partition("?")[0] for request in model.requests] == ["/v1/models"], "which is free of charge"
    assert not (tmp_path / "files").exists()
    assert not (tmp_path / "kept.db").exists()
    assert called == {"auth.test", "bots.info", "apps.connections.open", "apps.manifest.export"}, "nothing is posted"


async def test_each_missing_scope_is_reported_with_its_purpose_and_remedy(findings):
    async with LocalSlack(scopes=ALL_SCOPES - {"reactions:write", "users:read"}) as slack:
        needed, lacking = sorted((await findings(slack))["scopes"], key=lambda finding: finding.level)
    assert (needed.level, lacking.level) == (FAILED, WARNING)
    assert needed.message.startswith("reactions:write is missing; it is required to show the state of a message")
    assert lacking.message.startswith("users:read is missing: agents see user ids instead of names, and")
    assert needed.message.endswith("Add it under OAuth & Permissions → Scopes, and reinstall the app.")


@pytest.mark.parametrize("error", ["invalid_auth", "token_revoked", "account_inactive"])
async def test_a_refused_bot_token_leaves_the_other_checks_working(slack, findings, error):
    slack.faults.next("auth.test", ErrorResponse(error))
    areas = await findings(slack)
    assert f"({error})" in areas["bot token"][0].message
    levels = [areas[area][0].level for area in ("bot token", "scopes", "Socket Mode")]
    assert levels == [FAILED, SKIPPED, PASSED]


@pytest.mark.parametrize(
    ("given", "area", "message"),
    [
        ({"slack_bot_token": None}, "bot token", "SLACK_BOT_TOKEN is not set."),
        ({"slack_bot_token": "xoxp-of-a-person"}, "bot token", "SLACK_BOT_TOKEN does not begin with xoxb-"),
        ({"slack_app_token": None}, "app token", "SLACK_APP_TOKEN is not set."),
        ({"slack_app_token": "xapp-1-A0-unknown"}, "app token", "does not accept SLACK_APP_TOKEN (invalid_auth)."),
        ({"slack_config_token": "xoxb-1"}, "events", "SLACK_CONFIG_TOKEN does not begin with xoxe"),
        ({"slack_api_url": "nowhere"}, "Slack", "SLACK_API_URL is not a valid URL"),
        ({"amplifier_slack_store": "mysql://x"}, "store", ""),
        ({"amplifier_slack_store": "sqlite:"}, "store", ""),
        ({"amplifier_slack_store": "sqlite://kept.db"}, "store", ""),
    ],
)
async def test_a_wrong_environment_variable_is_reported(slack, finding, given, area, message):
    found = await finding(area, slack, **given)
    assert found.level is FAILED
    assert message in found.message


async def test_an_unreachable_slack_is_reported_by_each_check_that_needs_it(findings):
    async with LocalSlack() as gone:
        pass
    areas = await findings(gone)
    assert areas["Slack"][0].message.startswith(f"cannot be reached at {gone.api_url}")
    assert areas["Socket Mode"][0].level is FAILED


def test_tokens_of_two_apps_are_reported_if_both_apps_are_known():
    (finding,) = of_two_apps("A0ONE", "A0OTHER")
    assert finding.level is FAILED
    assert "A0ONE" in finding.message
    assert "A0OTHER" in finding.message
    for one, other in (("A0ONE", "A0ONE"), (None, "A0ONE"), ("A0ONE", None)):
        assert of_two_apps(one, other) == []


@pytest.mark.parametrize(
    ("error", "area", "message"),
    [
        ("missing_scope", "app token", "lacks the scope connections:write. Create a token"),
        ("not_allowed_token_type", "app token", "SLACK_APP_TOKEN (not_allowed_token_type). Create a token"),
        ("forbidden_team", "Socket Mode", "does not open a connection (forbidden_team). Turn it on"),
        ("internal_error", "Socket Mode", "(apps.connections.open: internal_error). Try again."),
    ],
)
async def test_a_refused_connection_is_reported_with_its_remedy(slack, finding, error, area, message):
    slack.faults.next("apps.connections.open", ErrorResponse(error))
    found = await finding(area, slack)
    assert (found.level, message in found.message) == (FAILED, True)


async def test_disabled_socket_mode_is_reported(slack, finding):
    slack.socket_mode.disconnect("link_disabled")
    found = await finding("Socket Mode", slack)
    assert (found.level, "Turn it on" in found.message) == (FAILED, True)


async def test_the_maximum_of_connections_is_reported(slack, finding):
    async with contextlib.AsyncExitStack() as stack, aiohttp.ClientSession() as http:
        for _ in range(10):
            headers = {"Authorization": f"Bearer {slack.app_token}"}
            async with http.post(f"{slack.api_url}apps.connections.open", headers=headers) as answer:
                url = (await answer.json())["url"]
            await (await stack.enter_async_context(http.ws_connect(url))).receive()
        found = await finding("Socket Mode", slack)
    assert (found.level, "maximum of 10 connections" in found.message) == (FAILED, True)


async def test_the_test_connection_is_closed(slack, findings):
    await findings(slack)
    await slack.until(lambda _: not slack.socket_mode.connections)


async def test_without_a_config_token_the_settings_are_unknown(slack, finding):
    found = await finding("events", slack)
    assert found.level is SKIPPED
    assert "cannot be read with these tokens" in found.message
    assert all(need.name in found.message for need in BOT_EVENTS)


async def test_each_setting_that_differs_from_the_manifest_is_reported(findings):
    other = manifest(["Alpha"], URL)
    other["settings"]["event_subscriptions"]["bot_events"] = ["app_mention", "message.channels", "message.im"]
    other["settings"]["interactivity"]["is_enabled"] = False
    other["features"]["app_home"]["messages_tab_read_only_enabled"] = True
    del other["features"]["agent_view"]
    async with LocalSlack(manifest=other) as slack:
        areas = await findings(slack, slack_config_token=slack.config_token)
    assert {finding.message.partition(" ")[0]: finding.level for finding in areas["events"]} == {
        "agent_session_stopped": WARNING,
        "app_context_changed": WARNING,
        "app_home_opened": WARNING,
        "message.groups": WARNING,
        "message.mpim": WARNING,
        "reaction_added": FAILED,
    }
    assert [finding.level for finding in areas["app"]] == [FAILED] * 3 + [WARNING]
    assert "Socket Mode is turned off, but `slack.transport` is socket." in areas["app"][2].message


@pytest.mark.parametrize(
    ("events", "clicks", "level", "message"),
    [
        (URL, URL, PASSED, f"Slack sends requests to {URL}."),
        (URL, None, FAILED, f"events go to {URL}, interactions do not."),
        (None, None, FAILED, "no URL for events is set."),
    ],
)
async def test_the_request_urls_of_the_app_are_checked(  # noqa: PLR0917 - parameters
    finding, free_port, events, clicks, level, message
):
    app = manifest(["Alpha"], URL)
    app["settings"]["event_subscriptions"]["request_url"] = events
    app["settings"]["interactivity"]["request_url"] = clicks
    async with LocalSlack(manifest=app) as slack:
        secrets = {"slack_signing_secret": slack.signing_secret, "slack_config_token": slack.config_token}
        found = await finding("app", slack, HTTP % free_port, **secrets)
    assert (found.level, message in found.message) == (level, True)


@pytest.mark.parametrize(
    ("transport", "teams", "first", "words"),
    [
        ("http", ["T0GONE", "T0LOCAL"], "tokens_revoked", "is missing: revoked tokens are deleted a day later."),
        ("socket", ["T0LOCAL"], "tokens_revoked", "is missing: revoked tokens"),
        ("http", ["T0GONE"], "cannot", "be read before a token of the app works. Compare the App Manifest"),
    ],
)
async def test_the_events_about_installations_are_checked_if_the_token_of_one_works(  # noqa: PLR0917 - parameters
    findings, tmp_path, transport, teams, first, words
):
    app, key = manifest(["Alpha"], URL, return_url="https://agents.example.com/r"), b64encode(bytes(32)).decode()
    app["settings"]["event_subscriptions"]["bot_events"].remove("tokens_revoked")
    connections = (
        f"connections: {{public_url: 'https://agents.example.com', listen: '127.0.0.1:1', keys: {{k: {key}}}}}"
    )
    text = f"slack: {{transport: {transport}}}\n{connections}\ninstallations: {{allow: any}}"
    async with (
        LocalSlack(client=Client("1.2", "s3cret"), scopes=ALL_SCOPES, manifest=app) as slack,
        aclosing(await open_run_store(f"sqlite:{tmp_path}/kept.db")) as store,
    ):
        stored = StoredInstallations(retrying(store, StoreRetryPolicy()), Vault({"k": key}), None, None)
        for team in teams:
            token = slack.bot_token if team == slack.team_id else "xoxb-gone"
            await stored.async_save(Installation(user_id="U1", team_id=team, bot_token=token))
        client = {"slack_client_id": "1.2", "slack_client_secret": "s3cret", "slack_bot_token": None}
        secrets = {"slack_signing_secret": slack.signing_secret, "slack_config_token": slack.config_token}
        areas = await findings(slack, text, **client, **secrets)
    (found,) = areas["events"]
    assert found.message.startswith(f"{first} {words}")


@pytest.mark.parametrize(
    ("error", "message"), [("token_expired", "expires after 12 hours"), ("internal_error", "Try again.")]
)
async def test_settings_that_slack_does_not_return_are_unknown(slack, finding, error, message):
    slack.faults.next("apps.manifest.export", ErrorResponse(error))
    found = await finding("events", slack, slack_config_token=slack.config_token)
    assert found.level is SKIPPED
    assert message in found.message


@pytest.mark.parametrize(
    ("late_s", "level", "message"),
    [
        (0, PASSED, "agrees"),
        (-20, PASSED, "agrees"),
        (100, WARNING, "100 s ahead of"),
        (-100, WARNING, "100 s behind"),
        (301, FAILED, "301 s ahead of Slack's. Synchronize this machine's time (NTP)."),
    ],
)
def test_the_difference_of_the_clocks_is_reported(late_s, level, message):
    answer = SlackProbeAnswer(
        {"bot_id": "B0"}, {"date": formatdate(1_700_000_000, usegmt=True)}, 1_700_000_000 + late_s
    )
    finding = findings_in(answer)[-1]
    assert (finding.area, finding.level) == ("clock", level)
    assert message in finding.message


@pytest.mark.parametrize("headers", [{}, {"date": "yesterday"}])
def test_without_the_headers_scopes_and_clock_are_unknown(headers):
    _, scopes, clock = findings_in(SlackProbeAnswer({"bot_id": "B0"}, headers, 0))
    assert scopes.level is clock.level is SKIPPED


async def test_the_address_of_the_http_transport_is_checked(slack, findings, free_port):
    secret = {"slack_signing_secret": slack.signing_secret}
    areas = await findings(slack, HTTP % free_port, slack_app_token=None, **secret)
    (found,) = areas["HTTP transport"]
    assert (found.level, "https://YOUR-HOST/slack/events" in found.message) == (PASSED, True)
    assert "app token" not in areas
    async with AnthropicServer() as other:
        port = int(other.base_url.rpartition(":")[2])
        (found,) = (await findings(slack, HTTP % port, **secret))["HTTP transport"]
    assert (found.level, "is in use by another program" in found.message) == (FAILED, True)


async def test_a_running_service_is_recognised_by_its_answer(  # noqa: PLR0917 - fixtures
    slack, environment, findings, config_file, config_text, free_port
):
    text = HTTP % free_port
    config = str(config_file(config_text(text)))
    async with environment.serving("--config", config, SLACK_SIGNING_SECRET=slack.signing_secret) as service:
        await service.says("service.ready")
        areas = await findings(slack, text, slack_signing_secret=slack.signing_secret)
        other = await findings(slack, text, slack_signing_secret="another-secret")
    assert areas["HTTP transport"][0].message.startswith(f"the service answers at 127.0.0.1:{free_port}.")
    assert areas["store"][0].level is PASSED, "the service uses it at the same time"
    assert other["HTTP transport"][0].level is FAILED


async def test_a_missing_signing_secret_is_reported(slack, finding, free_port):
    found = await finding("signing secret", slack, HTTP % free_port)
    assert (found.level, "SLACK_SIGNING_SECRET is not set" in found.message) == (FAILED, True)


async def test_a_module_that_cannot_be_mounted_is_reported_for_its_agent(slack, findings):
    persona = "persona: {name: A, emoji: ':owl:'}"
    areas = await findings(slack, f"instances: {{a: {{{persona}, tools: [tool-nowhere]}}, b: {{{persona}}}}}")
    assert areas["agent a"][0].message.startswith("There is no module 'tool-nowhere'.")
    assert areas["agent b"][0].level is PASSED
    (demo,) = areas["model demo"]
    assert (demo.level, "offline demo without a model" in demo.message) == (WARNING, True)


async def test_the_modules_of_sub_agents_are_checked(slack, findings, model):
    key, other = "config: {api_key: sk-ant-of-the-test", "config: {api_key: sk-ant-of-another"
    sub_agents = f"""instances:
  a:
    persona: {{name: A, emoji: ':owl:'}}
    providers: [{{module: provider-anthropic, {key}}}}}]
    tools: [tool-todo, {{module: tool-bash, config: {{sandbox: none}}}}]
    agents:
      same: {{description: D., instructions: I., hooks: []}}
      own:
        description: D.
        instructions: I.
        tools: [{{module: tool-bash, config: {{sandbox: none, timeout_s: 5}}}}]
        providers: [{{module: provider-anthropic, {key}}}}}, {{module: provider-anthropic, name: second, {other}}}}}]
"""
    areas = await findings(slack, sub_agents)
    assert [each.level for each in areas["agent a"]] == [PASSED]
    assert [area for area in areas if area.startswith(("sandbox", "model"))] == [
        *("sandbox a", "sandbox a/own", "model anthropic", "model second")
    ]
    by_another = ["sk-ant-of-another" in str(request.headers) for request in model.requests]
    assert by_another == [False, True], "each provider is asked once"
    areas = await findings(slack, sub_agents.replace("hooks: []", "tools: [tool-nowhere]"))
    assert "agent a" not in areas
    (found,) = areas["agent a/same"]
    assert (found.level, "There is no module 'tool-nowhere'." in found.message) == (FAILED, True)
    areas = await findings(slack, sub_agents.replace("tool-todo", "tool-nowhere"))
    assert [area for area in areas if area.startswith("agent")] == ["agent a"], "an inherited module is reported once"


@pytest.mark.parametrize(
    ("text", "variables"),
    [("sessions: {address: 'grpc://127.0.0.1:9'}", {}), ("", {"amplifier_slack_sessions": "grpc://127.0.0.1:9"})],
)
async def test_agents_in_another_process_are_not_checked(slack, findings, text, variables):
    areas = await findings(slack, text, **variables)
    assert [each.level for each in areas["agents"]] == [SKIPPED]
    assert not [area for area in areas if area.startswith(("agent ", "model "))]


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        ((401, "authentication_error"), "does not accept the key. Check ANTHROPIC_API_KEY."),
        ((400, "invalid_request_error"), "the models cannot be listed"),
    ],
)
async def test_a_refused_api_key_is_reported(slack, finding, model, failure, message):
    model.fail(*failure)
    found = await finding("model anthropic", slack, anthropic_api_key=KEY)
    assert (found.level, message in found.message) == (FAILED, True)


@pytest.mark.parametrize(
    ("model_id", "listed", "level"),
    [
        ("claude-sonnet-5", "claude-sonnet-5", PASSED),
        ("claude-sonnet-5", "claude-sonnet-5-20260401", PASSED),
        ("claude-sonnet-5", "claude-sonnet-5@2026-04-01", PASSED),
        ("claude-sonnet-5-latest", "claude-sonnet-5-20260401", PASSED),
        ("llama3", "llama3:latest", PASSED),
        ("claude-sonnet-5", "claude-other", WARNING),
        ("gpt-5", "gpt-5-mini", WARNING),
        ("claude-sonnet-5", "claude-sonnet-5-1-20260701", WARNING),
    ],
)
async def test_a_model_is_available_by_its_id_or_its_alias(slack, finding, model, model_id, listed, level):  # noqa: PLR0917
    model.models = [{"type": "model", "created_at": "2026-01-01T00:00:00Z", "display_name": "Listed", "id": listed}]
    config = f"{{module: provider-anthropic, config: {{model: {model_id}}}}}"
    instances = f"instances: {{a: {{persona: {{name: A, emoji: ':owl:'}}, providers: [{config}]}}}}"
    found = await finding("model anthropic", slack, instances, anthropic_api_key=KEY)
    assert found.level == level
    if level is WARNING:
        assert f"{model_id} is not one of the 1 models available to the key: {listed}." in found.message


async def test_the_store_is_tried_and_left_empty(slack, finding, tmp_path):
    with redis_server() as server:
        assert (await finding("store", slack, amplifier_slack_store=server.url)).level is PASSED
        assert not server.ask("KEYS", "*")
        server.kill()
        assert (await finding("store", slack, amplifier_slack_store=server.url)).level is FAILED
    (tmp_path / "kept.db").write_text("this is no database, but a text that is long enough to be taken for one")
    assert (await finding("store", slack)).level is not PASSED
    url = f"sqlite:{tmp_path}/kept.db/below.db"
    assert (await finding("store", slack, amplifier_slack_store=url)).level is FAILED


async def test_template_entries_that_are_not_copied_are_reported(slack, finding, tmp_path):
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "may.md").symlink_to("gone.md")
    found = await finding("workspace", slack, workspace="{root: files, template: notes}")
    assert found.level is WARNING
    assert found.message == (
        f"workspace.template: not copied: may.md is a broken link to {tmp_path}/notes/gone.md: No such file or "
        "directory. Remove or fix it."
    )
    (tmp_path / "files").touch()
    found = await finding("workspace", slack, workspace="{root: files, template: notes}")
    assert found.level is FAILED, "the root comes before the template"
    assert found.message.startswith(f"{tmp_path}/files cannot be created or written.")


async def test_a_disk_with_less_free_space_than_the_reserve_is_reported(slack, finding):
    found = await finding("disk", slack, workspace="{root: files, reserve_mb: 1000000000}")
    assert found.level is WARNING
    assert found.message.startswith("free: workspaces ")
    reserve = "workspace.reserve_mb is 1,000,000,000. Free space on the disk of the workspaces and the store"
    assert reserve in found.message


async def test_the_command_prints_lines_or_json_and_exits_with_1_after_a_problem(config_file, config_text):
    config = str(config_file(config_text()))
    async with LocalSlack(scopes=ALL_SCOPES) as slack:
        env = {name.upper(): value for name, value in variables(slack).items() if value}
        fine = await run_command("doctor", "--config", config, env=env)
        env["SLACK_BOT_TOKEN"] = "xoxb-of-the-test"
        wrong = await run_command("doctor", "--config", config, "--json", env=env)
    assert fine.code == 0, fine.output
    assert fine.output.splitlines()[0].startswith("✓ configuration")
    assert fine.output.splitlines()[-1] == "No problems found, 1 warning (!), 1 check skipped (–)."  # noqa: RUF001
    assert wrong.code == 1, wrong.output
    report = json.loads(wrong.output)
    assert not report["holds"]
    assert {"area": "configuration", "level": "passed"}.items() <= report["findings"][0].items()
    assert "of-the-test" not in wrong.output


def test_a_configuration_that_cannot_be_read_exits_with_code_2(tmp_path):
    result = run("doctor", "--config", str(tmp_path / "nowhere.yaml"))
    assert result.exit_code == 2
    assert "cannot be read" in result.output


@pytest.mark.parametrize(
    ("source", "level", "sentence"),
    [
        (foreign_loops.EXACT, PASSED, "its 6 modules can be mounted, and its orchestrator answers."),
        (
            foreign_loops.EXACT.replace("return await turns", "raise RuntimeError('no idea')\n        await turns"),
            FAILED,
            "its orchestrator cannot answer: RuntimeError: no idea. Correct or replace it.",
        ),
        (
            foreign_loops.EXACT.replace(
                "providers, tools, hooks):\n        async", "providers, tools, hooks, more):\n        async"
            ),
            FAILED,
            "its orchestrator cannot answer: TypeError: ",
        ),
    ],
    ids=["answers", "raises", "another signature"],
)
async def test_an_orchestrator_of_another_author_must_answer_a_prompt(finding, tmp_path, source, level, sentence):
    path = tmp_path / f"loop_{uuid4().hex}.py"  # a process imports a module of one name once
    path.write_text(source)
    instances = f"""instances:
  alpha:
    persona: {{name: Alpha, emoji: ':owl:'}}
    orchestrator: {{module: loop-foreign, source: {path}}}
    providers: [provider-demo]
"""
    async with LocalSlack() as slack:
        found = await finding("agent alpha", slack, instances)
    assert found.level == level
    assert found.message.startswith(sentence)


@pytest.mark.parametrize(
    ("sandbox", "level", "words"),
    [
        ("auto", PASSED, "bubblewrap, tried: a command writes in the workspace, reads nothing outside of it"),
        ("landlock", PASSED, "landlock, tried: a command"),
        ("none", WARNING, "there is none (`sandbox: none`). This does not hold: reads nothing outside of it"),
    ],
)
async def test_the_sandbox_of_commands_is_tried(slack, finding, sandbox, level, words):
    require("bubblewrap" if sandbox == "auto" else sandbox)
    tools = f"tools: [{{module: tool-bash, config: {{sandbox: {sandbox}}}}}]"
    tools = f"instances: {{alpha: {{persona: {{name: A, emoji: ':owl:'}}, {tools}}}}}\n"
    found = await finding("sandbox alpha", slack, tools)
    assert (found.level, words in found.message) == (level, True), found.message


@pytest.mark.parametrize(("readable", "exposed"), [("", "files"), ("files", "files"), ("kept.db", "kept.db")])
async def test_readable_paths_must_not_lead_to_all_workspaces_or_the_store(slack, finding, tmp_path, readable, exposed):
    (tmp_path / "files").mkdir()
    (tmp_path / "kept.db").touch()
    path = tmp_path / readable
    tools = f"tools: [{{module: tool-bash, config: {{read_only_paths: [{path}]}}}}]"
    tools = f"instances: {{alpha: {{persona: {{name: A, emoji: ':owl:'}}, {tools}}}}}\n"
    found = await finding("sandbox alpha", slack, tools)
    assert found.level == FAILED
    assert f"{path} lets commands read {tmp_path / exposed}" in found.message
