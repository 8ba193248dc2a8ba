"""The control API over HTTP: what the page's panel and tests in other languages use."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
from slack_sdk.web.async_client import AsyncWebClient

from local_slack import (
    Delayed,
    DropBeforeCall,
    Duplicated,
    ErrorResponse,
    LocalSlack,
    RateLimited,
    ServerError,
    SlowResponse,
)

Json = dict[str, Any]


class Control:
    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url = url
        self._session = session

    async def get(self, path: str) -> Any:
        async with self._session.get(self._url + path) as answer:
            assert answer.status == 200
            return await answer.json()

    async def post(self, body: Any) -> tuple[int, Json]:
        async with self._session.post(self._url + "faults", json=body) as answer:
            return answer.status, await answer.json()

    async def delete(self) -> Json:
        async with self._session.delete(self._url + "faults") as answer:
            state: Json = await answer.json()
            return state


@pytest.fixture
async def control(slack: LocalSlack, session: aiohttp.ClientSession) -> AsyncIterator[Control]:
    return Control(slack.url, session)


async def test_it_says_what_can_be_switched_on_and_what_is(control: Control) -> None:
    state = await control.get("faults")
    assert {"chat.postMessage", "apps.connections.open", "auth.test"} <= set(state["methods"])
    assert {"internal_error", "message_not_found", "edit_window_closed"} <= set(state["errors"])
    assert state["call_kinds"] == {
        "error_response": ["error"],
        "rate_limited": ["retry_after_s"],
        "server_error": ["status"],
        "slow_response": ["delay_s"],
        "drop_before_call": [],
        "drop_after_call": [],
    }
    assert state["delivery_kinds"] == {"duplicated": [], "delayed": ["behind"], "dropped": []}
    assert state["reasons"] == ["warning", "refresh_requested", "link_disabled", "too_many_websockets"]
    assert (state["calls"], state["deliveries"], state["connections"]) == ([], [], 0)
    assert (state["frozen"], state["enabled"]) == (False, True)


@pytest.mark.parametrize(
    ("given", "fault"),
    [
        ({"kind": "error_response", "error": "fatal_error"}, ErrorResponse("fatal_error")),
        ({"kind": "rate_limited", "retry_after_s": 7}, RateLimited(7)),
        ({"kind": "rate_limited"}, RateLimited()),
        ({"kind": "server_error", "status": 503}, ServerError(503)),
        ({"kind": "slow_response", "delay_s": 0.5}, SlowResponse(0.5)),
        ({"kind": "drop_before_call"}, DropBeforeCall()),
    ],
)
async def test_a_fault_of_a_method_is_the_same_as_in_python(
    slack: LocalSlack, control: Control, given: Json, fault: Any
) -> None:
    status, state = await control.post({"method": "chat.update", "times": 2, **given})
    assert (status, slack.faults.coming) == (200, {"chat.update": (fault, fault)})
    (entry,) = state["calls"]
    assert {**entry, **given} == entry
    assert (entry["method"], entry["times"]) == ("chat.update", 2)
    assert (await control.delete())["calls"] == []
    assert slack.faults.coming == {}


async def test_a_call_meets_what_was_announced_over_http(
    slack: LocalSlack, control: Control, client: AsyncWebClient
) -> None:
    await control.post({"method": "auth.test", "kind": "error_response", "error": "token_revoked"})
    with pytest.raises(Exception, match="token_revoked"):
        await client.auth_test()
    assert (await client.auth_test())["ok"]
    limits = await control.get("limits")
    assert next(row["used"] for row in limits if row["method"] == "auth.test") == 2


async def test_faults_of_deliveries_too(slack: LocalSlack, control: Control) -> None:
    await control.post({"delivery": "duplicated"})
    _, state = await control.post({"delivery": "delayed", "behind": 3, "times": 2})
    assert slack.deliveries.coming == (Duplicated(), Delayed(3), Delayed(3))
    assert state["deliveries"] == [{"kind": "duplicated", "times": 1}, {"kind": "delayed", "times": 2, "behind": 3}]
    assert (await control.delete())["deliveries"] == []


async def test_connections_are_frozen_cut_and_sent_away(slack: LocalSlack, control: Control, raw_sockets: Any) -> None:
    sockets = raw_sockets(slack)
    silent = await sockets.open()
    _, state = await control.post({"socket": "freeze"})
    assert (state["connections"], state["frozen"]) == (1, True)
    assert (await control.delete())["frozen"] is False
    assert (await silent.socket.receive(timeout=5)).type in {aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR}
    cut = await sockets.open()
    _, state = await control.post({"socket": "drop"})
    assert state["connections"] == 0
    assert (await cut.socket.receive(timeout=5)).type in {aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR}
    told = await sockets.open()
    await control.post({"socket": "disconnect", "reason": "warning"})
    assert (await told.frame())["reason"] == "warning"
    _, state = await control.post({"socket": "disconnect", "reason": "link_disabled"})
    assert state["enabled"] is False
    _, state = await control.post({"socket": "enable"})
    assert state["enabled"] is True


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ([], "`method`, `delivery` and `socket` are missing"),
        ({}, 'send {"method"'),
        ({"method": "chat.fly", "kind": "error_response"}, "unknown method 'chat.fly'"),
        ({"method": ["chat.update"], "kind": "error_response"}, "unknown method"),
        ({"method": "chat.update"}, "`kind` must be one of error_response, "),
        ({"method": "chat.update", "kind": ["x"]}, "`kind` must be one of error_response, "),
        ({"method": "chat.update", "kind": "error_response"}, "`error_response` also needs `error`"),
        ({"method": "chat.update", "kind": "error_response", "error": 5}, "`error` must be a text"),
        ({"method": "chat.update", "kind": "slow_response", "delay_s": -1}, "`delay_s` must be a number from 0 to 600"),
        ({"method": "chat.update", "kind": "server_error", "status": 200}, "`status` must be a whole number from 400"),
        ({"method": "chat.update", "kind": "server_error", "status": 500.5}, "a whole number"),
        ({"method": "chat.update", "kind": "drop_before_call", "times": 0}, "`times` must be"),
        ({"method": "chat.update", "kind": "drop_before_call", "times": True}, "`times` must be"),
        ({"method": "chat.update", "kind": "drop_before_call", "delay_s": 1}, "unknown field `delay_s`"),
        ({"delivery": "never"}, "`delivery` must be one of duplicated, delayed, dropped"),
        ({"delivery": "delayed", "behind": "2"}, "`behind` must be a whole number"),
        ({"socket": "unplug"}, "`socket` must be one of disconnect, drop, freeze, enable"),
        ({"socket": {}}, "`socket` must be one of"),
        ({"socket": "disconnect", "reason": "bored"}, "`reason` must be one of warning"),
        ({"socket": "drop", "reason": "warning"}, "unknown field `reason`"),
    ],
)
async def test_who_asks_wrongly_reads_what_to_send(slack: LocalSlack, control: Control, body: Any, says: str) -> None:
    status, answer = await control.post(body)
    assert (status, answer["ok"]) == (400, False)
    assert says in answer["error"]
    assert (slack.faults.coming, slack.deliveries.coming) == ({}, ())


async def test_what_is_no_json_is_told_so(slack: LocalSlack, session: aiohttp.ClientSession) -> None:
    async with session.post(slack.url + "faults", data=b"\xff{") as answer:
        assert (answer.status, "not JSON" in (await answer.json())["error"]) == (400, True)


@pytest.mark.parametrize("levels", [150, 100_000])
async def test_json_that_is_nested_deeply_is_refused_at_every_door(
    slack: LocalSlack, session: aiohttp.ClientSession, levels: int
) -> None:
    deep, headers = "[" * levels + "]" * levels, {"Authorization": f"Bearer {slack.bot_token}"}
    async with session.post(slack.url + "faults", data=deep) as answer:
        assert (answer.status, "not JSON" in (await answer.json())["error"]) == (400, True)
    post = slack.api_url + "chat.postMessage"
    typed = {**headers, "Content-Type": "application/json"}
    async with session.post(post, data=f'{{"blocks": {deep}}}', headers=typed) as answer:
        assert (await answer.json())["error"] == "invalid_json"
    async with session.post(post, data={"channel": "general", "blocks": deep}, headers=headers) as answer:
        assert (await answer.json())["error"] == "invalid_blocks_format"
    opened = {"Authorization": f"Bearer {slack.app_token}"}
    async with session.post(slack.api_url + "apps.connections.open", headers=opened) as answer:
        url = (await answer.json())["url"]
    async with session.ws_connect(url) as socket:
        await socket.receive_json()
        await socket.send_str(deep)
        await socket.send_str('{"type": "ping", "id": 7}')
        assert await socket.receive_json() == {"type": "pong", "id": 7}


async def test_other_sites_may_not_control_it(slack: LocalSlack, session: aiohttp.ClientSession) -> None:
    for headers in ({"Origin": "http://evil.example"}, {"Host": "evil.example"}):
        for path in ("faults", "limits", "record.jsonl"):
            async with session.get(slack.url + path, headers=headers) as answer:
                assert answer.status == 403
