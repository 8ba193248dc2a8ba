"""What the connector needs of a Slack app: scopes and events, each with what it is for, and where they are sent.

The manifest asks for all of it, and `amplifier-slack doctor` tells what is missing.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MethodRequirement:
    """A scope or an event of the app.

    Args:
        name: Slack's word for it.
        purpose: what it is for.
        without: what does not work without it; blank: nothing does.
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
    MethodRequirement("reactions:read", "stop a run by ❌"),
    MethodRequirement("reactions:write", "show by ⏳, 📨 and 👀 the state of a message"),
    MethodRequirement(
        "users:read",
        "read users' names",
        "the agents know people by their ids alone, and in shared channels reactions stop nothing",
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
    MethodRequirement("reaction_added", "stop a run by ❌"),
)

# Of the app-level token, which only Socket Mode needs; no manifest can make one.
APP_SCOPE = MethodRequirement("connections:write", "open the Socket Mode connection")

# Of the address to which Slack sends, where it comes over HTTP.
PATH = "/slack/events"
