"""An app that people install: the page, the tokens, their rotation and end, and organisations."""

from __future__ import annotations

import re
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from local_slack import Client, LocalSlack, SlackRefused

CLIENT = Client("1.2", "s3cret")
RETURN = "http://127.0.0.1:9/return"


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_795_000_000.0

    def __call__(self) -> float:
        self.now_s += 0.001
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
async def slack(clock, request):
    options = {"client": CLIENT, "installed": (), "teams": ("Playground", "Second"), "clock": clock}
    options |= {"commands": ("/alpha",)}
    marker = request.node.get_closest_marker("slack")
    async with LocalSlack(**{**options, **(marker.kwargs if marker else {})}) as slack:
        yield slack


def web(slack, token=None) -> AsyncWebClient:
    return AsyncWebClient(token, base_url=slack.api_url)


async def allow(slack, place, answer="allow", **changes) -> dict[str, str]:
    """Open the page in a browser, answer it, and return what the app's own page gets."""
    given = {"client_id": CLIENT.id, "scope": "chat:write", "state": "s&1", "redirect_uri": RETURN, **changes}
    async with aiohttp.ClientSession() as browser:
        async with browser.get(f"{slack.url}oauth/v2/authorize", params=given) as response:
            page = await response.text()
            assert response.status == 200, page
        hidden = dict(re.findall(r"<input type=hidden name=(\w+) value='([^']*)'>", page.replace("&amp;", "&")))
        form = {**hidden, "place": place, "answer": answer}
        async with browser.post(f"{slack.url}oauth/v2/authorize", data=form, allow_redirects=False) as response:
            assert response.status == 302, await response.text()
            to = urlsplit(response.headers["Location"])
    assert to._replace(query="").geturl() == RETURN
    return {name: values[0] for name, values in parse_qs(to.query).items()}


async def access(slack, code, **changes):
    given = {"client_id": CLIENT.id, "client_secret": CLIENT.secret, "code": code, "redirect_uri": RETURN, **changes}
    return await web(slack).oauth_v2_access(**given)


async def refresh(slack, token):
    given = {"client_id": CLIENT.id, "client_secret": CLIENT.secret, "grant_type": "refresh_token"}
    return await web(slack).oauth_v2_access(refresh_token=token, **given)


async def error_of(call) -> str:
    with pytest.raises(SlackApiError) as refused:
        await call
    return refused.value.response["error"]


def events(slack) -> list[str]:
    return [each["about"] for each in slack.record if each["what"] == "event"]


async def test_an_app_acts_in_a_workspace_once_a_person_has_installed_it(slack):
    second = slack.teams[1]
    assert not second.is_installed
    assert await error_of(web(slack, second.bot_token).auth_test()) == "invalid_auth"
    await second.as_person("ana").say("general", "@alpha hello")
    assert events(slack) == []
    with pytest.raises(SlackRefused, match="dispatch_failed"):
        await second.as_person("ana").command("general", "/alpha")
    back = await allow(slack, second.team_id)
    assert back["state"] == "s&1"
    answer = await access(slack, back["code"])
    assert (answer["team"]["id"], answer["token_type"], answer["enterprise"]) == (second.team_id, "bot", None)
    assert answer["authed_user"]["id"] == second.person("ana").id
    assert (await web(slack, answer["access_token"]).auth_test())["team_id"] == second.team_id
    await second.as_person("ana").say("general", "@alpha hello")
    await slack.as_person("ana").say("general", "@alpha hello")
    assert {each["team"] for each in slack.record if each["what"] == "event"} == {second.team_id}


async def test_a_person_may_cancel_and_a_code_works_once_for_its_app_and_its_page(slack, clock):
    assert await allow(slack, slack.team_id, "cancel") == {"error": "access_denied", "state": "s&1"}
    code = (await allow(slack, slack.team_id))["code"]
    assert await error_of(access(slack, code, client_secret="guess")) == "bad_client_secret"
    assert await error_of(access(slack, code, client_id="3.4")) == "invalid_client_id"
    assert await error_of(access(slack, "guess")) == "invalid_code"
    assert await error_of(access(slack, code, redirect_uri="http://127.0.0.1/other")) == "bad_redirect_uri"
    assert await error_of(access(slack, code)) == "code_already_used"
    late = (await allow(slack, slack.team_id))["code"]
    clock.now_s += 601
    assert await error_of(access(slack, late)) == "invalid_code"
    assert not slack.is_installed


async def test_permissions_of_the_person_alone_install_nothing(slack):
    code = (await allow(slack, slack.team_id, scope="", user_scope="identify"))["code"]
    answer = await access(slack, code)
    assert (answer.get("access_token"), answer["authed_user"]["token_type"]) == (None, "user")
    assert answer["team"]["id"] == slack.team_id
    assert not slack.is_installed


@pytest.mark.parametrize(
    "changes",
    [
        {"client_id": "3.4"},
        {"client_id": ""},
        {"redirect_uri": "https://evil.example/return"},
        {"redirect_uri": "javascript:alert(1)"},
        {"redirect_uri": ""},
        {"redirect_uri": "http://127.0.0.1/\nSet-Cookie: a=b"},
        {"redirect_uri": "http://[::1"},
        {"scope": "<script>alert(1)</script>"},
        {"scope": ""},
    ],
)
async def test_the_page_refuses_what_slack_refuses_and_shows_no_markup(slack, changes):
    given = {"client_id": CLIENT.id, "scope": "chat:write", "state": "s", "redirect_uri": RETURN, **changes}
    async with aiohttp.ClientSession() as browser:
        async with browser.get(f"{slack.url}oauth/v2/authorize", params=given) as response:
            page = await response.text()
            assert response.status == 400
        form = {**given, "place": slack.team_id, "answer": "allow"}
        async with browser.post(f"{slack.url}oauth/v2/authorize", data=form, allow_redirects=False) as response:
            assert response.status == 400
    assert "<script" not in page
    assert "Something went wrong" in page


@pytest.mark.slack(rotation_s=43_200.0)
async def test_a_token_expires_and_a_refresh_token_works_once(slack, clock):
    first = await access(slack, (await allow(slack, slack.team_id))["code"])
    assert first["expires_in"] == 43_200
    assert await error_of(web(slack, slack.bot_token).auth_test()) == "invalid_auth"
    second = await refresh(slack, first["refresh_token"])
    assert await error_of(refresh(slack, first["refresh_token"])) == "invalid_refresh_token"
    for answer in (first, second):  # both are valid for a while
        assert (await web(slack, answer["access_token"]).auth_test())["team_id"] == slack.team_id
    third = await refresh(slack, second["refresh_token"])
    assert await error_of(web(slack, first["access_token"]).auth_test()) == "token_revoked"
    clock.now_s += 43_201
    assert await error_of(web(slack, third["access_token"]).chat_postMessage(channel="general", text="hi")) == (
        "token_expired"
    )
    fourth = await refresh(slack, third["refresh_token"])
    assert (await web(slack, fourth["access_token"]).chat_postMessage(channel="general", text="hi"))["ok"]


@pytest.mark.slack(installed=("Playground",))
@pytest.mark.parametrize("way", ["administrator", "apps.uninstall", "auth.revoke"])
async def test_the_app_hears_of_its_end_and_its_token_no_longer_works(slack, way):
    app = web(slack, slack.bot_token)
    if way == "administrator":
        slack.uninstall()
    elif way == "auth.revoke":
        await app.auth_revoke()
    else:
        assert await error_of(app.apps_uninstall(client_id=CLIENT.id, client_secret="guess")) == "bad_client_secret"
        await app.apps_uninstall(client_id=CLIENT.id, client_secret=CLIENT.secret)
    assert events(slack) == ["app_uninstalled", "tokens_revoked"]
    assert await error_of(app.auth_test()) == "account_inactive"
    await slack.as_person("ana").say("general", "@alpha hello")
    assert events(slack) == ["app_uninstalled", "tokens_revoked"]
    await access(slack, (await allow(slack, slack.team_id))["code"])
    assert (await app.auth_test())["ok"], "the token of a workspace is the same again"


@pytest.mark.slack(organisation="Acme Ltd")
async def test_one_token_of_an_organisation_acts_in_the_workspaces_that_grant_it(slack):
    first, second = slack.teams
    answer = await access(slack, (await allow(slack, "E0ACMELTD"))["code"])
    assert (answer["team"], answer["is_enterprise_install"]) == (None, True)
    assert answer["enterprise"] == {"id": "E0ACMELTD", "name": "Acme Ltd"}
    app = web(slack, answer["access_token"])
    who = await app.auth_test()
    assert (who["enterprise_id"], who["is_enterprise_install"], who["user_id"]) == (
        *("E0ACMELTD", True),
        second.bot_user_id,
    )
    await app.chat_postMessage(channel=second.channel("general").id, text="hi")
    assert second.workspace.messages(second.channel("general").id)[-1].text == "hi"
    assert await error_of(app.users_list()) == "missing_argument"
    members = (await app.users_list(team_id=second.team_id))["members"]
    assert second.person("ana").id in {each["id"] for each in members}
    second.grant(is_granted=False)
    listed = (await app.api_call("auth.teams.list"))["teams"]
    assert [each["id"] for each in listed] == [first.team_id]
    await second.as_person("ana").say("general", "@alpha hello")
    second.grant()
    assert events(slack)[-2:] == ["team_access_revoked", "team_access_granted"]


@pytest.mark.parametrize("options", [{"installed": ("None",)}, {"client": None, "rotation_s": 5.0}])
def test_settings_that_do_not_fit_are_refused(options):
    with pytest.raises(ValueError, match=r"no workspace is called 'None'|without the credentials of a client"):
        LocalSlack(**{"client": CLIENT, **options})
