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
    MethodRequirement("app_mentions:read", "hear when somebody mentions the bot"),
    MethodRequirement(
        "assistant:write", "be an agent to Slack", "Slack's own status line, thread titles and Stop button are missing"
    ),
    MethodRequirement("channels:history", "read what is written in the threads of public channels"),
    MethodRequirement("chat:write", "answer"),
    MethodRequirement(
        "chat:write.customize", "answer under each agent's own name and icon", "answers come under the bot's own name"
    ),
    MethodRequirement("files:write", "put a very long answer into a file", "a very long answer comes in many messages"),
    MethodRequirement(
        "groups:history", "read along in private channels", "threads in private channels are not followed"
    ),
    MethodRequirement("im:history", "read direct messages"),
    MethodRequirement("mpim:history", "read along in group messages", "threads in group messages are not followed"),
    MethodRequirement("reactions:read", "stop when somebody puts ❌"),
    MethodRequirement("reactions:write", "show by ⏳, 📨 and 👀 where a message stands"),
    MethodRequirement(
        "users:read",
        "know people by their names",
        "the agents know people by their ids alone, and in shared channels reactions stop nothing",
    ),
)

# https://docs.slack.dev/reference/events
BOT_EVENTS = (
    MethodRequirement("agent_session_stopped", "stop with Slack's own button", "Slack's own Stop button is missing"),
    MethodRequirement("app_mention", "begin where somebody mentions the bot"),
    MethodRequirement("message.channels", "follow threads in public channels"),
    MethodRequirement(
        "message.groups", "follow threads in private channels", "threads in private channels are not followed"
    ),
    MethodRequirement("message.im", "answer direct messages"),
    MethodRequirement("message.mpim", "follow threads in group messages", "threads in group messages are not followed"),
    MethodRequirement("reaction_added", "stop when somebody puts ❌"),
)

# Of the app-level token, which only Socket Mode needs; no manifest can make one.
APP_SCOPE = MethodRequirement("connections:write", "open the Socket Mode connection")

# Of the address to which Slack sends, where it comes over HTTP.
PATH = "/slack/events"
