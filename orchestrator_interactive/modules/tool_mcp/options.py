"""The options of `tool-mcp`."""

from __future__ import annotations

from pathlib import Path  # noqa: TC003 - pydantic reads the annotation at run time
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, StringConstraints, model_validator

from orchestrator_interactive.config import Options

_LOCAL = ("localhost", "127.0.0.1", "::1")


def is_safe(url: str) -> bool:
    """Return whether a URL is `https`, or `http` on this machine."""
    try:
        parts = urlsplit(url)
        return bool(parts.hostname) and (
            parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in _LOCAL)
        )
    except ValueError:
        return False


def _checked_url(url: str) -> str:
    if url and not is_safe(url):
        raise ValueError(f"{url!r} is no usable URL: write https://…, or http:// for a server on this machine")
    return url


# No underscore: `__` ends the name of the server in the name of a tool.
ServerName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z][A-Za-z0-9-]{0,19}$")]


class OAuthOptions(Options):
    """A client that is registered at the authorization server by hand."""

    client_id: str = Field(min_length=1)
    client_secret: str = ""


class ServerOptions(Options):
    """One server: a `command`, or a `url` (streamable HTTP).

    Args:
        args, env, cwd: of the command. It gets `HOME`, `LANG`, `PATH`, `SHELL`, `TERM` and `USER` and these variables.
        headers: HTTP headers of each request.
        auth: `oauth`, or a registered client: each person connects their own account.
        allow_private: whether the server may name other hosts with private or loopback addresses for the login.
        people: by the id of a person, the headers or variables with this person's credentials. Others cannot use the
            tools.
        tools: names of the tools to offer, with `*` and `?`; all unless set.
        trust_annotations: believe the server that a tool changes or destroys nothing.
        timeout_s: time limit of a call in seconds, without the time in which people are asked.
        connect_timeout_s: time limit of each step of the connection.
        protocol: `auto` asks for the newest version first; `legacy` begins with the older handshake, for servers that
            do not answer the question.
        share: whether all conversations of this process share a connection, or each session has its own.
        digest: of the tools, as the log names it; other tools are not offered.
    """

    command: str = ""
    args: tuple[str, ...] = ()
    env: dict[str, str] = Field(default_factory=dict)
    cwd: Path | None = None
    url: Annotated[str, AfterValidator(_checked_url)] = ""
    headers: dict[str, str] = Field(default_factory=dict)
    auth: Literal["none", "oauth"] | OAuthOptions = "none"
    allow_private: bool = False
    people: dict[str, dict[str, str]] = Field(default_factory=dict)
    tools: tuple[str, ...] | None = None
    trust_annotations: bool = False
    timeout_s: float = Field(default=300.0, gt=0, le=24 * 3600)
    connect_timeout_s: float = Field(default=30.0, gt=0, le=600)
    protocol: Literal["auto", "legacy"] = "auto"
    share: Literal["process", "session"] = "process"
    digest: str = ""

    @model_validator(mode="after")
    def _is_one_kind(self) -> Self:
        if bool(self.command) == bool(self.url):
            raise ValueError("name either a `command` or a `url`")
        if self.command and (self.headers or self.auth != "none"):
            raise ValueError("`headers` and `auth` are for servers with a `url`")
        if self.url and (self.args or self.env or self.cwd):
            raise ValueError("`args`, `env` and `cwd` are for servers with a `command`")
        if self.people and self.auth != "none":
            raise ValueError("people have either `auth` or credentials under `people`")
        return self

    @property
    def is_per_person(self) -> bool:
        """Whether each person uses their own credentials."""
        return self.auth != "none" or bool(self.people)


class McpOptions(Options):
    """Options of `tool-mcp`.

    Args:
        servers: the servers by name.
        login_timeout_s: how long a call waits until its person has connected their account, in seconds.
        question_timeout_s: how long a server waits for a person's answer.
        max_result_chars: characters of a result that are kept; more are left out in the middle.
        max_tools: tools of one server; further ones are left out.
    """

    servers: dict[ServerName, ServerOptions] = Field(min_length=1)
    login_timeout_s: float = Field(default=600.0, gt=0, le=600)
    question_timeout_s: float = Field(default=3600.0, gt=0, le=24 * 3600)
    max_result_chars: int = Field(default=400_000, ge=1_000)
    max_tools: int = Field(default=100, ge=1, le=500)
