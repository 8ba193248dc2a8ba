"""One app in several workspaces: every one has its own ids, tokens and messages."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from endpoint import endpoint
from slack_sdk.errors import SlackApiError
from slack_sdk.web.async_client import AsyncWebClient

from local_slack import LocalSlack

Json = dict[str, Any]


@pytest.fixture
async def two() -> AsyncIterator[LocalSlack]:
    async with LocalSlack(teams=("Playground", "Second Home")) as slack:
        yield slack


def client_of(slack: LocalSlack, team: str, session: aiohttp.ClientSession) -> AsyncWebClient:
    return AsyncWebClient(slack.team(team).bot_token, slack.api_url, session=session)


async def test_the_first_is_what_a_single_one_is(two: LocalSlack) -> None:
    async with LocalSlack() as single:
        first = two.team("Playground")
        assert (single.team_id, single.bot_token, single.bot_user_id) == (two.team_id, two.bot_token, two.bot_user_id)
        assert (first.team_id, first.bot_token) == (two.team_id, two.bot_token)
        assert first.workspace is two.workspace
        assert (single.app_token, single.signing_secret) == (two.app_token, two.signing_secret)
        ours, theirs = two.workspace.directory, single.workspace.directory
        assert (ours.people, ours.bot, ours.team) == (theirs.people, theirs.bot, theirs.team)
        assert two.workspace.channels[0].id == single.workspace.channels[0].id


async def test_nothing_has_the_same_id_or_token_in_both(two: LocalSlack) -> None:
    first, second = (team.workspace for team in two.teams)
    assert (two.teams[1].name, two.teams[1].team_id) == ("Second Home", "T1SECONDHOME")
    for these, those in (
        ({m.id for m in first.directory.members.values()}, {m.id for m in second.directory.members.values()}),
        ({m.token for m in first.directory.members.values()}, {m.token for m in second.directory.members.values()}),
        ({c.id for c in first.channels}, {c.id for c in second.channels}),
    ):
        assert these
        assert not these & those
    assert first.directory.bot.app_id == second.directory.bot.app_id
    with pytest.raises(KeyError, match="there are Playground, Second Home"):
        two.team("Third")


async def test_the_token_says_which_workspace_a_call_is_about(two: LocalSlack, session: aiohttp.ClientSession) -> None:
    here, there = client_of(two, "Playground", session), client_of(two, "Second Home", session)
    assert (await here.auth_test())["team"] == "Playground"
    told = await there.auth_test()
    assert (told["team"], told["team_id"], told["user_id"]) == ("Second Home", "T1SECONDHOME", "U1ALPHA")
    await there.chat_postMessage(channel="C1GENERAL", text="over there")
    with pytest.raises(SlackApiError, match="channel_not_found"):
        await here.chat_postMessage(channel="C1GENERAL", text="not here")
    assert [m.text for m in two.team("Second Home").workspace.messages("general")] == ["over there"]
    assert two.workspace.messages("general") == ()


async def test_the_events_of_both_come_over_one_connection_and_say_where(two: LocalSlack, raw_sockets: Any) -> None:
    socket, second = await raw_sockets(two).open(), two.team("Second Home")
    assert second.workspace.bot_online
    stamps = [
        await two.as_person("ana").say("general", "here"),
        await second.as_person("ana").say("general", "hello @alpha"),
    ]
    frames = [await socket.frame() for _ in range(3)]
    payloads = [frame["payload"] for frame in frames]
    assert [payload["team_id"] for payload in payloads] == ["T0LOCAL", "T1SECONDHOME", "T1SECONDHOME"]
    assert [payload["event"]["type"] for payload in payloads] == ["message", "message", "app_mention"]
    assert [payload["authorizations"][0]["user_id"] for payload in payloads] == ["U0ALPHA", "U1ALPHA", "U1ALPHA"]
    assert [payload["authorizations"][0]["team_id"] for payload in payloads] == [p["team_id"] for p in payloads]
    assert payloads[1]["event"]["text"] == "hello <@U1ALPHA>"
    assert [payload["event"]["ts"] for payload in payloads] == [stamps[0], stamps[1], stamps[1]]
    assert len({payload["event_id"] for payload in payloads}) == len({f["envelope_id"] for f in frames}) == 3


async def test_both_over_http_too_and_a_click_says_where(session: aiohttp.ClientSession) -> None:
    async with endpoint() as there, LocalSlack(teams=("A", "B"), request_url=there.url) as slack:
        button = {"type": "button", "action_id": "go", "value": "1", "text": {"type": "plain_text", "text": "Go"}}
        blocks = [{"type": "actions", "elements": [button]}]
        posted = await client_of(slack, "B", session).chat_postMessage(channel="C1GENERAL", text="x", blocks=blocks)
        await slack.team("B").as_person("ben").click("general", posted["ts"], "go")
        event, click = await there.received(2)
        assert event.json["team_id"] == "T1B"
        assert b"T1B" in click.body


async def test_a_change_in_any_of_them_is_seen_by_until(two: LocalSlack) -> None:
    second = two.team("Second Home")
    await second.as_person("ana").dm("alpha", "hi")
    await two.until(lambda _: second.workspace.messages("D1ANA"))


@pytest.mark.parametrize("teams", [(), ("",), ("A", "A"), ("A", "Local"), ("A", "!?"), ("A", "b c", "B-C")])
def test_names_that_give_no_different_ids_are_refused(teams: tuple[str, ...]) -> None:
    with pytest.raises(ValueError, match="workspace"):
        LocalSlack(teams=teams)
