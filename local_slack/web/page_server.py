"""Serve the web page: its files, the initial state, and live events."""

from __future__ import annotations

import asyncio
import contextlib
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import quote

from aiohttp import web

from local_slack.blocks.slack_json import other_member
from local_slack.delivery.events import event_of, sees, session_json, views_event
from local_slack.workspace.people import Person
from local_slack.workspace.workspace import holder_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from local_slack.json_limits import Json
    from local_slack.methods.app import App
    from local_slack.workspace.files import File
    from local_slack.workspace.messages import Change, Channel
    from local_slack.workspace.people import Bot
    from local_slack.workspace.workspace import Workspace

_FOLDER = Path(__file__).parents[1] / "page"
_HEADERS = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff", "X-Frame-Options": "DENY"}


class PageServer:
    """Serve the page of the workspaces (the first is the default); own its event sockets.

    ``start_command`` returns the shell command that connects a bot; the page shows it while no bot is connected.
    ``tour`` is the guided tour, if there is one.
    """

    def __init__(
        self,
        workspaces: Sequence[Workspace],
        app: App,
        start_command: Callable[[], str],
        tour: Json | None,
    ) -> None:
        self._app = app
        self._workspaces = {workspace.directory.team.id: workspace for workspace in workspaces}
        self._default = workspaces[0]
        self._start_command, self._tour = start_command, tour
        self._sockets: set[web.WebSocketResponse] = set()

    def routes(self) -> list[web.RouteDef]:
        return [
            web.get("/", self.index),
            web.get("/page/state.json", self.state),
            web.get("/page/events", self.events),
            web.get("/page/files/{id}", self.download),
            web.get(r"/page/{path:[\w][\w./-]*}", self.file),
        ]

    async def index(self, _request: web.Request) -> web.StreamResponse:
        return _file("index.html")

    async def file(self, request: web.Request) -> web.StreamResponse:
        return _file(request.match_info["path"])

    async def state(self, request: web.Request) -> web.StreamResponse:
        """Return the state of the workspace that ``team`` in the query names."""
        workspace = self._workspaces.get(request.query.get("team", ""), self._default)
        teams = [_team_state(each) for each in self._workspaces.values()]
        more = {
            "teams": teams,
            "start_command": self._start_command(),
            "tour": self._tour,
            "commands": [each.command for each in self._app.commands],
            "shortcuts": [asdict(each) for each in self._app.shortcuts],
        }
        return web.json_response(state_json(workspace) | more, headers=_HEADERS)

    async def download(self, request: web.Request) -> web.StreamResponse:
        """Send a file to a member of its channels. The token is in the query, because links cannot set headers."""
        workspace, person = self._seat(request)
        file = workspace.files.get(request.match_info["id"])
        if file is None or file.content is None or not _is_shown(file, person, workspace):
            raise web.HTTPNotFound(text="file not found\n", headers=_HEADERS)
        disposition = f"attachment; filename*=UTF-8''{quote(file.name, safe='')}"
        headers = {**_HEADERS, "Content-Disposition": disposition, "Content-Type": file.mimetype}
        return web.Response(body=file.content, headers=headers)

    async def events(self, request: web.Request) -> web.StreamResponse:
        workspace, person = self._seat(request)
        socket = web.WebSocketResponse(heartbeat=30, timeout=1.0)
        await socket.prepare(request)
        self._sockets.add(socket)
        try:
            await self._stream(socket, workspace, person)
        finally:
            self._sockets.discard(socket)
        return socket

    async def close(self) -> None:
        for socket in tuple(self._sockets):
            await socket.close()

    def _seat(self, request: web.Request) -> tuple[Workspace, Person]:
        """Return the workspace and the person of the token in the query."""
        match holder_of(request.query.get("token", ""), self._workspaces.values()):
            case (workspace, Person() as person):
                return workspace, person
        raise web.HTTPUnauthorized(text="a person's token is needed\n", headers=_HEADERS)

    async def _stream(self, socket: web.WebSocketResponse, workspace: Workspace, person: Person) -> None:
        events: asyncio.Queue[Json] = asyncio.Queue()

        def on_change(change: Change) -> None:
            if sees(person, change, workspace):
                events.put_nowait(event_of(change, workspace))

        events.put_nowait({**views_event(person.id, workspace), "type": "hello"})
        end = workspace.listen(on_change)
        try:
            async with asyncio.TaskGroup() as tasks:
                writer = tasks.create_task(_write(socket, events))
                async for _ in socket:
                    pass
                writer.cancel()
        finally:
            end()


def state_json(workspace: Workspace) -> Json:
    directory = workspace.directory
    people = [
        {"id": p.id, "name": p.name, "real_name": p.real_name, "color": p.color, "token": p.token, "kind": p.kind}
        for p in directory.people
    ]
    return {
        "team": _team_state(workspace),
        "people": people,
        "bots": [_bot_state(directory.bot) | {"online": workspace.bot_online}],
        "apps": [_bot_state(app) for app in directory.apps],
        "channels": [_channel_state(channel, workspace) for channel in workspace.channels],
        "sessions": [session_json(session) for session in workspace.sessions],
    }


def _bot_state(bot: Bot) -> Json:
    names = ("id", "bot_id", "app_id", "name", "real_name", "color")
    return {name: getattr(bot, name) for name in names}


def _team_state(workspace: Workspace) -> Json:
    team = workspace.directory.team
    return {"id": team.id, "name": team.name}


def _is_shown(file: File, person: Person, workspace: Workspace) -> bool:
    seen = (channel for channel in workspace.channels if person.id in channel.members)
    messages = (message for channel in seen for message in workspace.messages(channel.id))
    return any(shared.id == file.id for message in messages for shared in message.files)


def _channel_state(channel: Channel, workspace: Workspace) -> Json:
    """``user`` of a direct message is the bot if it is a member, else the second person."""
    first = next((m for m in channel.members if m != workspace.directory.bot.id), "")
    return {
        "id": channel.id,
        "name": channel.name,
        "is_im": channel.is_im,
        "user": other_member(channel, first) if channel.is_im else None,
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
