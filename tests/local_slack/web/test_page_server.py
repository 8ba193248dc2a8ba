"""What the page asks for, and who may ask."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import aiohttp
import pytest
from yarl import URL

from local_slack import LocalSlack, NotLoopback, PortInUse

if TYPE_CHECKING:
    from slack_sdk.web.async_client import AsyncWebClient

Json = dict[str, Any]


async def page_socket(slack: LocalSlack, session: aiohttp.ClientSession, name: str) -> aiohttp.ClientWebSocketResponse:
    token = slack.person(name).token
    socket = await session.ws_connect(f"{slack.url}page/events?token={token}")
    assert await socket.receive_json(timeout=5) == {"type": "hello"}
    return socket


async def test_the_state_names_everyone_and_everything(slack: LocalSlack, session: aiohttp.ClientSession) -> None:
    await slack.as_person("ana").open_dm("alpha")
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


async def test_the_page_hears_live_what_its_person_can_see(
    slack: LocalSlack, session: aiohttp.ClientSession, client: AsyncWebClient
) -> None:
    ana, ben = await page_socket(slack, session, "ana"), await page_socket(slack, session, "ben")
    await slack.as_person("ana").dm("alpha", "between us")
    await client.chat_postEphemeral(channel="C0GENERAL", user="U0ANA", text="psst")
    ts = await slack.as_person("ben").say("general", "all")
    heard = [await ana.receive_json(timeout=5) for _ in range(4)]
    assert [(e["type"], e.get("subtype")) for e in heard] == [
        ("im_created", None),
        ("message", None),
        ("message", "ephemeral"),
        ("message", None),
    ]
    assert heard[0]["channel"]["id"] == "D0ANA"
    assert heard[2]["is_ephemeral"] is True
    assert (await ben.receive_json(timeout=5))["ts"] == ts


async def test_the_page_sees_the_bot_come_and_go(
    slack: LocalSlack, session: aiohttp.ClientSession, raw_sockets: Any
) -> None:
    page = await page_socket(slack, session, "ana")
    await raw_sockets(slack).open()
    assert await page.receive_json(timeout=5) == {"type": "bot_presence", "online": True}
    slack.socket_mode.drop()
    assert await page.receive_json(timeout=5) == {"type": "bot_presence", "online": False}


async def test_live_events_need_a_persons_token(slack: LocalSlack, session: aiohttp.ClientSession) -> None:
    for token in ("", "xoxp-wrong", slack.bot_token):
        with pytest.raises(aiohttp.WSServerHandshakeError) as caught:
            await session.ws_connect(f"{slack.url}page/events?token={token}")
        assert caught.value.status == 401


@pytest.mark.parametrize("path", ["page/none.js", "page/../server.py", "page/%2e%2e/server.py", "page/.hidden"])
async def test_only_files_of_the_page_folder_are_served(
    slack: LocalSlack, session: aiohttp.ClientSession, path: str
) -> None:
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
async def test_foreign_hosts_and_pages_are_refused(
    slack: LocalSlack, session: aiohttp.ClientSession, headers: dict[str, str], status: int
) -> None:
    async with session.get(slack.url + "page/state.json", headers=headers) as response:
        assert response.status == status
        if status == 403:
            assert "local_slack" in await response.text()


async def test_its_own_page_may_call(slack: LocalSlack, session: aiohttp.ClientSession) -> None:
    headers = {"Origin": slack.url.rstrip("/"), "Authorization": f"Bearer {slack.person('ana').token}"}
    async with session.post(slack.api_url + "auth.test", headers=headers) as response:
        assert (await response.json())["user"] == "ana"


async def test_a_busy_port_and_a_public_address_are_refused(slack: LocalSlack) -> None:
    port = int(slack.url.rstrip("/").rpartition(":")[2])
    with pytest.raises(PortInUse, match=f"{port}.*--port"):
        await LocalSlack(port=port).__aenter__()
    with pytest.raises(NotLoopback, match=r"0\.0\.0\.0"):
        await LocalSlack(host="0.0.0.0").__aenter__()  # noqa: S104 - must be refused


async def test_until_returns_the_value_or_shows_the_workspace(slack: LocalSlack) -> None:
    ana = slack.as_person("ana")
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


def test_names_that_would_share_an_id_are_refused() -> None:
    with pytest.raises(ValueError, match="same id"):
        LocalSlack(people=("ana", "an-a"))
    with pytest.raises(ValueError, match="same id"):
        LocalSlack(channels=("a-b", "ab"))
    with pytest.raises(ValueError, match="a-z"):
        LocalSlack(people=("Ana Lee",))
