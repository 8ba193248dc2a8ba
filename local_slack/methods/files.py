"""Files: Slack's ``files.*`` methods, and uploads and downloads, which Slack serves on other hosts than the Web API."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING
from urllib.parse import quote

from aiohttp import web

from local_slack.blocks.slack_json import file_json
from local_slack.methods.calls import invalid, may_see, method, token_of
from local_slack.methods.rate_limits import TIER_3, TIER_4
from local_slack.workspace.errors import SlackRefused
from local_slack.workspace.messages import Body
from local_slack.workspace.people import Bot, Person

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from local_slack.json_limits import Json
    from local_slack.methods.app import App
    from local_slack.methods.calls import Call
    from local_slack.workspace.files import File
    from local_slack.workspace.installations import Installations
    from local_slack.workspace.people import Member
    from local_slack.workspace.workspace import Workspace

    Transfer = Callable[[str, web.Request, Callable[[], web.Response]], Awaitable[web.StreamResponse]]

_LARGEST_FILE_BYTES = 1024**3
_MOST_AT_ONCE = 10
_LONGEST_ALT_CHARS = 1000
# The names of transfers in faults.
DOWNLOAD, UPLOAD = "download", "upload"
_SIGN_IN = "<!DOCTYPE html><html><head><title>Sign in | Slack</title></head><body>Sign in to Slack</body></html>\n"


@method("files.getUploadURLExternal", "filename", "length", scope="files:write", limits=TIER_4)
def get_upload_url(call: Call) -> Json:
    name, length = call.args.required("filename"), call.args.integer("length")
    if not name:
        raise invalid("[ERROR] must be more than 0 characters [json-pointer:/filename]")
    if length <= 0:
        raise invalid("[ERROR] must be greater than 0 [json-pointer:/length]")
    if length > _LARGEST_FILE_BYTES:
        raise SlackRefused("file_upload_size_restricted")
    snippet_type = call.args.text("snippet_type") or ""
    alt = call.args.text("alt_txt") or ""
    if len(alt) > _LONGEST_ALT_CHARS:
        raise invalid(f"[ERROR] must be less than {_LONGEST_ALT_CHARS + 1} characters [json-pointer:/alt_txt]")
    file = call.workspace.files.begin(call.member, name, length, call.base_url, snippet_type, alt)
    return {"upload_url": file.upload_url, "file_id": file.id}


@method("files.completeUploadExternal", "files", scope="files:write", limits=TIER_4)
def complete_upload(call: Call) -> Json:
    """Complete the uploads and share them in one message if a channel is given; a refused call changes nothing.

    With ``share_delay_s`` the message follows the answer; one that is refused then is dropped.
    """
    wanted, workspace = _wanted(call), call.workspace
    named = (call.args.text("channel_id") or call.args.text("channels") or "").split(",")
    places = [call.visible(name.strip()).id for name in named if name.strip()]
    thread_ts = call.args.thread_ts()
    for place in places:
        workspace.check_post(place, call.member, thread_ts)
    files = workspace.files.complete(call.member, wanted)
    comment = call.args.text("initial_comment") or ""

    def post() -> None:
        for place in places:
            with suppress(SlackRefused):
                workspace.post(place, call.member, Body(comment, files=files), thread_ts=thread_ts)

    if delay_s := workspace.rules.share_delay_s:
        asyncio.get_running_loop().call_later(delay_s, post)
    else:
        post()
    return {"files": [file_json(file) for file in files]}


@method("files.info", "file", scope="files:read", limits=TIER_4)
def info(call: Call) -> Json:
    file = call.workspace.files.get(call.args.required("file"))
    if file is None or not _may_read(call.member, file, call.workspace):
        raise SlackRefused("file_not_found")
    return {"file": file_json(file), "comments": [], "response_metadata": {"next_cursor": ""}}


@method("files.list", scope="files:read", limits=TIER_3)
def files(call: Call) -> Json:
    """List the files in channels that the caller sees, the newest first, by page number as Slack does."""
    args, workspace = call.args, call.workspace
    only, user = args.text("channel"), args.text("user")
    shown = {
        file.id: file
        for channel in workspace.channels
        if may_see(call.member, channel) and only in (None, "", channel.id)
        for message in workspace.messages(channel.id)
        for file in message.files
        if not file.deleted and user in (None, "", file.user)
    }
    found = sorted(shown.values(), key=lambda file: (file.created, file.id), reverse=True)
    count, page = (max(args.integer(n), 1) if args.has(n) else default for n, default in (("count", 100), ("page", 1)))
    paging = {"count": count, "total": len(found), "page": page, "pages": -(-len(found) // count)}
    return {"files": [file_json(file) for file in found[(page - 1) * count : page * count]], "paging": paging}


@method("files.delete", "file", scope="files:write", limits=TIER_3)
def delete(call: Call) -> Json:
    call.workspace.withdraw(call.workspace.files.delete(call.member, call.args.required("file")))
    return {}


def _wanted(call: Call) -> list[tuple[str, str]]:
    """Return the id and title of each file to complete."""
    files = call.args.objects("files", "invalid_arguments")
    if not files:
        raise invalid("[ERROR] no files to complete [json-pointer:/files]")
    if len(files) > _MOST_AT_ONCE:
        raise invalid(f"[ERROR] no more than {_MOST_AT_ONCE} items allowed [json-pointer:/files]")
    for number, file in enumerate(files):
        if not isinstance(file.get("id"), str):
            raise invalid(f"[ERROR] missing required field: id [json-pointer:/files/{number}]")
    return [(file["id"], str(file.get("title") or "")) for file in files]


def _may_read(member: Member, file: File, workspace: Workspace) -> bool:
    """Return whether a member may read a file. An app may read its own, and those shared in its channels."""
    if isinstance(member, Person) or file.user == member.id:
        return True
    channels = (each for each in workspace.channels if member.id in each.members)
    messages = [message for each in channels for message in workspace.messages(each.id)]
    forwarded = (shared["id"] for each in messages for a in each.body.attachments for shared in a.get("files", ()))
    return file.id in {*forwarded, *(shared.id for each in messages for shared in each.files)}


class FileServer:
    """Accept uploads at the URLs of ``files.getUploadURLExternal``, and serve downloads.

    ``transfer`` answers a request of the app, with the next fault of ``download`` or ``upload``, if there is one.
    """

    def __init__(
        self, workspaces: Sequence[Workspace], transfer: Transfer, installations: Installations, app: App
    ) -> None:
        self._workspaces = workspaces
        self._transfer = transfer
        self._installations = installations
        self._app = app

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/upload/v1/{ticket}", self.upload),
            web.get("/files-pri/{place}/{name}", self.download),
            web.get("/files-pri/{place}/download/{name}", self.download),
            web.get("/files/{user}/{id}/{name}", self.canvas),
        ]

    async def upload(self, request: web.Request) -> web.StreamResponse:
        """Store the content: the body, or the first file of a form."""
        content = await _content(request.clone(client_max_size=_LARGEST_FILE_BYTES))
        ticket = request.match_info["ticket"]

        def store() -> web.Response:
            if content is not None and any(w.files.fill(ticket, content) for w in self._workspaces):
                return web.Response(text=f"OK - {len(content)}")
            return web.Response(status=400, text="this URL is not open, or the length differs from the announced one")

        by_app = any(w.directory.bot.id == w.files.uploader(ticket) for w in self._workspaces)
        return await self._transfer(UPLOAD, request, store) if by_app else store()

    async def download(self, request: web.Request) -> web.StreamResponse:
        """Send the content. Without permission the response is a sign-in page with status 200, as in Slack."""
        holder, file = self._file(request)
        return (
            await self._transfer(DOWNLOAD, request, lambda: _sent(file, request))
            if isinstance(holder, Bot)
            else _sent(file, request)
        )

    async def canvas(self, request: web.Request) -> web.Response:
        """Show a canvas as text, at the address of its links."""
        found = (each.files.get(request.match_info["id"]) for each in self._workspaces)
        file = next((each for each in found if each is not None and each.is_canvas and each.shown_in), None)
        if file is None or file.content is None:
            return web.Response(status=404, text="There is no canvas here that others may read.")
        headers = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox"}
        return web.Response(text=f"{file.title}\n\n{file.content.decode()}", headers=headers)

    def _file(self, request: web.Request) -> tuple[Member | None, File | None]:
        token = token_of(request, {})
        team, _, file_id = request.match_info["place"].partition("-")
        match self._installations.find(token, {"team_id": team}):
            case (workspace, Person() | Bot() as holder) if workspace.directory.team.id == team:
                is_refused = token in workspace.rules.refused_tokens or bool(self._installations.problem(token))
                lacks_scope = holder == workspace.directory.bot and "files:read" not in self._app.scopes
                file = None if is_refused or lacks_scope else workspace.files.get(file_id)
                return holder, file if file is not None and _may_read(holder, file, workspace) else None
        return None, None


def _sent(file: File | None, request: web.Request) -> web.Response:
    if file is None or file.content is None:
        return web.Response(text=_SIGN_IN, content_type="text/html")
    headers = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox"}
    if "/download/" in request.path:
        headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(file.name, safe='')}"
    return web.Response(body=file.content, content_type=file.mimetype, headers=headers)


async def _content(request: web.BaseRequest) -> bytes | None:
    if request.content_type != "multipart/form-data":
        return await request.read()
    form = await request.post()
    for field in form.values():
        if isinstance(field, web.FileField):
            with field.file:
                return field.file.read()
        if isinstance(field, bytes | bytearray):
            return bytes(field)
    return None
