"""The commands `amplifier-slack conversations …`: inspect, branch, rewind, export and prune conversation logs."""

from __future__ import annotations

import sys
import tempfile
import time
from contextlib import ExitStack, aclosing, contextmanager
from functools import partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar
from uuid import uuid4

import click

from connector.protocols import StateChanges
from orchestrator_interactive.interactions.errors import DamagedLog, WriteConflict
from orchestrator_interactive.interactions.export import as_json_lines, as_markdown, as_page, as_text
from service.cli.store_access import StoreAccess, find_conversation, forget, stack_of, summary, with_people, with_store
from service.store import inspect_run_store
from service.store.base import workspace_of
from service.tables import counted, moment, table

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

    from connector.protocols import End
    from orchestrator_interactive.interactions import InteractionStack
    from orchestrator_interactive.interactions.records import Key
    from orchestrator_interactive.interactions.stores import LogStore
    from service.cli.store_access import Forgotten
    from service.store.base import RunStore

T = TypeVar("T")

_FORMATS = {"jsonl": as_json_lines, "html": as_page, "md": as_markdown}
_DAY_S = 86_400
# Attempts of a change that conflicts with a concurrent write.
_TRIES = 5
# While this process ends a run, no service may continue it.
_LEASE_S = 60.0
# Mode of an exported file, as under the usual umask of 022.
_MODE = 0o644


@click.group()
def conversations() -> None:
    """Inspect, branch, rewind and prune conversation logs.

    CONVERSATION is an id or a unique part of one. Changes made while the service is running take effect with the next
    message.
    """


_conversation = click.argument("conversation")
_agent = click.option("--agent", metavar="NAME", help="The agent, if several have a log of the conversation.")
_branch = click.option("--branch", metavar="NAME", help="The branch. Default: the current one.")


@conversations.command("list")
@click.option("--agent", metavar="NAME", help="Only conversations of this agent.")
@click.option(
    "--limit", metavar="N", type=click.IntRange(min=1), default=20, show_default=True, help="Maximum number of rows."
)
@click.option("--all", "every", is_flag=True, help="Include conversations between agents.")
@with_store
async def list_(access: StoreAccess, agent: str | None, limit: int, every: bool) -> None:
    """List the conversations, most recently written first."""
    keys = [key for key in await access.store.keys() if agent in (None, key.agent_id)]
    keys = keys if every else await with_people(access.store, keys)
    summaries = [await summary(access.store, key) for key in keys[:limit]]
    if not summaries:
        click.echo(f"There are no conversations{f' of {agent}' if agent else ''} in {access.place} yet.", err=True)
        return
    rows = [
        (s.key.conversation_id, s.key.agent_id, f"{s.states}", f"{s.branches}", moment(s.written), s.prompt)
        for s in summaries
    ]
    head = ("conversation", "agent", "states", "branches", "last written", "last prompt")
    click.echo(table(head, rows, numbers=("states", "branches")))
    click.echo(f"Store: {access.place}", err=True)
    if len(keys) > limit:
        click.echo(f"… and {len(keys) - limit} more: --limit {len(keys)}", err=True)


@conversations.command()
@_conversation
@_agent
@_branch
@click.option("--last", metavar="N", type=click.IntRange(min=1), help="Only the last N states.")
@with_store
async def show(access: StoreAccess, conversation: str, agent: str | None, branch: str | None, last: int | None) -> None:
    """Show a conversation's states with their indices, and then those of its sub-agents."""
    stack = await _stack(access, conversation, agent)
    pieces = as_text(access.store, stack.key, branch, last_n=last)
    head = f"{stack.key.conversation_id}  {stack.key.agent_id}  {branch or await _current(stack)}\n"
    await _write_out(head + await anext(pieces, ""), pieces, sys.stdout)
    below = [
        each for each in await access.store.keys() if each.conversation_id.startswith(f"{stack.key.conversation_id}/")
    ]
    for key in reversed(below):  # the oldest first
        pieces = as_text(access.store, key, None, last_n=last)
        await _write_out(f"\n{key.conversation_id}  {key.agent_id}\n{await anext(pieces, '')}", pieces, sys.stdout)


@conversations.command()
@_conversation
@_agent
@with_store
async def branches(access: StoreAccess, conversation: str, agent: str | None) -> None:
    """List the branches of a conversation; `*` marks the current one."""
    stack = await _stack(access, conversation, agent)
    rows = [
        ("*" if b.is_current else "", b.name, f"{b.length}", moment(b.created), moment(b.written), b.origin)
        for b in await stack.get_branch_info()
    ]
    click.echo(table(("", "branch", "states", "made", "last written", "from"), rows, numbers=("states",)))


@conversations.command()
@_conversation
@click.option(
    "--at", "index", metavar="INDEX", type=int, help="Index of the branch's last state. Default: the last one."
)
@click.option("--name", metavar="NAME", help="Name of the new branch.")
@_agent
@with_store
async def fork(access: StoreAccess, conversation: str, index: int | None, name: str | None, agent: str | None) -> None:
    """Create a branch. The conversation stays on the current branch until `checkout`."""
    stack = await _stack(access, conversation, agent)
    made = await _retrying(lambda: stack.fork(index, name))
    every = {branch.name: branch for branch in await stack.get_branch_info()}
    current = await _current(stack)
    click.echo(
        f"Created {made} with {counted(every[made].length, 'state')} of {current}. The conversation stays on "
        f"{current}. To switch to {made}:\n  {_checkout(access, stack.key, made, agent)}"
    )


@conversations.command(context_settings={"ignore_unknown_options": True})  # an index may begin with a minus
@_conversation
@click.argument("index", type=int)
@_agent
@with_store
async def rewind(access: StoreAccess, conversation: str, index: int, agent: str | None) -> None:
    """Rewind the conversation: the state at INDEX becomes the last one.

    `show` prints the indices; -1 is the last state. Later states are kept on a new branch.
    """
    stack = await _stack(access, conversation, agent)
    before = await stack.length()
    left = await stack.rewind(index)
    after = await stack.length()
    ends = f"{await _current(stack)} ends with state {after - 1}"
    if after == before:
        click.echo(f"{ends} already: nothing was changed.")
    elif left is None:
        click.echo(f"{ends} now. The later states are on the branch from which it was created; see `branches`.")
    else:
        rest = "later state is" if before - after == 1 else f"{before - after} later states are"
        click.echo(f"{ends} now. The {rest} on {left}. To undo this:\n  {_checkout(access, stack.key, left, agent)}")


@conversations.command()
@_conversation
@click.argument("branch")
@_agent
@with_store
async def checkout(access: StoreAccess, conversation: str, branch: str, agent: str | None) -> None:
    """Switch the conversation to another branch."""
    stack = await _stack(access, conversation, agent)
    before = await _current(stack)
    if branch == before:
        click.echo(f"The conversation is on {branch} already: nothing was changed.")
        return
    await _retrying(lambda: stack.checkout(branch))
    click.echo(
        f"The conversation is now on {branch}, which has {counted(await stack.length(), 'state')}. To switch back:\n"
        f"  {_checkout(access, stack.key, before, agent)}"
    )


@conversations.command()
@_conversation
@click.option("--format", "form", type=click.Choice(list(_FORMATS)), default="jsonl", show_default=True)
@click.option("--output", metavar="FILE", type=click.Path(path_type=Path), help="Default: standard output.")
@_agent
@_branch
@with_store
async def export(  # noqa: PLR0913, PLR0917 - one argument per option
    access: StoreAccess, conversation: str, form: str, output: Path | None, agent: str | None, branch: str | None
) -> None:
    """Export a conversation as JSON Lines, as an HTML page, or as Markdown."""
    key = await find_conversation(access.store, conversation, agent)
    pieces = _FORMATS[form](access.store, key, branch)
    first = await anext(pieces)  # raises before the output file is opened
    if output is None:
        await _write_out(first, pieces, sys.stdout)
        return
    with atomic_output(output, access.files) as file:
        await _write_out(first, pieces, file)
    click.echo(f"Wrote {output}.", err=True)


@conversations.command()
@click.argument("conversation", required=False)
@click.option("--keep-days", metavar="N", type=click.IntRange(min=0), default=30, show_default=True)
@click.option("--whole", is_flag=True, help="Also delete conversations without writes in that time.")
@click.option("--unfinished", is_flag=True, help="With --whole, also those with a suspended run or pending messages.")
@click.option("--dry-run", is_flag=True, help="Only list what would be deleted.")
@click.option("--workspace", metavar="ID", help="Only conversations of this workspace, such as T012AB3CD.")
@_agent
@with_store
async def prune(  # noqa: PLR0913, PLR0917 - one argument per option
    access: StoreAccess,
    conversation: str | None,
    keep_days: int,
    whole: bool,
    unfinished: bool,
    dry_run: bool,
    workspace: str | None,
    agent: str | None,
) -> None:
    """Delete branches that have not been written to for --keep-days days.

    The current branch and `main` are kept, and with --whole conversations with a run or pending messages; with
    --unfinished only those that a service works on. Without CONVERSATION, all conversations are pruned.
    """
    if unfinished and not whole:
        raise click.UsageError("--unfinished is for entire conversations: add --whole.")
    click.echo(f"Store: {access.place}", err=True)
    if conversation is None:
        keys = [key for key in await access.store.keys() if agent in (None, key.agent_id)]
        keys = [key for key in keys if workspace in (None, workspace_of(key.conversation_id))]
    else:
        keys = [await find_conversation(access.store, conversation, agent)]
    before = time.time() - keep_days * _DAY_S
    every, damaged = [], []
    async with aclosing(await inspect_run_store(access.url)) as runs:
        for key in keys:
            name = f"{key.conversation_id}  {key.agent_id}"
            change = partial(forget, access.store, key, before, whole=whole)
            try:
                forgotten = await change(only_look=True)
                if forgotten and forgotten.is_whole and (why := await _use_of(runs, key, unfinished=unfinished)):
                    click.echo(f"{name}  kept: {why}; repeat the command when that has ended")
                    continue
                if forgotten and not dry_run:
                    forgotten = await _retrying(change)
            except DamagedLog as e:
                damaged.append(str(e))
                continue
            if forgotten:
                every.append(forgotten)
                names = ", ".join(branch.name for branch in forgotten.branches) or "the whole conversation"
                click.echo(f"{name}  {names} ({counted(forgotten.states, 'state')})")
        if not dry_run:
            idle_since = before if whole and conversation is None and agent is None else None
            deleted = {each.key.conversation_id for each in every if each.is_whole}
            await _forget_inboxes(access.store, runs, deleted, idle_since, workspace, unfinished=unfinished)
    click.echo(_total(every, keep_days, only_look=dry_run))
    if damaged:
        raise click.ClickException("\n".join(damaged))


@conversations.command()
@_conversation
@click.argument("text")
@_agent
@with_store
async def notify(access: StoreAccess, conversation: str, text: str, agent: str | None) -> None:
    """Post TEXT in the thread, and let the agent's next run there read it.

    A running service, on any machine that uses the store, posts it within seconds. It starts no run.
    """
    from connector.notes import admit_note  # noqa: PLC0415 - other commands start faster without it

    key = await find_conversation(access.store, conversation, agent)
    async with aclosing(await inspect_run_store(access.url)) as runs:
        try:
            await admit_note(runs.admit, key.agent_id, key.conversation_id, text)
        except ValueError as e:
            raise click.ClickException(str(e)) from e
    click.echo(f"Stored. The next run of {key.agent_id} in {key.conversation_id} reads it.")


async def _use_of(runs: RunStore, key: Key, *, unfinished: bool) -> str:
    """Return why the log of a conversation is needed, or that of the people, if an agent asks another one there.

    `unfinished`: only the work of a service counts.
    """
    record = await runs.record(key.conversation_id.partition("/")[0])
    if record is None:
        return ""
    if record.is_owned:
        return "a service works on it"
    return "a run or messages are pending" if record.is_unfinished and not unfinished else ""


async def _give_up(runs: RunStore, conversation_id: str) -> None:
    """End the run of a conversation that no service works on, and withdraw its pending messages."""
    record = await runs.record(conversation_id)
    if record is None or not record.has_something_to_do:
        return
    if claim := await runs.claim(conversation_id, f"prune {uuid4()}", _LEASE_S):
        closed: dict[int, End] = {each.seq: "withdrawn" for each in claim.entries}
        await runs.write(conversation_id, claim.token, StateChanges(run={}, closed=closed))
        await runs.release(conversation_id, claim.token, None)


async def _forget_inboxes(  # noqa: PLR0913 - the parts of a selection
    logs: LogStore,
    runs: RunStore,
    conversations: set[str],
    idle_since: float | None,
    workspace: str | None,
    *,
    unfinished: bool,
) -> None:
    """Delete the inboxes of conversations that have no log, no owner and (unless `unfinished`) no pending work.

    With `idle_since`, also those of all conversations (of the workspace) that have not changed since then.
    """
    if not conversations and idle_since is None:
        return
    if idle_since is not None:
        idle = await runs.idle_since(idle_since)
        conversations = conversations.union(each for each in idle if workspace in (None, workspace_of(each)))
    for conversation_id in conversations - {key.conversation_id for key in await logs.keys()}:
        if unfinished:
            await _give_up(runs, conversation_id)
        await runs.forget(conversation_id)
    await logs.delete_expired()


async def _retrying(change: Callable[[], Awaitable[T]]) -> T:
    """Retry a change that stays valid after a concurrent write."""
    for _ in range(_TRIES - 1):
        try:
            return await change()
        except WriteConflict:
            continue
    return await change()


def _total(every: list[Forgotten], keep_days: int, *, only_look: bool) -> str:
    if not every:
        return f"Nothing to delete: everything was written to within the last {counted(keep_days, 'day')}, or is kept."
    whole = sum(each.is_whole for each in every)
    some = sum(len(each.branches) for each in every)
    parts = [counted(whole, "conversation")] if whole else []
    parts += [counted(some, "branch", "branches")] if some else []
    deleted = f"{' and '.join(parts)} ({counted(sum(each.states for each in every), 'state')})"
    return f"Would delete {deleted}; nothing was changed." if only_look else f"Deleted {deleted}."


async def _stack(access: StoreAccess, conversation: str, agent: str | None) -> InteractionStack:
    return stack_of(access.store, await find_conversation(access.store, conversation, agent))


async def _current(stack: InteractionStack) -> str:
    return next(branch.name for branch in await stack.get_branch_info() if branch.is_current)


def _checkout(access: StoreAccess, key: Key, branch: str, agent: str | None) -> str:
    return access.command("checkout", key.conversation_id, branch, *(("--agent", agent) if agent else ()))


async def _write_out(first: str, rest: AsyncIterator[str], file: IO[str]) -> None:
    file.write(first)
    async for piece in rest:
        file.write(piece)


@contextmanager
def atomic_output(path: Path, protected: Sequence[Path]) -> Iterator[IO[str]]:
    """Open a temporary file that replaces `path` when the body has succeeded; write to a pipe or a device directly.

    Raises:
        click.ClickException: `path` is one of the `protected` files, or cannot be written.
    """
    try:
        if path.exists() and any(each.exists() and path.samefile(each) for each in protected):
            raise click.UsageError(f"{path} is the store. Choose another output file.")
        if path.exists() and not path.is_file():
            with path.open("w", encoding="utf-8") as file:
                yield file
            return
        new = tempfile.NamedTemporaryFile("w", encoding="utf-8", dir=path.parent, prefix=".new-", delete=False)  # noqa: SIM115 - closed below
        with ExitStack() as on_failure:
            on_failure.callback(Path(new.name).unlink)
            with new:
                yield new
            on_failure.pop_all()
        Path(new.name).chmod(_MODE)
        Path(new.name).replace(path)
    except OSError as e:
        raise click.FileError(str(path), f"{e.strerror}. Choose another file.") from e
