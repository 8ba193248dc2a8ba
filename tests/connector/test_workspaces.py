"""Installed workspaces: each payload reaches the one that it is for, and what fails in one stays there."""

from __future__ import annotations

import asyncio
import math
from collections import Counter
from contextlib import asynccontextmanager
from types import SimpleNamespace

import pytest
from virtual_time import in_virtual_time

from connector.inbound.dispatcher import DONE, NOT_NOW
from connector.setup import ConnectionRefused, Installation
from connector.workspaces import InstalledWorkspaces


class Service:
    """The installations of an app, and workspaces that count their payloads."""

    def __init__(self, *installations):
        self.present = list(installations)
        self.teams = {"E1": ["T3", "T4"]}
        self.refused: dict[str, str] = {}  # Slack's errors, by the ids of installations
        self.slow = asyncio.Event()  # what Slack answers to `slow_teams` and `slow_lists`
        self.slow_teams: set[str] = set()
        self.slow_lists: set[str] = set()
        self.received: list[str] = []
        self.opened: Counter[str] = Counter()
        self.opening, self.most_opening = 0, 0
        self.open_s = math.inf  # then Slack revokes the access
        self.ended: list[str] = []
        self.lists = 0
        self.changed = asyncio.Event()

    async def all(self):
        return self.present

    async def token(self, installation_id):
        return f"xoxb-{installation_id}"

    async def end(self, installation_id):
        self.ended.append(installation_id)
        self.present = [each for each in self.present if each.id != installation_id]

    def refuse(self, installation):
        if installation.id in self.refused:
            raise ConnectionRefused("no", self.refused[installation.id])

    async def teams_of(self, installation):
        self.lists += 1
        self.refuse(installation)
        if installation.id in self.slow_lists:
            await self.slow.wait()
        return self.teams[installation.id]

    @asynccontextmanager
    async def open(self, installation, team):
        self.opening += 1
        self.most_opening = max(self.opening, self.most_opening)
        if team in self.slow_teams:
            await self.slow.wait()
        self.opening -= 1
        self.refuse(installation)

        async def receive(body):
            self.received.append(team)
            return DONE

        self.opened[team] += 1
        self.changed.set()
        dispatcher = SimpleNamespace(receive=receive)
        yield SimpleNamespace(dispatcher=dispatcher, closed=lambda: asyncio.sleep(self.open_s))

    async def until_open(self, spaces, *teams):
        async with asyncio.timeout(5):
            while not set(teams) <= spaces.open.keys():  # noqa: ASYNC110 - the event is set before the workspace is open
                await asyncio.sleep(0)


def serve(service):
    return InstalledWorkspaces(service, service.open, service.teams_of)


def event(team, *, of_org="", kind="message", **more):
    authorization = {"team_id": team, "enterprise_id": of_org or None, "is_enterprise_install": bool(of_org)}
    body = {"type": "event_callback", "team_id": "T2", "authorizations": [authorization]}
    return {**body, "event": {"type": kind, **more}}


CLICKS = {
    "message": {"type": "block_actions", "team": {"id": "T2"}, "message": {"team": "T1"}},
    "action": {"type": "message_action", "team": {"id": "T1"}, "message": {"team": "T2"}},
    "view": {"type": "view_submission", "team": {"id": "T2"}, "view": {"app_installed_team_id": "T1"}},
    "command": {"command": "/alpha", "team_id": "T1"},
}


@pytest.mark.parametrize("body", [event("T1"), *CLICKS.values()], ids=["event", *CLICKS])
@pytest.mark.parametrize("state", ["open", "opening", "refused", "ended"])
async def test_a_payload_reaches_the_workspace_that_it_is_for_or_none(body, state):
    service = Service(Installation("T1"), Installation("T2"))
    if state == "ended":
        service.present.pop(0)
    service.slow_teams = {"T1"} if state == "opening" else set()
    service.refused = {"T1": "account_inactive"} if state == "refused" else {}
    async with serve(service) as spaces:
        await service.until_open(spaces, "T2", *(["T1"] if state == "open" else []))
        reply = await spaces.receive(body)
        assert service.received == (["T1"] if state == "open" else [])
        assert reply is (NOT_NOW if state in ("opening", "refused") else DONE)


async def test_an_organisation_that_slack_does_not_list_delays_no_one():
    service = Service(Installation("", "E1"), Installation("T1"))
    service.slow_lists = {"E1"}
    async with asyncio.timeout(5), serve(service) as spaces:
        await service.until_open(spaces, "T1")
        assert await spaces.receive(event("T1", kind="app_uninstalled")) is DONE
        assert service.ended == ["T1"]
        service.slow.set()
        await service.until_open(spaces, "T3", "T4")


async def test_every_process_lists_an_organisation_again_when_its_workspaces_change():
    service = Service(Installation("", "E1"))
    async with serve(service) as spaces:
        await service.until_open(spaces, "T3", "T4")
        service.teams["E1"] = ["T3", "T5"]
        await spaces.receive(event("T4", of_org="E1", kind="team_access_revoked", team_ids=["T4"]))
        assert await spaces.receive(event("T4", of_org="E1")) is DONE, "it was withdrawn"
        await service.until_open(spaces, "T5")
        assert set(spaces.open) == {"T3", "T5"}
        service.teams["E1"] = ["T3", "T5", "T6"]  # another process has got the event
        assert await spaces.receive(event("T6", of_org="E1")) in (DONE, NOT_NOW)
        await service.until_open(spaces, "T6")


async def test_an_end_does_not_wait_for_a_workspace_that_is_opening():
    service = Service(Installation("T1"), Installation("T2"))
    service.slow_teams = {"T1"}
    async with asyncio.timeout(5):
        async with serve(service) as spaces:
            await service.until_open(spaces, "T2")


async def test_a_start_opens_at_most_fifty_workspaces_at_once():
    service = Service(*(Installation(f"T{number}") for number in range(120)))
    service.slow_teams = teams = {each.team for each in service.present}
    async with serve(service) as spaces:
        while service.opening < 50:  # noqa: ASYNC110 - until no further one begins
            await asyncio.sleep(0)
        service.slow.set()
        await service.until_open(spaces, *teams)
    assert service.most_opening == 50


@pytest.mark.parametrize(("open_s", "least", "most"), [(1.0, 59, 130), (90.0, 38, 41)])
@in_virtual_time
async def test_the_pauses_before_a_workspace_is_opened_again_grow_unless_it_was_open_for_a_minute(open_s, least, most):
    service = Service(Installation("T1"))
    service.open_s = open_s
    async with serve(service):
        await asyncio.sleep(3600)
    assert least <= service.opened["T1"] <= most


@pytest.mark.parametrize(
    "installation", [Installation("T1"), Installation("", "E1")], ids=["workspace", "organisation"]
)
@pytest.mark.parametrize(("error", "is_over"), [("account_inactive", True), ("token_expired", False)])
@in_virtual_time
async def test_an_installation_whose_token_slack_refuses_for_a_day_has_ended(installation, error, is_over):
    service = Service(installation)
    service.open_s = 100.0
    async with serve(service):
        for _ in range(2):
            service.refused[installation.id] = error
            await asyncio.sleep(80_000)
            assert service.ended == []
            service.refused.clear()
            await asyncio.sleep(400)
        service.refused[installation.id] = error
        await asyncio.sleep(90_000)
        assert service.ended == [installation.id] * is_over
