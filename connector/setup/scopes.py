"""Scopes and events that the Slack app needs, each with its purpose, and the path for HTTP requests.

The manifest requests all scopes and events; `amplifier-slack doctor` reports missing ones.
"""

from __future__ import annotations

from dataclasses import dataclass


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
