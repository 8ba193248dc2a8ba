"""Response URLs: the app posts, replaces or deletes with them a few times after a click, a command or a shortcut."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web

from local_slack.blocks.blocks import TEXT_OF_A_POST, check_blocks, check_text, with_ids
from local_slack.methods.calls import Arguments, read_arguments
from local_slack.workspace.errors import SlackRefused
from local_slack.workspace.messages import Body

if TYPE_CHECKING:
    from collections.abc import Callable

    from local_slack.workspace.messages import WorkspaceMessage
    from local_slack.workspace.people import Person
    from local_slack.workspace.workspace import Workspace

_USES = 5
_LASTS_S = 30 * 60.0


@dataclass(frozen=True, slots=True)
class Reply:
    """The place of the app's answers to ``person``; ``original`` is the message with the button, if there is one."""

    workspace: Workspace
    channel: str
    person: Person
    original: WorkspaceMessage | None = None

    def send(self, args: Arguments) -> str | None:
        """Post, replace or delete; return the ts of a new message. The app needs not be a member of the channel."""
        workspace, original = self.workspace, self.original
        bot = workspace.directory.bot
        if args.flag("delete_original") and original:
            if original.only_for:
                workspace.change_whisper(original, None)
            else:
                workspace.delete(self.channel, original.ts, bot)
            return None
        body = _body(args)
        if args.flag("replace_original") and original:
            if original.only_for:
                workspace.change_whisper(original, body)
            else:
                workspace.edit(self.channel, original.ts, bot, body)
            return None
        thread_ts = args.thread_ts()
        if args.text("response_type") == "in_channel":
            return workspace.post(self.channel, bot, body, thread_ts=thread_ts, as_answer=True).ts
        return workspace.whisper(self.channel, bot, body, to=self.person.id, thread_ts=thread_ts, as_answer=True).ts


def _body(args: Arguments) -> Body:
    text, blocks = args.text("text") or "", args.objects("blocks", "invalid_blocks_format")
    attachments = args.objects("attachments", "invalid_attachments")
    if not text and not blocks and not attachments:
        raise SlackRefused("no_text")
    check_text(text, TEXT_OF_A_POST)
    check_blocks(blocks)
    return Body(text, with_ids(blocks), attachments)


@dataclass(slots=True)
class _Url:
    reply: Reply
    until: float
    uses: int = 0


class ResponseUrls:
    """Create response URLs and handle requests to them. Each works five times within 30 minutes."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._urls: dict[str, _Url] = {}

    def give(self, reply: Reply) -> str:
        """Return the path of a new response URL."""
        team = reply.workspace.directory.team.id
        path = f"actions/{team}/{len(self._urls) + 1}/{secrets.token_urlsafe(18)}"
        self._urls[path] = _Url(reply, self._clock() + _LASTS_S)
        return path

    def problem(self, path: str) -> str | None:
        """Return the error of an expired or used-up URL, or None."""
        url = self._urls.get(path)
        if url is None or self._clock() > url.until:
            return "expired_url"
        return "used_url" if url.uses >= _USES else None

    async def handle(self, request: web.Request) -> web.StreamResponse:
        path = request.path.removeprefix("/")
        if problem := self.problem(path):
            return web.json_response({"ok": False, "error": problem}, status=404)
        try:
            self._urls[path].reply.send(Arguments(await read_arguments(request)))
        except SlackRefused as refused:
            return web.json_response({"ok": False, "error": refused.code}, status=400)
        self._urls[path].uses += 1
        return web.Response(text="ok")
