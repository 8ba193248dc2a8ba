"""One service in several workspaces: installed in a browser, apart in all that they do, and ended in Slack."""

from __future__ import annotations

import signal
from contextlib import aclosing

import pytest
from installing import calls, install
from service_process import run_command, serving_with_agents
from slack_sdk.oauth.installation_store import Installation

from local_slack import Client, DropBeforeCall, LocalSlack, ServerError
from orchestrator_interactive.storage.retry import StoreRetryPolicy, retrying
from service.installations.stored import StoredInstallations
from service.store import open_run_store
from service.vault import Vault

FILE = """
instances:
  alpha: {{persona: {{name: Alpha, emoji: ":owl:"}}}}
  beta: {{persona: {{name: Beta, emoji: ":fox_face:"}}, answer: mention}}
connections: {{listen: "127.0.0.1:{port}", public_url: "http://127.0.0.1:{port}", keys: {{k1: {key}}}}}
installations: {installations}
limits: {{runs: 50, runs_per_workspace: 1}}
workspace: {{root: files}}
store: sqlite:kept.db
"""
KEY, OTHER_KEY = "MDEyMzQ1Njc4OWFiY2RlZjAxMjM0NTY3ODlhYmNkZWY=", "ZmVkY2JhOTg3NjU0MzIxMGZlZGNiYTk4NzY1NDMyMTA="


@pytest.fixture
async def slack(request):
    options = {"client": Client("1.2", "s3cret"), "installed": (), "teams": ("Playground", "Second", "Third")}
    marker = request.node.get_closest_marker("slack")
    async with LocalSlack(**{**options, **(marker.kwargs if marker else {})}) as slack:
        yield slack


@pytest.fixture
def given(config_file, free_port):
    def given(installations="{allow: any}"):
        return config_file(FILE.format(port=free_port, key=KEY, installations=installations))

    given()
    return given


@pytest.fixture
def public_url(free_port):
    return f"http://127.0.0.1:{free_port}"


@pytest.fixture
def variables(slack, model_env, tmp_path):
    return {**slack.variables, **model_env, "HOME": str(tmp_path), "AMPLIFIER_SLACK_STORE": f"sqlite:{tmp_path}/k.db"}


@pytest.fixture
def serve(given, variables, tmp_path):
    return lambda: serving_with_agents(variables, "--config", str(tmp_path / "config.yaml"))


async def answered(slack, team, who="ana"):
    root, place = await team.as_person(who).say("general", "@alpha hello"), team.channel("general").id
    await slack.until(lambda _: any(m.by_bot and m.text == "fine" for m in team.workspace.thread(place, root)))
    return root


async def command(variables, tmp_path, *arguments):
    return await run_command(*arguments, "--config", str(tmp_path / "config.yaml"), env=variables)


async def test_people_install_the_app_and_each_workspace_is_served_until_its_end(  # noqa: PLR0917 - fixtures
    serve, slack, model, public_url, variables, tmp_path
):
    first, second, third = slack.teams
    async with serve() as service:
        await service.says("service.ready")
        for team in (first, second):
            status, page = await install(public_url, team.team_id)
            assert (status, f"Installed in {team.name}" in page) == (200, True)
            await answered(slack, team)
        await third.as_person("ana").say("general", "@alpha hello")
        posts = [
            each for each in calls(slack, "chat.postMessage") if each["by"] in {t.bot_user_id for t in slack.teams}
        ]
        assert {each["team"] for each in posts} == {first.team_id, second.team_id}
        listed = await command(variables, tmp_path, "workspaces", "list")
        assert (first.team_id in listed.output, second.team_id in listed.output) == (True, True)
        doctor = await command(variables, tmp_path, "doctor")
        assert f"workspace {second.team_id}" in doctor.output
        assert "xoxb-" not in service.output
        await service.ended(signal.SIGKILL)
    async with serve() as service:
        await service.says("service.ready")
        root = await answered(slack, second)
        second.uninstall()
        await service.says("installation.ended")
        await second.as_person("ana").say("general", "still there?", thread=root)
        await answered(slack, first)
        listed = await command(variables, tmp_path, "workspaces", "list")
        assert second.team_id not in listed.output
        status, _ = await install(public_url, second.team_id)
        assert status == 200
        await answered(slack, second)
        removed = await command(variables, tmp_path, "workspaces", "remove", first.team_id)
        assert removed.code == 0, removed.output
        assert not first.is_installed
        again = await command(variables, tmp_path, "workspaces", "remove", first.team_id)
        assert (again.code, "There is no installation" in again.output) == (2, True)
        assert await service.ended(signal.SIGTERM) == 0


async def test_settings_limits_and_failures_of_a_workspace_are_its_own(serve, slack, model, public_url, given):
    first, second, _ = slack.teams
    ana = second.person("ana").id
    given(f"{{allow: any, settings: {{{second.team_id}: {{instances: [beta], users: [{ana}]}}}}}}")
    async with serve() as service:
        await service.says("service.ready")
        for team in (first, second):
            await install(public_url, team.team_id)
        await answered(slack, first, who="ben")
        root = await answered(slack, second)
        [post] = [m for m in second.workspace.thread(second.channel("general").id, root) if m.text == "fine"]
        assert post.username == "Beta"
        refused = await second.as_person("ben").say("general", "@alpha hello")
        whispers = second.workspace.whispers
        await slack.until(lambda _: whispers(second.channel("general").id))
        assert len(second.workspace.thread(second.channel("general").id, refused)) == 1
        second.workspace.rules.refused_tokens[second.bot_token] = "account_inactive"
        await second.as_person("ana").say("general", "@alpha are you there?")
        await service.says("workspace.refused")
        assert f"the token of the installation {second.team_id} (account_inactive). Install the app" in service.output
        assert "SLACK_BOT_TOKEN" not in service.output
        await answered(slack, first, who="ben")
        second.workspace.rules.refused_tokens.clear()
        await answered(slack, second)
        assert await service.ended(signal.SIGTERM) == 0


@pytest.mark.parametrize(
    ("fault", "key", "problem"),
    [
        (DropBeforeCall(), KEY, "no_answer"),
        (ServerError(), KEY, "no_answer"),
        (None, OTHER_KEY, "its token cannot be decrypted"),
    ],
    ids=["dropped", "not from slack", "other key"],
)
async def test_a_removal_that_slack_does_not_learn_of_deletes_the_tokens_and_says_what_to_do(  # noqa: PLR0917 - fixtures
    slack, given, variables, tmp_path, fault, key, problem
):
    given()
    async with aclosing(await open_run_store(variables["AMPLIFIER_SLACK_STORE"])) as store:
        stored = StoredInstallations(retrying(store, StoreRetryPolicy()), Vault({"k1": key}), None, None)
        await stored.async_save(Installation(user_id="U1", team_id=slack.team_id, bot_token=slack.bot_token))
    if fault is not None:
        slack.faults.next("apps.uninstall", fault)
    removed = await command(variables, tmp_path, "workspaces", "remove", slack.team_id)
    assert removed.code == 0, removed.output
    assert f"Slack did not uninstall the app ({problem}). Remove it in Slack" in removed.output
    listed = await command(variables, tmp_path, "workspaces", "list")
    assert "There is no installation." in listed.output


async def test_a_workspace_that_is_not_allowed_gets_nothing(serve, slack, public_url, given):
    first, second, _ = slack.teams
    given(f"{{allow: [{first.team_id}]}}")
    async with serve() as service:
        await service.says("service.ready")
        status, page = await install(public_url, second.team_id)
        assert status == 403
        assert f"Ask its operator to allow {second.team_id}" in page
        assert not second.is_installed
        status, page = await install(public_url, first.team_id, "cancel")
        assert "you did not allow it" in page
        assert not first.is_installed
        assert await service.ended(signal.SIGTERM) == 0


@pytest.mark.slack(organisation="Acme", rotation_s=3600.0)
async def test_an_organisation_installs_the_app_once_for_the_workspaces_that_it_chooses(
    serve, slack, model, public_url
):
    first, second, third = slack.teams
    async with serve() as service:
        await service.says("service.ready")
        status, page = await install(public_url, "E0ACME")
        assert (status, "Installed in Acme" in page) == (200, True)
        for team in (first, second):
            await answered(slack, team)
        second.grant(is_granted=False)
        await second.as_person("ana").say("general", "@alpha hello?")
        await answered(slack, third)
        second.grant()
        await answered(slack, second)
        assert all(each["ok"] for each in slack.record if each.get("what") == "call" and each["method"] == "users.list")
        assert await service.ended(signal.SIGTERM) == 0
