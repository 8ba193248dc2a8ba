"""What lets us into a workspace: its address, the bot's token, and the door through which events come."""

from __future__ import annotations

from dataclasses import dataclass, field


class ConnectionRefused(Exception):  # noqa: N818 - what Slack did
    """Slack cannot be reached or does not let us in; the message says what to do."""


@dataclass(frozen=True, slots=True)
class SocketDoor:
    """Socket Mode: we connect to Slack, with the app's token (`xapp-…`)."""

    app_token: str = field(repr=False)


@dataclass(frozen=True, slots=True)
class HttpDoor:
    """Events over HTTP: Slack's requests arrive at `host` and `port`, signed with the app's signing secret."""

    signing_secret: str = field(repr=False)
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class SlackAccess:
    """The way into a workspace. `api_url` ends with a slash, as in `https://slack.com/api/`."""

    bot_token: str = field(repr=False)
    api_url: str
    door: SocketDoor | HttpDoor
