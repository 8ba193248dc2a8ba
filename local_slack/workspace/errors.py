"""The errors of local_slack."""

from __future__ import annotations


class LocalSlackError(Exception):
    """The base class of errors."""


class SlackRefused(LocalSlackError):  # noqa: N818 - reads as what happened
    """A Web API call is answered with ``ok: false``.

    ``code`` is Slack's error string, ``messages`` are the ``response_metadata.messages``.
    """

    def __init__(self, code: str, *messages: str) -> None:
        super().__init__(code)
        self.code = code
        self.messages = messages


class PortInUse(LocalSlackError):  # noqa: N818 - the same
    """Another program listens on this port."""

    def __init__(self, host: str, port: int) -> None:
        super().__init__(f"port {port} on {host} is already in use; choose another one with --port")
        self.host = host
        self.port = port


class NotLoopback(LocalSlackError):  # noqa: N818 - the same
    """The host is not a loopback address. The tokens are not secret, so only this machine may connect."""
