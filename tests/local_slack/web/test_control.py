"""The control API over HTTP, for the page's panel and for tests in other languages."""

from __future__ import annotations

import aiohttp
import pytest
from slack_errors import error_of

from local_slack import Delayed, DropBeforeCall, Duplicated, ErrorResponse, RateLimited, ServerError, SlowResponse


class Control:
    def __init__(self, url, session):
        self._url = url
        self._session = session

    async def get(self, path):
        async with self._session.get(self._url + path) as answer:
            assert answer.status == 200
            return await answer.json()

    async def post(self, body):
        async with self._session.post(self._url + "faults", json=body) as answer:
            return answer.status, await answer.json()

    async def delete(self):
        async with self._session.delete(self._url + "faults") as answer:
            return await answer.json()


@pytest.fixture
def control(slack, session):
    return Control(slack.url, session)


async def test_the_state_lists_possible_and_active_faults(control):
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
    ("body", "fault"),
    [
        ({"kind": "error_response", "error": "fatal_error"}, ErrorResponse("fatal_error")),
        ({"kind": "rate_limited", "retry_after_s": 7}, RateLimited(7)),
        ({"kind": "rate_limited"}, RateLimited()),
        ({"kind": "server_error", "status": 503}, ServerError(503)),
        ({"kind": "slow_response", "delay_s": 0.5}, SlowResponse(0.5)),
        ({"kind": "drop_before_call"}, DropBeforeCall()),
    ],
)
async def test_a_fault_of_a_method_is_the_same_as_in_python(slack, control, body, fault):
    status, state = await control.post({"method": "chat.update", "times": 2, **body})
    assert (status, slack.faults.coming) == (200, {"chat.update": (fault, fault)})
    (entry,) = state["calls"]
    assert {"method": "chat.update", "times": 2, **body}.items() <= entry.items()
    assert (await control.delete())["calls"] == []
    assert slack.faults.coming == {}


async def test_a_call_meets_the_fault_and_counts_towards_its_limit(control, client):
    await control.post({"method": "auth.test", "kind": "error_response", "error": "token_revoked"})
    assert await error_of(client.auth_test()) == "token_revoked"
    assert (await client.auth_test())["ok"]
    assert [row["used"] for row in await control.get("limits") if row["method"] == "auth.test"] == [2]


async def test_a_fault_of_deliveries_is_the_same_as_in_python(slack, control):
    await control.post({"delivery": "duplicated"})
    _, state = await control.post({"delivery": "delayed", "behind": 3, "times": 2})
    assert slack.deliveries.coming == (Duplicated(), Delayed(3), Delayed(3))
    assert state["deliveries"] == [{"kind": "duplicated", "times": 1}, {"kind": "delayed", "times": 2, "behind": 3}]
    assert (await control.delete())["deliveries"] == []


async def test_connections_can_be_frozen_dropped_and_disconnected(control, sockets):
    ended = {aiohttp.WSMsgType.CLOSED, aiohttp.WSMsgType.ERROR}
    frozen = await sockets.open()
    _, state = await control.post({"socket": "freeze"})
    assert (state["connections"], state["frozen"]) == (1, True)
    assert (await control.delete())["frozen"] is False
    assert (await frozen.socket.receive(timeout=5)).type in ended
    dropped = await sockets.open()
    _, state = await control.post({"socket": "drop"})
    assert state["connections"] == 0
    assert (await dropped.socket.receive(timeout=5)).type in ended
    warned = await sockets.open()
    await control.post({"socket": "disconnect", "reason": "warning"})
    assert (await warned.frame())["reason"] == "warning"
    _, state = await control.post({"socket": "disconnect", "reason": "link_disabled"})
    assert state["enabled"] is False
    _, state = await control.post({"socket": "enable"})
    assert state["enabled"] is True


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ([], "`method`, `delivery`, `socket` and `app` are missing"),
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
        ({"app": "kill"}, "the workspace did not start the app"),
        ({"app": "stop"}, "`app` must be one of kill"),
    ],
)
async def test_a_wrong_request_is_refused_with_the_correct_form(slack, control, body, message):
    status, answer = await control.post(body)
    assert (status, answer["ok"]) == (400, False)
    assert message in answer["error"]
    assert (slack.faults.coming, slack.deliveries.coming) == ({}, ())


@pytest.mark.parametrize("body", [b"\xff{", b"[" * 150 + b"]" * 150, b"[" * 100_000 + b"]" * 100_000])
async def test_invalid_or_deeply_nested_json_is_refused_by_the_control_api(slack, session, body):
    async with session.post(slack.url + "faults", data=body) as answer:
        assert (answer.status, "not JSON" in (await answer.json())["error"]) == (400, True)


@pytest.mark.parametrize("levels", [150, 100_000])
async def test_deeply_nested_json_is_refused_by_the_web_api_and_ignored_on_sockets(slack, session, sockets, levels):
    deep, headers = "[" * levels + "]" * levels, {"Authorization": f"Bearer {slack.bot_token}"}
    post = slack.api_url + "chat.postMessage"
    typed = {**headers, "Content-Type": "application/json"}
    async with session.post(post, data=f'{{"blocks": {deep}}}', headers=typed) as answer:
        assert (await answer.json())["error"] == "invalid_json"
    async with session.post(post, data={"channel": "general", "blocks": deep}, headers=headers) as answer:
        assert (await answer.json())["error"] == "invalid_blocks_format"
    socket = (await sockets.open()).socket
    await socket.send_str(deep)
    await socket.send_str('{"type": "ping", "id": 7}')
    assert await socket.receive_json() == {"type": "pong", "id": 7}
