"""Response URLs of clicks: the app can post, replace or delete with them, a few times within a time limit."""

from __future__ import annotations

import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aiohttp import web

from local_slack.blocks.blocks import check_blocks, with_ids
from local_slack.methods.arguments import Arguments, read_arguments
from local_slack.workspace.errors import SlackRefused
from local_slack.workspace.messages import Body

if TYPE_CHECKING:
    from collections.abc import Callable

    from local_slack.workspace.messages import Message
    from local_slack.workspace.people import Person
    from local_slack.workspace.workspace import Workspace

_USES = 5
_LASTS_S = 30 * 60.0


@dataclass(slots=True)
class _Given:
    """The click of a response URL."""

    workspace: Workspace
    message: Message
    person: Person
    until: float
    uses: int = 0


class ResponseUrls:
    """Create response URLs and handle requests to them."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._given: dict[str, _Given] = {}

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/actions/{team}/{number}/{secret}", self.handle)]

    def give(self, workspace: Workspace, message: Message, person: Person) -> str:
        """Return the path of a new response URL."""
        path = f"actions/{workspace.directory.team.id}/{len(self._given) + 1}/{secrets.token_urlsafe(18)}"
        self._given[path] = _Given(workspace, message, person, self._clock() + _LASTS_S)
        return path

    def problem(self, path: str) -> str | None:
        """Return the error of an expired or used-up URL, or None."""
        given = self._given.get(path)
        if given is None or self._clock() > given.until:
            return "expired_url"
        return "used_url" if given.uses >= _USES else None

    async def handle(self, request: web.Request) -> web.StreamResponse:
        path = request.path.removeprefix("/")
        if problem := self.problem(path):
            return _refusal(problem, 404)
        given = self._given[path]
        try:
            _answer(given, Arguments(await read_arguments(request)))
        except SlackRefused as refused:
            return _refusal(refused.code, 400)
        given.uses += 1
        return web.Response(text="ok")


def _refusal(error: str, status: int) -> web.Response:
    return web.json_response({"ok": False, "error": error}, status=status)


def _answer(given: _Given, args: Arguments) -> None:
    workspace, message = given.workspace, given.message
    bot, kept = workspace.directory.bot, not message.only_for
    if args.flag("delete_original"):
        if kept:
            workspace.delete(message.channel, message.ts, bot)
        return
    body = _body(args)
    thread_ts = args.text("thread_ts")
    if args.flag("replace_original") and kept:
        workspace.edit(message.channel, message.ts, bot, body)
    elif args.text("response_type") == "in_channel":
        workspace.post(message.channel, bot, body, thread_ts=thread_ts)
    else:
        workspace.whisper(message.channel, bot, body, to=given.person.id, thread_ts=thread_ts)


def _body(args: Arguments) -> Body:
    text, blocks = args.text("text") or "", args.objects("blocks", "invalid_blocks_format") or ()
    if not text and not blocks:
        raise SlackRefused("no_text")
    check_blocks(blocks)
    return Body(text, with_ids(blocks), args.objects("attachments", "invalid_attachments") or ())
