"""Credentials of a workspace: API address, bot token, and the transport for events."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class ConnectionRefused(Exception):  # noqa: N818 - named after the event
    """Slack cannot be reached or refuses the connection; the message names a remedy."""


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
    """Credentials of a workspace. `api_url` ends with a slash, as in `https://slack.com/api/`."""

    bot_token: str = field(repr=False)
    api_url: str
    transport: SocketTransport | HttpTransport
