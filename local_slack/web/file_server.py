"""File uploads and downloads, which Slack serves on other hosts than the Web API."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import quote

from aiohttp import web

from local_slack.workspace.people import BotToken, PersonToken

if TYPE_CHECKING:
    from collections.abc import Sequence

    from local_slack.workspace.files import File
    from local_slack.workspace.workspace import Workspace

_LARGEST_UPLOAD_BYTES = 1024**3
_SIGN_IN = "<!DOCTYPE html><html><head><title>Sign in | Slack</title></head><body>Sign in to Slack</body></html>\n"


class FileServer:
    """Accept uploads at the URLs of ``files.getUploadURLExternal``, and serve downloads."""

    def __init__(self, workspaces: Sequence[Workspace]) -> None:
        self._workspaces = workspaces

    def routes(self) -> list[web.RouteDef]:
        return [
            web.post("/upload/v1/{ticket}", self.upload),
            web.get("/files-pri/{place}/{name}", self.download),
            web.get("/files-pri/{place}/download/{name}", self.download),
        ]

    async def upload(self, request: web.Request) -> web.StreamResponse:
        """Store the content: the body, or the first file of a form."""
        content = await _content(request.clone(client_max_size=_LARGEST_UPLOAD_BYTES))
        ticket = request.match_info["ticket"]
        if content is not None and any(w.files.fill(ticket, content) for w in self._workspaces):
            return web.Response(text=f"OK - {len(content)}")
        return web.Response(status=400, text="this URL is not open, or the length differs from the announced one")

    async def download(self, request: web.Request) -> web.StreamResponse:
        """Send the content. Without permission the response is a sign-in page with status 200, as in Slack."""
        file = self._file(request)
        if file is None or file.content is None:
            return web.Response(text=_SIGN_IN, content_type="text/html")
        headers = {"X-Content-Type-Options": "nosniff", "Content-Security-Policy": "sandbox"}
        if "/download/" in request.path:
            headers["Content-Disposition"] = f"attachment; filename*=UTF-8''{quote(file.name, safe='')}"
        return web.Response(body=file.content, content_type=file.mimetype, headers=headers)

    def _file(self, request: web.Request) -> File | None:
        scheme, _, token = request.headers.get("Authorization", "").partition(" ")
        team, _, file_id = request.match_info["place"].partition("-")
        for workspace in self._workspaces:
            credential = workspace.directory.credential(token.strip())
            known = isinstance(credential, BotToken | PersonToken) and scheme.lower() == "bearer"
            if known and workspace.directory.team.id == team and not workspace.rules.refused_tokens.get(token.strip()):
                return workspace.file(file_id)
        return None


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
