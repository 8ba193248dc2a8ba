"""The server of the page: its state, its live events and its protection."""

from __future__ import annotations

import aiohttp
import pytest
from yarl import URL

from local_slack import LocalSlack, NotLoopback, PortInUse


@pytest.fixture
def listen(slack, session):
    """Open the live events of a person."""

    async def listen(name):
        socket = await session.ws_connect(f"{slack.url}page/events?token={slack.person(name).token}")
        assert await socket.receive_json(timeout=5) == {"type": "hello", "home": None, "modal": None}
        return socket

    return listen


async def test_the_state_lists_people_bots_and_channels(slack, ana, session):
    await ana.open_dm("alpha")
    async with session.get(slack.url + "page/state.json") as response:
        assert response.headers["Cache-Control"] == "no-store"
        state = await response.json()
    assert state["team"] == {"id": "T0LOCAL", "name": "Playground"}
    assert next((p["id"], p["token"]) for p in state["people"]) == ("U0ANA", "xoxp-local-ana")
    assert (state["bots"][0]["id"], state["bots"][0]["online"]) == ("U0ALPHA", False)
    assert [(c["id"], c["is_im"], c["user"]) for c in state["channels"]] == [
        ("C0GENERAL", False, None),
        ("C0RANDOM", False, None),
        ("D0ANA", True, "U0ALPHA"),
    ]


async def test_live_events_are_those_that_the_person_can_see(slack, ana, client, listen):
    anas, bens = await listen("ana"), await listen("ben")
    await ana.dm("alpha", "between us")
    await client.chat_postEphemeral(channel="C0GENERAL", user="U0ANA", text="psst")
    ts = await slack.as_person("ben").say("general", "all")
    events = [await anas.receive_json(timeout=5) for _ in range(4)]
    types = [("im_created", None), ("message", None), ("message", "ephemeral"), ("message", None)]
    assert [(event["type"], event.get("subtype")) for event in events] == types
    assert events[0]["channel"]["id"] == "D0ANA"
    assert events[2]["is_ephemeral"] is True
    assert (await bens.receive_json(timeout=5))["ts"] == ts


async def test_the_presence_of_the_bot_is_a_live_event(slack, sockets, listen):
    events = await listen("ana")
    await sockets.open()
    assert await events.receive_json(timeout=5) == {"type": "bot_presence", "online": True}
    slack.socket_mode.drop()
    assert await events.receive_json(timeout=5) == {"type": "bot_presence", "online": False}


async def test_live_events_need_the_token_of_a_person(slack, session):
    for token in ("", "xoxp-wrong", slack.bot_token):
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await session.ws_connect(f"{slack.url}page/events?token={token}")
        assert caught.value.status == 401


@pytest.mark.parametrize("path", ["page/none.js", "page/../server.py", "page/%2e%2e/server.py", "page/.hidden"])
async def test_only_files_of_the_page_are_served(slack, session, path):
    async with session.get(URL(slack.url + path, encoded=True)) as response:
        assert response.status == 404


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Host": "localhost:1"}, 200),
        ({"Host": "[::1]:1"}, 200),
        ({"Host": "evil.example"}, 403),
        ({"Host": "127.0.0.1.evil.example"}, 403),
        ({"Host": "evil.example@127.0.0.1"}, 403),
        ({"Origin": "http://evil.example"}, 403),
        ({"Origin": "http://localhost:3000"}, 403),
        ({"Origin": "null"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Sec-Fetch-Site": "same-origin"}, 200),
    ],
)
async def test_other_hosts_and_pages_are_refused(slack, session, headers, status):
    for path in ("page/state.json", "faults", "record.jsonl"):
        async with session.get(slack.url + path, headers=headers) as response:
            assert response.status == status
            assert status == 200 or "local_slack" in await response.text()


async def test_the_page_itself_may_call_the_web_api(slack, ana, session):
    headers = {"Origin": slack.url.rstrip("/"), "Authorization": f"Bearer {ana.person.token}"}
    async with session.post(slack.api_url + "auth.test", headers=headers) as response:
        assert (await response.json())["user"] == "ana"


async def test_a_port_in_use_and_a_public_address_are_errors(slack):
    port = int(slack.url.rstrip("/").rpartition(":")[2])
    with pytest.raises(PortInUse, match=f"{port}.*--port"):
        await LocalSlack(port=port).__aenter__()
    with pytest.raises(NotLoopback, match=r"0\.0\.0\.0"):
        await LocalSlack(host="0.0.0.0").__aenter__()  # noqa: S104 - must be refused


async def test_until_returns_the_value_or_prints_the_workspace(slack, ana):
    root = await ana.say("general", "question\nin two lines")
    await ana.say("general", "reply", thread=root)
    await ana.react("general", root, "eyes")
    assert (await slack.until(lambda ws: ws.thread("general", root)))[1].text == "reply"
    with pytest.raises(TimeoutError) as caught:
        await slack.until(lambda ws: ws.bot_online, timeout_s=0.01)
    text = str(caught.value)
    assert f"#general (C0GENERAL)\n  [{root}] ana: question\\nin two lines  :eyes: ana\n" in text
    assert "\n    [" in text
    assert "#random (C0RANDOM)\n  (empty)" in text
