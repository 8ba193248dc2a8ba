"""What the connector needs of a Slack app: scopes and events, each with what it is for, and where they are sent.

The manifest asks for all of it, and `amplifier-slack doctor` tells what is missing.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Need:
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
    Need("app_mentions:read", "receive mentions of the bot"),
    Need(
        "assistant:write",
        "use Slack's agent features",
        "Slack's own status line, thread titles and Stop button are missing",
    ),
    Need("channels:history", "read threads in public channels"),
    Need("chat:write", "post answers"),
    Need("chat:write.customize", "post under each agent's name and icon", "answers have the bot's own name"),
    Need("files:write", "post a very long answer as a file", "a very long answer is split into many messages"),
    Need("groups:history", "read threads in private channels", "threads in private channels are not followed"),
    Need("im:history", "read direct messages"),
    Need("mpim:history", "read group messages", "threads in group messages are not followed"),
    Need("reactions:read", "stop a run by ❌"),
    Need("reactions:write", "show by ⏳, 📨 and 👀 the state of a message"),
    Need(
        "users:read",
        "read users' names",
        "the agents know people by their ids alone, and in shared channels reactions stop nothing",
    ),
)

# https://docs.slack.dev/reference/events
BOT_EVENTS = (
    Need("agent_session_stopped", "stop a run with Slack's own button", "Slack's own Stop button is missing"),
    Need("app_mention", "receive mentions of the bot"),
    Need("message.channels", "follow threads in public channels"),
    Need("message.groups", "follow threads in private channels", "threads in private channels are not followed"),
    Need("message.im", "receive direct messages"),
    Need("message.mpim", "follow threads in group messages", "threads in group messages are not followed"),
    Need("reaction_added", "stop a run by ❌"),
)

# Of the app-level token, which only Socket Mode needs; no manifest can make one.
APP_SCOPE = Need("connections:write", "open the Socket Mode connection")

# Of the address to which Slack sends, where it comes over HTTP.
PATH = "/slack/events"
