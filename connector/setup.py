"""Credentials of a workspace, the check of its tokens before the service starts, and the manifest of the Slack app.

The manifest lists the scopes and events that the app needs, each with its purpose. `amplifier-slack doctor` reports
those that an app lacks.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, Protocol

from connector.events import ASK, FORK, RERUN, SUMMARISE
from connector.formatting.content import one_line
from connector.slack_api.errors import SlackCallFailed
from connector.slack_api.rate_limiter import CallSlot

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from connector.slack_api.client import SlackClient

_TOKEN_ERRORS = frozenset(
    {
        "account_inactive",
        "invalid_auth",
        "missing_scope",
        "no_permission",
        "not_allowed_token_type",
        "not_authed",
        "token_expired",
        "token_revoked",
    }
)


# https://docs.slack.dev/reference/app-manifest and https://github.com/slackapi/manifest-schema
_MOST_NAME = 35
_MOST_BOT_NAME = 80
# Bound for the names in the description, which may have 140 characters.
_MOST_WHO = 55
_MOST_SHORTCUT = 24
_MOST_PROMPTS = 4


class ConnectionRefused(Exception):  # noqa: N818 - named after the event
    """The service cannot be connected to Slack; the message names a remedy.

    Attributes:
        error: Slack's error code; blank: there is none.
    """

    def __init__(self, message: str, error: str = "") -> None:
        super().__init__(message)
        self.error = error


@dataclass(frozen=True, slots=True)
class SocketTransport:
    """Socket Mode: the service connects to Slack with the app's token (`xapp-…`)."""

    app_token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class HttpTransport:
    """Events over HTTP: Slack's requests arrive at `host` and `port`, signed with the app's signing secret.

    `health` returns the lines after "ok" at `/healthz`. It is called for each request, and must return at once.
    """

    signing_secret: str = field(repr=False)
    host: str
    port: int
    health: Callable[[], str] = field(default=str, repr=False, compare=False)


@dataclass(frozen=True, slots=True)
class SlackCredentials:
    """Credentials of an app. `api_url` ends with a slash, as in `https://slack.com/api/`.

    `bot_token` is that of one workspace; blank: the app has `Installations`.
    """

    bot_token: str = field(repr=False)
    api_url: str
    transport: SocketTransport | HttpTransport


@dataclass(frozen=True, slots=True)
class Installation:
    """An installation of the app: in one workspace, or with a blank `team` in an organisation (Enterprise Grid)."""

    team: str
    enterprise: str = ""

    @property
    def id(self) -> str:
        return self.team or self.enterprise


class NotInstalled(Exception):  # noqa: N818 - a state
    """The app is no longer installed there."""


class Installations(Protocol):
    """The installations of the app, which people add in their browsers and remove in Slack."""

    async def all(self) -> Sequence[Installation]:
        """Return the present installations."""

    async def token(self, installation_id: str) -> str:
        """Return the bot's token, renewed in time.

        Raises:
            NotInstalled: it was removed.
        """

    async def end(self, installation_id: str) -> None:
        """Remove an installation that has ended, as Slack says, unless its present token works."""


@dataclass(frozen=True, slots=True)
class Identity:
    """The bot's identity in its workspace. Display names may be blank.

    `enterprise` is the id of the workspace's organisation; blank: it has none.
    """

    team: str
    user: str
    bot_id: str
    team_name: str = ""
    user_name: str = ""
    url: str = ""
    enterprise: str = ""


@dataclass(frozen=True, slots=True)
class _Token:
    name: str
    remedy: str


_PAGE = "Find it on your app's page at api.slack.com/apps under"
_BOT_TOKEN = _Token("SLACK_BOT_TOKEN", f"It begins with xoxb-. {_PAGE} OAuth & Permissions.")
_APP_TOKEN = _Token(
    "SLACK_APP_TOKEN",
    f"It begins with xapp-. {_PAGE} Basic Information → App-Level Tokens, scope connections:write.",
)


async def preflight(api_url: str, bot: SlackClient, installation_id: str = "") -> Identity:
    """Check the bot's token, and return the bot's identity.

    `installation_id` is that of the token; blank: it is in the environment.

    Raises:
        ConnectionRefused: Slack cannot be reached, or does not accept the token.
    """
    kind = _BOT_TOKEN
    if installation_id:
        remedy = "Install the app there again, on the page /slack/install of the service."
        kind = _Token(f"the token of the installation {installation_id}", remedy)
    who = await _call(api_url, bot, "auth.test", kind)
    try:
        names = {"team_name": who.get("team", ""), "user_name": who.get("user", ""), "url": who.get("url", "")}
        names["enterprise"] = who.get("enterprise_id") or ""
        return Identity(who["team_id"], who["user_id"], who["bot_id"], **names)
    except KeyError as e:
        raise ConnectionRefused(f"The answer of auth.test has no {e}: {kind.name} is not a bot's token.") from e


async def first_address(api_url: str, app: SlackClient) -> str:
    """Check the app's token, and return the address for one Socket Mode connection.

    Raises:
        ConnectionRefused: Slack cannot be reached, or does not accept the token.
    """
    return str((await _call(api_url, app, "apps.connections.open", _APP_TOKEN)).get("url", ""))


async def _call(api_url: str, client: SlackClient, method: str, kind: _Token) -> dict[str, Any]:
    try:
        return await client.call(method, {}, CallSlot())
    except SlackCallFailed as e:
        if e.may_be_unreachable:
            raise ConnectionRefused(
                f"Slack cannot be reached at {api_url} ({e}). Check the network, and SLACK_API_URL if you set it."
            ) from e
        if e.error not in _TOKEN_ERRORS:
            raise ConnectionRefused(
                f"Slack refuses {kind.name} ({e}). Ask an administrator of the workspace; "
                "`amplifier-slack doctor` shows the details."
            ) from e
        raise ConnectionRefused(f"Slack does not accept {kind.name} ({e.error}). {kind.remedy}", e.error) from e


@dataclass(frozen=True, slots=True)
class MethodRequirement:
    """A scope or an event of the app.

    Args:
        name: Slack's name.
        purpose: the feature that uses it.
        without: the effect of its absence; blank: it is required.
    """

    name: str
    purpose: str
    without: str = ""

    @property
    def is_required(self) -> bool:
        return not self.without


# https://docs.slack.dev/reference/scopes
BOT_SCOPES = (
    MethodRequirement("app_mentions:read", "receive mentions of the bot"),
    MethodRequirement(
        "assistant:write",
        "use Slack's agent features",
        "Slack's own status line, thread titles and Stop button are missing",
    ),
    MethodRequirement("channels:history", "read threads in public channels"),
    MethodRequirement("channels:read", "read the topics of channels", "topics do not choose the agent of a channel"),
    MethodRequirement("chat:write", "post answers"),
    MethodRequirement(
        "chat:write.customize", "post under each agent's name and icon", "answers have the bot's own name"
    ),
    MethodRequirement(
        "commands", "offer the slash command and the actions on messages", "people have only `!` commands in threads"
    ),
    MethodRequirement("files:read", "read the files of messages", "agents see only the names of files"),
    MethodRequirement(
        "files:write", "post a very long answer as a file", "a very long answer is split into many messages"
    ),
    MethodRequirement(
        "groups:history", "read threads in private channels", "threads in private channels are not followed"
    ),
    MethodRequirement(
        "groups:read", "read the topics of private channels", "topics of private channels do not choose an agent"
    ),
    MethodRequirement("im:history", "read direct messages"),
    MethodRequirement(
        "im:write", "answer in direct messages that the bot begins", "a thread is not summarised in private"
    ),
    MethodRequirement("mpim:history", "read group messages", "threads in group messages are not followed"),
    MethodRequirement("reactions:read", "stop a run with ❌"),
    MethodRequirement("reactions:write", "show the state of a message with ⏳, 📨 and 👀"),
    MethodRequirement(
        "users:read",
        "read users' names and time zones",
        "agents see user ids instead of names, and reactions in shared channels do not stop runs",
    ),
)

# https://docs.slack.dev/reference/events
BOT_EVENTS = (
    MethodRequirement(
        "agent_session_stopped", "stop a run with Slack's own button", "Slack's own Stop button is missing"
    ),
    MethodRequirement(
        "app_context_changed",
        "know which channel a person looks at",
        "agents do not know which channel a person looks at next to direct messages",
    ),
    MethodRequirement(
        "app_home_opened",
        "show the Home tab, and suggest prompts in direct messages",
        "the Home tab is empty, and no prompts are suggested in direct messages",
    ),
    MethodRequirement("app_mention", "receive mentions of the bot"),
    MethodRequirement("message.channels", "follow threads in public channels"),
    MethodRequirement(
        "message.groups", "follow threads in private channels", "threads in private channels are not followed"
    ),
    MethodRequirement("message.im", "receive direct messages"),
    MethodRequirement("message.mpim", "follow threads in group messages", "threads in group messages are not followed"),
    MethodRequirement("reaction_added", "stop a run with ❌, and run a message again with 🔁"),
)

# Of an app with installations. https://docs.slack.dev/reference/events/app_uninstalled and its neighbours
UNINSTALLED, REVOKED = "app_uninstalled", "tokens_revoked"
GRANTED, WITHDRAWN = "team_access_granted", "team_access_revoked"
INSTALLATION_EVENTS = (
    MethodRequirement(
        UNINSTALLED, "end an installation", "the tokens of an uninstalled app are deleted a day after its end"
    ),
    MethodRequirement(
        GRANTED, "serve a workspace that an organisation adds", "a workspace that an organisation adds has to wait"
    ),
    MethodRequirement(
        WITHDRAWN, "leave a workspace that an organisation removes", "a removed workspace is tried for five minutes"
    ),
    MethodRequirement(REVOKED, "end an installation", "revoked tokens are deleted a day later"),
)

_SHORTCUTS = (
    (FORK, "Fork from here", "Continue in a new thread, with the history up to here"),
    (RERUN, "Run again from here", "Rewind to before this message, and run it again"),
    (SUMMARISE, "Summarise this thread", "Summarise the thread of this message, for everyone or only for you"),
)
# The actions of the agent view.
_ACTIONS = (
    ("Ask about a message", "Answers your question about a message, in its thread"),
    ("Summarise a thread", "Summarises a thread, in the thread or only for you"),
    ("Continue elsewhere", "Continues a conversation in a new thread, from any message"),
)

_ASK_PURPOSE = "Ask the agent about this message, in its thread"

# Scope of the app-level token, which only Socket Mode needs. A manifest cannot create this token.
APP_SCOPE = MethodRequirement("connections:write", "open the Socket Mode connection")

# Path of the request URL for events over HTTP.
PATH = "/slack/events"


def manifest(
    names: Sequence[str],
    request_url: str | None = None,
    command: str = "/agent",
    prompts: Sequence[Sequence[tuple[str, str]]] = (),
    return_url: str | None = None,
) -> dict[str, Any]:
    """Return the manifest of an app for agents with these names; the app is named after the first.

    `command` is the name of its slash command. `request_url` is the address for events over HTTP; `None`: Socket Mode.
    `prompts` are titles and messages from several sources; the manifest has the first ones of each, as many as fit.
    `return_url` is the page to which Slack returns after an installation; `None`: the app is of one workspace.
    """
    is_installed = return_url is not None
    events = [each.name for each in (*BOT_EVENTS, *(INSTALLATION_EVENTS if is_installed else ()))]
    in_turn = dict.fromkeys(each for row in zip_longest(*prompts) for each in row if each is not None)
    suggested = [{"title": title, "message": message} for title, message in list(in_turn)[:_MOST_PROMPTS]]
    to_url = {} if request_url is None else {"request_url": request_url}
    who = one_line(" and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part), _MOST_WHO)
    description = f"Works with you in threads: {who}. Reply to steer the work, and stop it at any time."
    return {
        "display_information": {"name": one_line(names[0], _MOST_NAME), "description": description},
        "features": {
            "app_home": {
                "home_tab_enabled": True,
                "messages_tab_enabled": True,
                "messages_tab_read_only_enabled": False,
            },
            "bot_user": {"display_name": one_line(names[0], _MOST_BOT_NAME), "always_online": True},
            "agent_view": {
                "agent_description": description,
                **({"suggested_prompts": suggested} if suggested else {}),
                "actions": [{"name": name, "description": purpose} for name, purpose in _ACTIONS],
            },
            "shortcuts": [
                {"name": name, "type": "message", "callback_id": callback_id, "description": purpose}
                for callback_id, name, purpose in ((ASK, _ask_name(names[0]), _ASK_PURPOSE), *_SHORTCUTS)
            ],
            "slash_commands": [
                {
                    "command": command,
                    "description": "Show, stop and begin the work of agents in this channel",
                    "usage_hint": "status | new TEXT | stop | help",
                    "should_escape": True,
                    **({} if request_url is None else {"url": request_url}),
                }
            ],
        },
        "oauth_config": {
            **({"redirect_urls": [return_url]} if is_installed else {}),
            "scopes": {"bot": [each.name for each in BOT_SCOPES]},
        },
        "settings": {
            "event_subscriptions": {**to_url, "bot_events": events},
            "interactivity": {"is_enabled": True, **to_url},
            "org_deploy_enabled": is_installed,
            "socket_mode_enabled": request_url is None,
            "token_rotation_enabled": is_installed,
        },
    }


def _ask_name(name: str) -> str:
    """Return the name of the action that asks the first agent, as long as Slack permits."""
    name = one_line(name, _MOST_SHORTCUT - len("Ask "))
    names = (f"Ask {name}{end}" for end in (" about this message", " about this", ""))
    return next(each for each in names if len(each) <= _MOST_SHORTCUT)
