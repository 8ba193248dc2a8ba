"""The settings of the app, and the scopes of its bot token."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Literal

from local_slack.workspace.errors import SlackRefused

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from local_slack.workspace.people import Bot

# The scopes that the app can have; all by default. Without `chat:write.public` it must join a channel to post.
EVERY_SCOPE = frozenset(
    """
    app_mentions:read assistant:write bookmarks:read bookmarks:write canvases:read canvases:write channels:history
    channels:join channels:manage channels:read chat:write chat:write.customize commands emoji:read files:read
    files:write groups:history groups:read groups:write im:history im:read im:write mpim:history mpim:read
    mpim:write pins:read pins:write reactions:read reactions:write team:read usergroups:read usergroups:write
    users.profile:read users:read users:read.email
    """.split()  # noqa: SIM905 - as a list it fills a page
)
APP_TOKEN_SCOPES = frozenset({"connections:write", "authorizations:read"})
_SHORTCUT_NAME = 24


_COMMAND = re.compile(r"/[a-z0-9_-]{1,31}")


@dataclass(frozen=True, slots=True)
class Command:
    """A slash command; ``should_escape``: the app gets mentions and channels in its text as ids, not as names."""

    command: str
    should_escape: bool = False

    def __post_init__(self) -> None:
        if not _COMMAND.fullmatch(self.command):
            raise ValueError(f"{self.command!r}: a command is / and 1 to 31 of a-z, 0-9, _ and -")


@dataclass(frozen=True, slots=True)
class Shortcut:
    """A shortcut on a message or, as a ``global`` one, next to the composer."""

    callback_id: str
    name: str
    type: Literal["message", "global"] = "message"

    def __post_init__(self) -> None:
        if not self.callback_id or not 0 < len(self.name) <= _SHORTCUT_NAME or self.type not in ("message", "global"):
            given = f"{self.callback_id}:{self.type}:{self.name}"
            raise ValueError(
                f"{given!r}: a shortcut is ID:message:NAME or ID:global:NAME, with a name of 1 to 24 letters"
            )


def commands_in(manifest: Mapping[str, Any]) -> tuple[Command, ...]:
    listed: Iterable[Mapping[str, Any]] = manifest.get("features", {}).get("slash_commands", ())
    return tuple(Command(each["command"], bool(each.get("should_escape"))) for each in listed)


def shortcuts_in(manifest: Mapping[str, Any]) -> tuple[Shortcut, ...]:
    listed: Iterable[Mapping[str, Any]] = manifest.get("features", {}).get("shortcuts", ())
    return tuple(Shortcut(each["callback_id"], each["name"], each["type"]) for each in listed)


@dataclass(frozen=True, slots=True)
class App:
    """``agent_view``: whether it is declared as an agent. ``request_url``: the target of events, None for Socket Mode.

    Without ``given_manifest``, the manifest is derived from the settings.
    """

    bot: Bot
    events: frozenset[str]
    scopes: frozenset[str]
    agent_view: bool
    given_manifest: Mapping[str, Any] | None
    request_url: Callable[[], str | None]
    commands: tuple[Command, ...] = ()
    shortcuts: tuple[Shortcut, ...] = ()

    @property
    def config_token(self) -> str:
        """Return the configuration token of the app's owner, for ``apps.manifest.export``."""
        return f"xoxe-local-{self.bot.name}"

    def manifest(self, *, messages_tab: bool) -> Mapping[str, Any]:
        if self.given_manifest is not None:
            return self.given_manifest
        url = self.request_url()
        to_url = {"request_url": url} if url else {}
        # The manifest has a message event per channel type.
        messages = {"message.channels", "message.groups", "message.im", "message.mpim"}
        events = (self.events - {"message"}) | messages if "message" in self.events else self.events
        commands = [
            {"command": each.command, "description": each.command, "should_escape": each.should_escape}
            | ({"url": url} if url else {})
            for each in self.commands
        ]
        shortcuts = [asdict(each) | {"description": each.name} for each in self.shortcuts]
        return {
            "display_information": {"name": self.bot.real_name},
            "features": {
                "app_home": {
                    "home_tab_enabled": True,
                    "messages_tab_enabled": messages_tab,
                    "messages_tab_read_only_enabled": False,
                },
                "bot_user": {"display_name": self.bot.name, "always_online": False},
                **({"agent_view": {"agent_description": ""}} if self.agent_view else {}),
                **({"slash_commands": commands} if commands else {}),
                **({"shortcuts": shortcuts} if shortcuts else {}),
            },
            "oauth_config": {"scopes": {"bot": sorted(self.scopes)}},
            "settings": {
                "event_subscriptions": {**to_url, "bot_events": sorted(events)},
                "interactivity": {"is_enabled": True, **to_url},
                "org_deploy_enabled": False,
                "socket_mode_enabled": url is None,
                "token_rotation_enabled": False,
            },
        }

    def check_scopes(self, needed: Sequence[str]) -> None:
        """Refuse a call with ``missing_scope`` if the token lacks one of its scopes."""
        if missing := [scope for scope in needed if scope not in self.scopes]:
            raise MissingScope(",".join(missing), ",".join(sorted(self.scopes)))


class MissingScope(SlackRefused):
    """The token lacks ``needed``; it has ``provided``."""

    def __init__(self, needed: str, provided: str) -> None:
        super().__init__("missing_scope")
        self.needed = needed
        self.provided = provided
