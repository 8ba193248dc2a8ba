"""The `slack:` section of the configuration: transport and access policy."""

from __future__ import annotations

import pkgutil
import re
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, field_validator

from service.config.section import Section

_COMMAND_CHARS = 31
_MOST_PORT = 65_535
_FUNCTION = re.compile(r"\w+(?:\.\w+)*:\w+(?:\.\w+)*")


class ListenAddress(NamedTuple):
    host: str
    port: int


def address_of(listen: str) -> ListenAddress:
    """Parse an address such as `127.0.0.1:3000` or `[::1]:3000`.

    Raises:
        ValueError: the text is not an address.
    """
    host, _, port = listen.rpartition(":")
    bare = host[1:-1] if host.startswith("[") and host.endswith("]") else host
    is_host = bool(bare) and not any(sign in "/@ []" for sign in bare) and (":" not in bare or bare != host)
    if not is_host or not (port.isascii() and port.isdigit()) or not 0 < int(port[:6]) <= _MOST_PORT:
        raise ValueError("must be a host and a port, such as 127.0.0.1:3000")
    return ListenAddress(bare, int(port))


def _checked_address(given: str) -> str:
    address_of(given)
    return given


Address = Annotated[str, AfterValidator(_checked_address)]


def checked_id(pattern: str, kind: str, place: str) -> AfterValidator:
    """Return the check of an id; `kind` is a name for it, `place` where Slack shows it."""

    def check(given: str) -> str:
        if not re.fullmatch(pattern, given):
            raise ValueError(f"must be a {kind}; Slack shows it {place}")
        return given

    return AfterValidator(check)


WorkspaceId = Annotated[
    str, checked_id(r"T[A-Z0-9]{2,}", "workspace id such as T012AB3CD", "in the address app.slack.com/client/T…")
]
UserId = Annotated[
    str, checked_id(r"[UW][A-Z0-9]{2,}", "user id such as U012AB3CD", "in the user's profile under ⋮ → Copy member ID")
]
ChannelId = Annotated[
    str,
    checked_id(r"[CG][A-Z0-9]{2,}", "channel id such as C012AB3CD", "at the end of the channel's details, under About"),
]
BotId = Annotated[
    str,
    checked_id(
        r"B[A-Z0-9]{2,}",
        "bot id such as B012AB3CD",
        "as `bot_id` in the bot's messages, and the service logs it (bot.not_listed) when the bot mentions the agent",
    ),
]


def _is_no_blank(given: Any) -> Any:
    # A list whose lines are all commented out must not give access to all users.
    if given is None:
        raise ValueError("is blank")
    return given


# `None`: all.
AllowedUsers = Annotated[frozenset[UserId] | None, Field(min_length=1), BeforeValidator(_is_no_blank)]
AllowedChannels = Annotated[frozenset[ChannelId] | None, Field(min_length=1), BeforeValidator(_is_no_blank)]


def _imported(given: object) -> object:
    """Return the function with a name such as `my_package.slack:register`."""
    if not isinstance(given, str) or not _FUNCTION.fullmatch(given):
        raise ValueError("must be a module and a function in it, such as `my_package.slack:register`")
    try:
        found = pkgutil.resolve_name(given)
    except AttributeError as e:
        raise ValueError(f"names nothing ({e}); correct the name after the colon") from e
    except Exception as e:  # the module is code of the deployment
        raise ValueError(
            f"cannot be imported ({type(e).__name__}: {e}); correct the name, or install its package into the Python "
            "environment of the service"
        ) from e
    if not callable(found):
        # pydantic reports no TypeError
        raise ValueError("is not a function; name one that adds listeners to a slack-bolt `AsyncApp`")  # noqa: TRY004
    return found


class SuggestedPrompt(Section):
    """A prompt that people can send by a click.

    Args:
        title: text of the button.
        message: text of the message.
    """

    title: str = Field(min_length=1, max_length=75)
    message: str = Field(min_length=1, max_length=3000)


SuggestedPrompts = Annotated[tuple[SuggestedPrompt, ...], Field(max_length=4)]


def pairs_of(prompts: SuggestedPrompts) -> tuple[tuple[str, str], ...]:
    """Return the titles and messages of prompts."""
    return tuple((each.title, each.message) for each in prompts)


class SlackConfig(Section):
    """Transport and access policy.

    Args:
        transport: `socket` (Socket Mode) or `http`.
        listen: for `transport: http`: the address on which the service listens for Slack's requests.
        users: ids of the users that have access. Default: all members of the workspace.
        channels: ids of the channels in which the bot answers. Default: all that it is a member of.
        external: whether users of other workspaces have access in shared channels.
        guests: whether guests of the workspace have access. Allowed by default: a member invited them to the channel.
        bots: ids of other bots whose mentions are answered, and whose messages begin threads in channels with
            `answer: every`. Default: none.
        bot_exchanges: most messages of bots that are answered in a thread before a person writes to the agent.
        rate_scale: factor on Slack's rate limits, for apps to which Slack grants higher ones.
        stop_reaction: name of the emoji that stops a run, without colons.
        status_interval_s: least time between two edits of a status message.
        dm: `threads` (each top-level direct message begins a conversation of its own, in its thread) or `single` (the
            direct messages of a person are one conversation).
        suggested_prompts: up to four prompts that people can send by a click in their direct messages with the bot.
        command: name of the slash command, such as `/agent`. Default: the name of the first agent after a slash.
        feedback: whether answers have buttons by which people rate them.
        answers: `stream` (people see the text of an answer while it is written, where Slack allows that) or `post`.
        long_answers: `file` or `canvas` (very long answers become canvases, where Slack makes them).
        status: `cards` (the status message shows to-do list and tool calls as cards, where Slack has them) or `text`.
        max_file_mb: size of a file that people send, in millions of bytes; larger ones are refused. 0: no files.
        file_timeout_s: time for the download of one file.
        history: `slack` (threads are read from Slack), `events` (the service keeps the messages that events bring:
            Slack lets distributed apps read one page a minute) or `auto` (`events` with `installations`).
        listeners: functions that add listeners of the deployment to a slack-bolt `AsyncApp`.
    """

    transport: Literal["socket", "http"] = "socket"
    listen: Address = "127.0.0.1:3000"
    users: AllowedUsers = None
    channels: AllowedChannels = None
    external: bool = False
    guests: Literal["allow", "deny"] = "allow"
    bots: frozenset[BotId] = frozenset()
    bot_exchanges: int = Field(default=3, ge=1, le=100)
    rate_scale: float = Field(default=1, gt=0, allow_inf_nan=False)
    stop_reaction: str = "x"
    status_interval_s: float = Field(default=2, ge=0.5, allow_inf_nan=False)
    dm: Literal["threads", "single"] = "threads"
    suggested_prompts: SuggestedPrompts = ()
    command: str | None = Field(default=None, pattern=r"^/[a-z0-9_-]{1,31}$")
    feedback: bool = True
    answers: Literal["stream", "post"] = "stream"
    long_answers: Literal["file", "canvas"] = "file"
    status: Literal["cards", "text"] = "cards"
    max_file_mb: int = Field(default=25, ge=0, le=1000)
    file_timeout_s: float = Field(default=30, gt=0, le=600, allow_inf_nan=False)
    history: Literal["auto", "slack", "events"] = "auto"
    listeners: tuple[Annotated[Any, BeforeValidator(_imported)], ...] = ()

    @field_validator("stop_reaction")
    @classmethod
    def _is_a_name(cls, name: str) -> str:
        if not re.fullmatch(r":?[a-z0-9_+'-]+:?", name):
            raise ValueError("must be the name of an emoji, such as `x` or `octagonal_sign`")
        return name.strip(":")


def command_of(config: SlackConfig, instance: str) -> str:
    """Return the name of the slash command; by default the name of an instance, in the characters that Slack allows."""
    return config.command or f"/{re.sub(r'[^a-z0-9_-]', '', instance.lower())[:_COMMAND_CHARS] or 'agent'}"
