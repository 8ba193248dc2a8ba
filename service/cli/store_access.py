"""The conversation store of commands: opening it, queries over conversation logs, and pruning of old branches."""

from __future__ import annotations

import asyncio
import functools
import os
import shlex
import sys
from contextlib import aclosing, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click
from pydantic import SecretStr

from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.errors import DamagedLog, InteractionError
from orchestrator_interactive.interactions.rows import row_of
from orchestrator_interactive.interactions.stores import Change
from orchestrator_interactive.interactions.tree import MAIN
from orchestrator_interactive.storage.errors import StoreError
from orchestrator_interactive.transcript.rows import is_prompt
from service.cli.setup import Setup, config_option
from service.config.config import Environment, file_of, store_of, store_url
from service.config.config_errors import ConfigError
from service.config.credentials import passwords
from service.store import open_log_store
from service.store.base import thread_of

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable

    from orchestrator_interactive.interactions.records import Key
    from orchestrator_interactive.interactions.stores import LogStore
    from orchestrator_interactive.interactions.tree import Branch
    from service.config.config import ServiceConfig

T = TypeVar("T")

# Shown instead of the prompt of a damaged conversation.
DAMAGED = "(damaged)"
# Maximum number of ids in an error message.
_NAMED = 5
# Number of last states in which a prompt is searched first; each further search reads eight times as many.
_PAGE = 32


class AmbiguousConversation(Exception):  # noqa: N818 - a fact about the request
    """No conversation, or more than one, matches; the message gives the remedy."""


@dataclass(frozen=True, slots=True)
class ConversationSummary:
    """One row of `list`; `written` is in seconds since the epoch, `prompt` is the last prompt.

    A damaged conversation has only its key.
    """

    key: Key
    states: int
    branches: int
    written: float
    prompt: str


@dataclass(frozen=True, slots=True)
class Forgotten:
    """The deleted part of a conversation: the listed branches, or the whole conversation if there are none."""

    key: Key
    branches: tuple[Branch, ...]
    states: int

    @property
    def is_whole(self) -> bool:
        return not self.branches


@dataclass(frozen=True, slots=True)
class StoreAccess:
    """An open store, its URL and files, and the CLI options that select the same store in a follow-up command.

    `audit_log` is the file of the configuration, if it has one.
    """

    store: LogStore
    url: str = field(repr=False)
    options: tuple[str, ...]
    files: tuple[Path, ...] = ()
    audit_log: Path | None = None

    @property
    def place(self) -> str:
        return place_of(self.url)

    def command(self, *arguments: str) -> str:
        """Format a follow-up command."""
        return shlex.join(("amplifier-slack", "conversations", *arguments, *self.options))


def place_of(url: str) -> str:
    """Return a store's URL without its password."""
    return functools.reduce(lambda url, secret: url.replace(f":{secret}@", ":…@"), passwords(url), url)


store_option = click.option("--store", "url", metavar="URL", help="The store's URL; overrides all others.")


def with_store(function: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Turn an async function whose first argument is a `StoreAccess` into a command with --config and --store."""

    @config_option
    @store_option
    @functools.wraps(function)
    def command(config_path: Path | None, url: str | None, **given: Any) -> None:
        options: tuple[str, ...] = () if config_path is None else ("--config", str(config_path))
        options += () if url is None or passwords(url) else ("--store", url)

        async def run(store_url: str, config: ServiceConfig) -> None:
            path = file_of(store_url)
            files = () if path is None else tuple(Path(f"{path}{suffix}") for suffix in ("", "-wal", "-shm"))
            async with aclosing(await open_log_store(store_url)) as store:
                await function(StoreAccess(store, store_url, options, files, config.audit), **given)

        run_at(config_path, url, run)

    return command


def run_at(
    config_path: Path | None,
    url: str | None,
    use: Callable[[str, ServiceConfig], Coroutine[Any, Any, T]],
    *,
    may_be_new: bool = False,
) -> T:
    """Run `use` with the configuration and the store's URL: `url`, or that of the environment or the configuration.

    A store file that does not exist is refused, unless it `may_be_new`.

    Raises:
        click.ClickException: the command failed; the message gives the reason and contains no secret.
    """
    setup = Setup(Environment.from_environ(), *(() if url is None else (url,)))
    try:
        with setup.errors(InteractionError, AmbiguousConversation, unusable=StoreError):
            config = setup.load(config_path, needs_agents=False)
            store = store_of(config, setup.environment) if url is None else store_url("--store", SecretStr(url))
            path = file_of(store)
            if path is not None and not path.exists() and not may_be_new:
                raise ConfigError(
                    f"The store file {path} does not exist. The service creates it when it starts; "
                    "check --config, --store and AMPLIFIER_SLACK_STORE."
                )
            for stream in (sys.stdout, sys.stderr):
                stream.reconfigure(errors="replace")  # type: ignore[union-attr] # the terminal's encoding may lack characters
            return asyncio.run(use(store, config))
    except BrokenPipeError:
        raise
    except OSError as e:
        with suppress(OSError, ValueError), Path(os.devnull).open("w") as nowhere:  # Python flushes it again at its end
            os.dup2(nowhere.fileno(), sys.stdout.fileno())
        raise click.ClickException(f"The output cannot be written: {e.strerror}.") from e


def stack_of(store: LogStore, key: Key) -> InteractionStack:
    return InteractionStack(store, key.conversation_id, key.agent_id)


async def find_conversation(store: LogStore, part: str, agent: str | None = None) -> Key:
    """Find the conversation whose id is `part`, or else the only one whose id contains it.

    Conversations of sub-agents (`ID/…`) and workers (`ID:…`) are skipped if the conversation `ID` matches, too.

    Raises:
        AmbiguousConversation: none or several match, or several agents have a log of the conversation.
    """
    keys = [key for key in await store.keys() if agent in (None, key.agent_id)]
    keys = [key for key in keys if key.conversation_id == part] or [key for key in keys if part in key.conversation_id]
    ids = {key.conversation_id for key in keys}
    keys = [key for key in keys if _above(key.conversation_id) not in ids]
    conversations = list(dict.fromkeys(key.conversation_id for key in keys))
    if not part or not keys:
        of_agent = f" of {agent}" if agent else ""
        raise AmbiguousConversation(
            f"No conversation{of_agent} has {part!r} in its id. `list` shows all conversations."
        )
    if len(conversations) > 1:
        more = f" and {len(conversations) - _NAMED} more" if len(conversations) > _NAMED else ""
        some = f"{', '.join(conversations[:_NAMED])}{more}"
        raise AmbiguousConversation(
            f"{part!r} matches {len(conversations)} conversations: {some}. Give a longer part of the id."
        )
    if len(keys) > 1:
        agents = " and ".join(key.agent_id for key in keys)
        raise AmbiguousConversation(f"{conversations[0]} has logs of {agents}. Choose one with --agent.")
    return keys[0]


def _above(conversation_id: str) -> str:
    """Return the conversation above that of a sub-agent or a worker; blank: there is none."""
    thread = thread_of(conversation_id)
    return conversation_id.rpartition("/")[0] or (thread if thread != conversation_id else "")


async def with_people(store: LogStore, keys: Iterable[Key]) -> list[Key]:
    """Filter out the conversations that answer another agent's request. Damaged logs are kept."""
    found = []
    for key in keys:
        try:
            log = await store.load(key)
        except DamagedLog:
            found.append(key)
        else:
            if log is not None and log.tree.asked_by is None:
                found.append(key)
    return found


async def summary(store: LogStore, key: Key) -> ConversationSummary:
    """Summarize a conversation for `list`."""
    stack = stack_of(store, key)
    try:
        branches = await stack.get_branch_info()
    except DamagedLog:
        return ConversationSummary(key, 0, 0, 0.0, DAMAGED)
    states = await stack.length()
    written = max(branch.written for branch in branches)
    return ConversationSummary(key, states, len(branches), written, await _last_prompt(stack, states))


async def forget(store: LogStore, key: Key, before: float, *, whole: bool, only_look: bool = False) -> Forgotten | None:
    """Delete branches that were created and last written before `before` (seconds since the epoch).

    The current branch and `main` are kept. With `whole`, delete the conversation if all its branches are that old.
    With `only_look`, delete nothing.

    Raises:
        WriteConflict: the conversation was written concurrently.
        DamagedLog: the log cannot be read.
    """
    log = await store.load(key)
    if log is None:
        return None
    branches = log.tree.branches()
    old = tuple(branch for branch in branches if max(branch.created, branch.written) < before)
    if whole and len(old) == len(branches):
        if not only_look:
            await store.remove(key, log.version)
        return Forgotten(key, (), sum(segment.end - segment.base for segment in log.tree.segments.values()))
    old = tuple(branch for branch in old if not branch.is_current and branch.name != MAIN)
    tree, cuts = log.tree.pruned(branch.name for branch in old)
    if old and not only_look:
        await store.commit(key, Change(log.version, tree.head.end, tree.head.written, tree, cuts=cuts))
    return Forgotten(key, old, sum(cut.stop - cut.start for cut in cuts)) if old else None


async def _last_prompt(stack: InteractionStack, states: int) -> str:
    looked = 0
    while looked < states:
        n = max(_PAGE, looked * 8)
        rows = [row_of(entry.state) async for entry in stack.iter_last_n(n) if entry.state is not None]
        prompt = next((row for row in reversed(rows) if row is not None and is_prompt(row)), None)
        if prompt is not None:
            content = prompt["content"]
            blocks = [{"text": content}] if isinstance(content, str) else content
            return " ".join(str(block.get("text")) for block in blocks if isinstance(block, dict) and "text" in block)
        looked = n
    return ""
