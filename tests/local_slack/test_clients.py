"""One app in several workspaces, each with its own ids, tokens and messages."""

from __future__ import annotations

import pytest
from endpoint import endpoint
from slack_errors import error_of
from slack_sdk.web.async_client import AsyncWebClient

from local_slack import LocalSlack

pytestmark = pytest.mark.slack(teams=("Playground", "Second Home"))


@pytest.fixture
def second(slack):
    return slack.team("Second Home")


def client_of(slack, team, session):
    return AsyncWebClient(slack.team(team).bot_token, slack.api_url, session=session)


async def test_the_first_workspace_is_that_of_a_single_one(slack):
    async with LocalSlack() as single:
        first = slack.team("Playground")
        ids = [(each.team_id, each.bot_token) for each in (single, slack, first)]
        assert ids == [ids[0]] * 3
        assert single.bot_user_id == slack.bot_user_id
        assert first.workspace is slack.workspace
        assert (single.app_token, single.signing_secret) == (slack.app_token, slack.signing_secret)
        ours, theirs = slack.workspace.directory, single.workspace.directory
        assert (ours.people, ours.bot, ours.team) == (theirs.people, theirs.bot, theirs.team)
        assert slack.workspace.channels[0].id == single.workspace.channels[0].id


async def test_workspaces_share_no_id_and_no_token(slack):
    first, second = (team.workspace for team in slack.teams)
    assert (slack.teams[1].name, slack.teams[1].team_id) == ("Second Home", "T1SECONDHOME")
    for of in (
        lambda workspace: {member.id for member in workspace.directory.members.values()},
        lambda workspace: {member.token for member in workspace.directory.members.values()},
        lambda workspace: {channel.id for channel in workspace.channels},
    ):
        assert of(first)
        assert not of(first) & of(second)
    assert first.directory.bot.app_id == second.directory.bot.app_id
    with pytest.raises(KeyError, match="there are Playground, Second Home"):
        slack.team("Third")


async def test_the_token_selects_the_workspace_of_a_call(slack, second, session):
    here, there = client_of(slack, "Playground", session), client_of(slack, "Second Home", session)
    assert (await here.auth_test())["team"] == "Playground"
    me = await there.auth_test()
    assert (me["team"], me["team_id"], me["user_id"]) == ("Second Home", "T1SECONDHOME", "U1ALPHA")
    await there.chat_postMessage(channel="C1GENERAL", text="over there")
    assert await error_of(here.chat_postMessage(channel="C1GENERAL", text="not here")) == "channel_not_found"
    assert [m.text for m in second.workspace.messages("general")] == ["over there"]
    assert slack.workspace.messages("general") == ()


async def test_events_of_all_workspaces_use_one_connection_and_name_theirs(ana, second, socket):
    assert second.workspace.bot_online
    first_ts = await ana.say("general", "here")
    second_ts = await second.as_person("ana").say("general", "hello @alpha")
    frames = [await socket.frame() for _ in range(3)]
    payloads = [frame["payload"] for frame in frames]
    assert [(p["team_id"], p["event"]["type"], p["event"]["ts"]) for p in payloads] == [
        ("T0LOCAL", "message", first_ts),
        ("T1SECONDHOME", "message", second_ts),
        ("T1SECONDHOME", "app_mention", second_ts),
    ]
    authorizations = [(p["authorizations"][0]["team_id"], p["authorizations"][0]["user_id"]) for p in payloads]
    assert authorizations == [("T0LOCAL", "U0ALPHA"), *[("T1SECONDHOME", "U1ALPHA")] * 2]
    assert payloads[1]["event"]["text"] == "hello <@U1ALPHA>"
    assert len({p["event_id"] for p in payloads}) == len({frame["envelope_id"] for frame in frames}) == 3


async def test_events_and_clicks_over_http_name_their_workspace(session):
    button = {"type": "button", "action_id": "go", "value": "1", "text": {"type": "plain_text", "text": "Go"}}
    blocks = [{"type": "actions", "elements": [button]}]
    async with endpoint() as app, LocalSlack(teams=("A", "B"), request_url=app.url) as slack:
        posted = await client_of(slack, "B", session).chat_postMessage(channel="C1GENERAL", text="x", blocks=blocks)
        await slack.team("B").as_person("ben").click("general", posted["ts"], "go")
        event, click = await app.received(2)
        assert event.json["team_id"] == "T1B"
        assert b"T1B" in click.body


async def test_until_sees_a_change_in_any_workspace(slack, second):
    await second.as_person("ana").dm("alpha", "hi")
    await slack.until(lambda _: second.workspace.messages("D1ANA"))


@pytest.mark.parametrize("teams", [(), ("",), ("A", "A"), ("A", "Local"), ("A", "!?"), ("A", "b c", "B-C")])
def test_names_of_workspaces_with_the_same_id_are_refused(teams):
    with pytest.raises(ValueError, match="workspace"):
        LocalSlack(teams=teams)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"people": ("ana", "an-a")}, "same id"),
        ({"channels": ("a-b", "ab")}, "same id"),
        ({"people": ("Ana Lee",)}, "a-z"),
    ],
)
def test_names_of_people_and_channels_are_plain_and_give_different_ids(options, message):
    with pytest.raises(ValueError, match=message):
        LocalSlack(**options)
