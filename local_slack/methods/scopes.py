"""The scope that each method requires of the bot's token."""

from __future__ import annotations

from typing import TYPE_CHECKING

from local_slack.workspace.errors import SlackRefused

if TYPE_CHECKING:
    from local_slack.methods.arguments import Arguments

APP_TOKEN_SCOPES = frozenset({"connections:write", "authorizations:read"})

_SCOPES = {
    "agents.sessions.rename": "chat:write",
    "agents.sessions.setStatus": "chat:write",
    "assistant.threads.setStatus": "assistant:write",
    "assistant.threads.setSuggestedPrompts": "assistant:write",
    "assistant.threads.setTitle": "assistant:write",
    "bots.info": "users:read",
    "chat.appendStream": "chat:write",
    "chat.delete": "chat:write",
    "chat.postEphemeral": "chat:write",
    "chat.postMessage": "chat:write",
    "chat.startStream": "chat:write",
    "chat.stopStream": "chat:write",
    "chat.update": "chat:write",
    "conversations.archive": "channels:manage",
    "conversations.create": "channels:manage",
    "conversations.invite": "channels:manage",
    "conversations.join": "channels:join",
    "conversations.leave": "channels:manage",
    "files.completeUploadExternal": "files:write",
    "files.delete": "files:write",
    "files.getUploadURLExternal": "files:write",
    "files.info": "files:read",
    "reactions.add": "reactions:write",
    "reactions.get": "reactions:read",
    "reactions.remove": "reactions:write",
    "users.info": "users:read",
    "users.list": "users:read",
}
# These need the scope of each conversation type that they read.
_BY_KIND = {
    "conversations.history": "history",
    "conversations.info": "read",
    "conversations.list": "read",
    "conversations.members": "read",
    "conversations.open": "write",
    "conversations.replies": "history",
    "users.conversations": "read",
}
_FAMILIES = {"public_channel": "channels", "private_channel": "groups", "mpim": "mpim", "im": "im"}


def check_scopes(method: str, args: Arguments, provided: frozenset[str]) -> None:
    """Refuse a call with ``missing_scope`` if the token lacks its scope."""
    missing = [scope for scope in needed(method, args) if scope not in provided]
    if missing:
        raise MissingScope(",".join(missing), ",".join(sorted(provided)))


def needed(method: str, args: Arguments) -> tuple[str, ...]:
    if ending := _BY_KIND.get(method):
        return tuple(f"{family}:{ending}" for family in _families(method, args))
    scopes = (_SCOPES[method],) if method in _SCOPES else ()
    lends_a_name = any(args.has(name) for name in ("username", "icon_emoji", "icon_url"))
    return (*scopes, "chat:write.customize") if scopes == ("chat:write",) and lends_a_name else scopes


class MissingScope(SlackRefused):
    """The token lacks ``needed``; it has ``provided``."""

    def __init__(self, needed: str, provided: str) -> None:
        super().__init__("missing_scope")
        self.needed = needed
        self.provided = provided


def _families(method: str, args: Arguments) -> list[str]:
    if method == "conversations.open":
        return ["im"]
    if args.has("channel"):
        return ["im" if str(args.given()["channel"]).startswith("D") else "channels"]
    kinds = str(args.given().get("types") or "public_channel").split(",")
    return [_FAMILIES[kind.strip()] for kind in kinds if kind.strip() in _FAMILIES]
