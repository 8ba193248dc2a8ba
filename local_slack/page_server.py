"""What the web page needs beside the Web API: its files, a first picture, and live events."""

from __future__ import annotations

import asyncio
import contextlib
from pathlib import Path
from typing import TYPE_CHECKING

from aiohttp import web

from .changes import Change, Whispered
from .events import channel_of, event_of
from .people import PersonToken
from .wire import other_member

if TYPE_CHECKING:
    from .messages import Channel
    from .people import Person
    from .wire import Json
    from .workspace import Workspace

_FOLDER = Path(__file__).with_name("page")
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY"}


class PageServer:
    """Serve the page of the workspace; owns the page's open event sockets."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace
        self._sockets: set[web.WebSocketResponse] = set()

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/", self.index),
            web.get("/page/state.json", self.state),
            web.get("/page/events", self.events),
            web.get(r"/page/{path:[\w][\w./-]*}", self.file),
        ]

    async def index(self, _request: web.Request) -> web.StreamResponse:
        return _file("index.html")

    async def file(self, request: web.Request) -> web.StreamResponse:
        return _file(request.match_info["path"])

    async def state(self, _request: web.Request) -> web.StreamResponse:
        return web.json_response(state_json(self._workspace), headers=_HEADERS)

    async def events(self, request: web.Request) -> web.StreamResponse:
        credential = self._workspace.directory.credential(request.query.get("token", ""))
        if not isinstance(credential, PersonToken):
            return web.Response(status=401, text="a person's token is needed")
        socket = web.WebSocketResponse(heartbeat=30, timeout=1.0)
        await socket.prepare(request)
        self._sockets.add(socket)
        try:
            await self._stream(socket, credential.member)
        finally:
            self._sockets.discard(socket)
        return socket

    async def close(self) -> None:
        for socket in tuple(self._sockets):
            await socket.close()

    async def _stream(self, socket: web.WebSocketResponse, person: Person) -> None:
        events: asyncio.Queue[Json] = asyncio.Queue()

        def heard(change: Change) -> None:
            if sees(person, change, self._workspace):
                events.put_nowait(event_of(change, self._workspace))

        events.put_nowait({"type": "hello"})
        end = self._workspace.listen(heard)
        try:
            async with asyncio.TaskGroup() as tasks:
                writer = tasks.create_task(_write(socket, events))
                async for _ in socket:
                    pass
                writer.cancel()
        finally:
            end()


def sees(person: Person, change: Change, workspace: Workspace) -> bool:
    if isinstance(change, Whispered):
        return change.message.only_for == person.id
    channel = channel_of(change)
    return channel is None or person.id in workspace.channel(channel).members


def state_json(workspace: Workspace) -> Json:
    directory = workspace.directory
    people = [
        {"id": p.id, "name": p.name, "real_name": p.real_name, "color": p.color, "token": p.token}
        for p in directory.people
    ]
    bot = directory.bot
    bot_state = {
        "id": bot.id,
        "bot_id": bot.bot_id,
        "app_id": bot.app_id,
        "name": bot.name,
        "real_name": bot.real_name,
        "color": bot.color,
        "online": workspace.bot_online,
    }
    return {
        "team": {"id": directory.team.id, "name": directory.team.name},
        "people": people,
        "bots": [bot_state],
        "channels": [_channel_state(channel, workspace) for channel in workspace.channels],
    }


def _channel_state(channel: Channel, workspace: Workspace) -> Json:
    """``user`` of a direct message is the bot where it takes part: the first person's other one."""
    first = next((m for m in channel.members if m != workspace.directory.bot.id), "")
    return {
        "id": channel.id,
        "name": channel.name,
        "is_im": channel.is_im,
        "user": other_member(channel, first) if channel.is_im else None,
        "topic": channel.topic,
        "members": list(channel.members),
    }


async def _write(socket: web.WebSocketResponse, events: asyncio.Queue[Json]) -> None:
    with contextlib.suppress(ConnectionError):
        while True:
            await socket.send_json(await events.get())


def _file(path: str) -> web.StreamResponse:
    file = (_FOLDER / path).resolve()
    if not file.is_relative_to(_FOLDER.resolve()) or not file.is_file():
        return web.Response(status=404, text=f"local_slack has no page file {path!r}\n", headers=_HEADERS)
    return web.FileResponse(file, headers=_HEADERS)
