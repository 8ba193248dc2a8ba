"""The manifest of the Slack app: the scopes and events that it needs, each with its purpose.

`amplifier-slack doctor` reports those that an app lacks.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

# https://docs.slack.dev/reference/app-manifest and https://github.com/slackapi/manifest-schema
_MOST_NAME = 35
_MOST_BOT_NAME = 80
# Bound for the names in the description, which may have 140 characters.
_MOST_WHO = 55


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
    MethodRequirement("chat:write", "post answers"),
    MethodRequirement(
        "chat:write.customize", "post under each agent's name and icon", "answers have the bot's own name"
    ),
    MethodRequirement(
        "files:write", "post a very long answer as a file", "a very long answer is split into many messages"
    ),
    MethodRequirement(
        "groups:history", "read threads in private channels", "threads in private channels are not followed"
    ),
    MethodRequirement("im:history", "read direct messages"),
    MethodRequirement("mpim:history", "read group messages", "threads in group messages are not followed"),
    MethodRequirement("reactions:read", "stop a run with ❌"),
    MethodRequirement("reactions:write", "show the state of a message with ⏳, 📨 and 👀"),
    MethodRequirement(
        "users:read",
        "read users' names",
        "agents see user ids instead of names, and reactions in shared channels do not stop runs",
    ),
)

# https://docs.slack.dev/reference/events
BOT_EVENTS = (
    MethodRequirement(
        "agent_session_stopped", "stop a run with Slack's own button", "Slack's own Stop button is missing"
    ),
    MethodRequirement("app_mention", "receive mentions of the bot"),
    MethodRequirement("message.channels", "follow threads in public channels"),
    MethodRequirement(
        "message.groups", "follow threads in private channels", "threads in private channels are not followed"
    ),
    MethodRequirement("message.im", "receive direct messages"),
    MethodRequirement("message.mpim", "follow threads in group messages", "threads in group messages are not followed"),
    MethodRequirement("reaction_added", "stop a run with ❌"),
)

# Scope of the app-level token, which only Socket Mode needs. A manifest cannot create this token.
APP_SCOPE = MethodRequirement("connections:write", "open the Socket Mode connection")

# Path of the request URL for events over HTTP.
PATH = "/slack/events"


def manifest(names: Sequence[str], request_url: str | None = None) -> dict[str, Any]:
    """Return the manifest of an app for agents with these names; the app is named after the first.

    `request_url` is the address for events over HTTP; `None`: Socket Mode.
    """
    to_url = {} if request_url is None else {"request_url": request_url}
    who = _cut(" and ".join(part for part in (", ".join(names[:-1]), names[-1]) if part), _MOST_WHO)
    description = f"Works with you in threads: {who}. Reply to steer the work, and stop it at any time."
    return {
        "display_information": {"name": _cut(names[0], _MOST_NAME), "description": description},
        "features": {
            "app_home": {
                "home_tab_enabled": False,
                "messages_tab_enabled": True,
                "messages_tab_read_only_enabled": False,
            },
            "bot_user": {"display_name": _cut(names[0], _MOST_BOT_NAME), "always_online": True},
            "agent_view": {"agent_description": description},
        },
        "oauth_config": {"scopes": {"bot": [each.name for each in BOT_SCOPES]}},
        "settings": {
            "event_subscriptions": {**to_url, "bot_events": [each.name for each in BOT_EVENTS]},
            "interactivity": {"is_enabled": True, **to_url},
            "org_deploy_enabled": False,
            "socket_mode_enabled": request_url is None,
            "token_rotation_enabled": False,
        },
    }


def _cut(text: str, most: int) -> str:
    plain = " ".join(text.split())
    return plain if len(plain) <= most else f"{plain[: most - 1].rstrip()}…"
