"""The commands `amplifier-slack conversations …`: what was said, and from where it goes on."""

from __future__ import annotations

import sys
import time
from contextlib import aclosing
from pathlib import Path
from typing import IO, TYPE_CHECKING, TypeVar

import click

from orchestrator_interactive.interactions.errors import DamagedLog, WriteConflict
from orchestrator_interactive.interactions.export import as_json_lines, as_page, as_text
from service.cli.output_file import written_whole
from service.cli.store_access import StoreAccess, on_shelf
from service.runs.queries import forget, found, stack_of, summary, with_people
from service.store import visit_run_store
from service.tables import counted, moment, table

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from orchestrator_interactive.interactions import InteractionStack
    from orchestrator_interactive.interactions.records import Key
    from orchestrator_interactive.interactions.stores.base import LogStore
    from service.runs.queries import Forgotten

T = TypeVar("T")

_FORMATS = {"jsonl": as_json_lines, "html": as_page}
_DAY_S = 86_400
# How often a conversation is looked at again to which somebody is just writing.
_TRIES = 5


@click.group()
def conversations() -> None:
    """See what was said, and decide from where a conversation goes on.

    A conversation is named by its id, or by a part of it that stands in no other one. What is changed here while the
    service runs counts from the next message on.
    """


_conversation = click.argument("conversation")
_agent = click.option("--agent", metavar="NAME", help="Whose log, where several agents have one of the conversation.")
_branch = click.option("--branch", metavar="NAME", help="Another branch than the current one.")


@conversations.command("list")
@click.option("--agent", metavar="NAME", help="Only those of this agent.")
@click.option(
    "--limit", metavar="N", type=click.IntRange(min=1), default=20, show_default=True, help="At most so many."
)
@click.option("--all", "every", is_flag=True, help="Also those that agents have with each other.")
@on_shelf
async def list_(shelf: StoreAccess, agent: str | None, limit: int, every: bool) -> None:
    """List the conversations, the one written last first."""
    keys = [key for key in await shelf.store.keys() if agent in (None, key.agent_id)]
    keys = keys if every else await with_people(shelf.store, keys)
    summaries = [await summary(shelf.store, key) for key in keys[:limit]]
    if not summaries:
        click.echo(f"There are no conversations{f' of {agent}' if agent else ''} yet.", err=True)
        return
    rows = [
        (s.key.conversation_id, s.key.agent_id, f"{s.states}", f"{s.branches}", moment(s.written), s.prompt)
        for s in summaries
    ]
    head = ("conversation", "agent", "states", "branches", "last written", "last prompt")
    click.echo(table(head, rows, numbers=("states", "branches")))
    if len(keys) > limit:
        click.echo(f"… and {len(keys) - limit} more: --limit {len(keys)}", err=True)


@conversations.command()
@_conversation
@_agent
@_branch
@click.option("--last", metavar="N", type=click.IntRange(min=1), help="Only the last so many states.")
@on_shelf
async def show(shelf: StoreAccess, conversation: str, agent: str | None, branch: str | None, last: int | None) -> None:
    """Show what was said and done, each state with its index."""
    stack = await _stack(shelf, conversation, agent)
    pieces = as_text(shelf.store, stack.key, branch, last_n=last)
    head = f"{stack.key.conversation_id}  {stack.key.agent_id}  {branch or await _current(stack)}\n"
    await _pour(head + await anext(pieces, ""), pieces, sys.stdout)


@conversations.command()
@_conversation
@_agent
@on_shelf
async def branches(shelf: StoreAccess, conversation: str, agent: str | None) -> None:
    """List the branches of a conversation; the current one has a star."""
    stack = await _stack(shelf, conversation, agent)
    rows = [
        ("*" if b.is_current else "", b.name, f"{b.length}", moment(b.created), moment(b.written), b.origin)
        for b in await stack.get_branch_info()
    ]
    click.echo(table(("", "branch", "states", "made", "last written", "from"), rows, numbers=("states",)))


@conversations.command()
@_conversation
@click.option("--at", "index", metavar="INDEX", type=int, help="The last state that it has; by default all.")
@click.option("--name", metavar="NAME", help="What it is called.")
@_agent
@on_shelf
async def fork(shelf: StoreAccess, conversation: str, index: int | None, name: str | None, agent: str | None) -> None:
    """Make a branch. The conversation stays where it is until the branch is checked out."""
    stack = await _stack(shelf, conversation, agent)
    made = await _insisting(lambda: stack.fork(index, name))
    every = {branch.name: branch for branch in await stack.get_branch_info()}
    current = await _current(stack)
    click.echo(
        f"Made {made} with {counted(every[made].length, 'state')} of {current}. The conversation stays on {current}; "
        f"to go on with {made}:\n  {_checkout(shelf, stack.key, made, agent)}"
    )


@conversations.command(context_settings={"ignore_unknown_options": True})  # an index may begin with a minus
@_conversation
@click.argument("index", type=int)
@_agent
@on_shelf
async def rewind(shelf: StoreAccess, conversation: str, index: int, agent: str | None) -> None:
    """Go back: the state at INDEX is the last one that stays.

    `show` tells the indices; -1 is the last one. What comes after it stays on a branch of its own.
    """
    stack = await _stack(shelf, conversation, agent)
    before = await stack.length()
    left = await stack.rewind(index)
    after = await stack.length()
    ends = f"{await _current(stack)} ends with state {after - 1}"
    if after == before:
        click.echo(f"{ends} already: nothing was changed.")
    elif left is None:
        click.echo(f"{ends} now. What it had after that is on the branch that it came from: `branches` shows it.")
    else:
        rest = "state after it is" if before - after == 1 else f"{before - after} states after it are"
        click.echo(f"{ends} now. The {rest} on {left}; to undo this:\n  {_checkout(shelf, stack.key, left, agent)}")


@conversations.command()
@_conversation
@click.argument("branch")
@_agent
@on_shelf
async def checkout(shelf: StoreAccess, conversation: str, branch: str, agent: str | None) -> None:
    """Let the conversation go on with another branch."""
    stack = await _stack(shelf, conversation, agent)
    before = await _current(stack)
    if branch == before:
        click.echo(f"The conversation is on {branch} already: nothing was changed.")
        return
    await _insisting(lambda: stack.checkout(branch))
    click.echo(
        f"The conversation goes on with {branch}, which has {counted(await stack.length(), 'state')}; to go back:\n"
        f"  {_checkout(shelf, stack.key, before, agent)}"
    )


@conversations.command()
@_conversation
@click.option("--format", "form", type=click.Choice(list(_FORMATS)), default="jsonl", show_default=True)
@click.option("--output", metavar="FILE", type=click.Path(path_type=Path), help="By default the standard output.")
@_agent
@_branch
@on_shelf
async def export(  # noqa: PLR0913, PLR0917 - one argument per option
    shelf: StoreAccess, conversation: str, form: str, output: Path | None, agent: str | None, branch: str | None
) -> None:
    """Write a conversation as JSON lines, or as a page for a browser."""
    key = await found(shelf.store, conversation, agent)
    pieces = _FORMATS[form](shelf.store, key, branch)
    first = await anext(pieces)  # where it cannot be had, no file is touched
    if output is None:
        await _pour(first, pieces, sys.stdout)
        return
    with written_whole(output, shelf.files) as file:
        await _pour(first, pieces, file)
    click.echo(f"Wrote {output}.", err=True)


@conversations.command()
@click.argument("conversation", required=False)
@click.option("--keep-days", metavar="N", type=click.IntRange(min=0), default=30, show_default=True)
@click.option("--whole", is_flag=True, help="Also whole conversations to which nobody has written for so long.")
@click.option("--dry-run", is_flag=True, help="Only say what would be forgotten.")
@_agent
@on_shelf
async def prune(  # noqa: PLR0913, PLR0917 - one argument per option
    shelf: StoreAccess, conversation: str | None, keep_days: int, whole: bool, dry_run: bool, agent: str | None
) -> None:
    """Forget branches that nobody needs any more.

    Those are the ones to which nobody has written for --keep-days days. The current branch of a conversation stays, and
    so does `main`. Without CONVERSATION, that is done in all of them.
    """
    if conversation is None:
        keys = [key for key in await shelf.store.keys() if agent in (None, key.agent_id)]
    else:
        keys = [await found(shelf.store, conversation, agent)]
    before = time.time() - keep_days * _DAY_S
    every, damaged = [], []
    for key in keys:
        try:
            forgotten = await _forgotten(shelf.store, key, before, whole=whole, only_look=dry_run)
        except DamagedLog as e:
            damaged.append(str(e))
            continue
        if forgotten:
            every.append(forgotten)
            click.echo(f"{key.conversation_id}  {key.agent_id}  {_what(forgotten)}")
    if not dry_run:
        rested = before if whole and conversation is None and agent is None else None
        await _forget_inboxes(shelf, {each.key.conversation_id for each in every if each.is_whole}, rested)
    click.echo(_sum(every, keep_days, only_look=dry_run))
    if damaged:
        raise click.ClickException("\n".join(damaged))


async def _forgotten(store: LogStore, key: Key, before: float, *, whole: bool, only_look: bool) -> Forgotten | None:
    for tries_left in reversed(range(_TRIES)):
        try:
            return await forget(store, key, before, whole=whole, only_look=only_look)
        except WriteConflict:
            if not tries_left:
                raise
    return None


async def _forget_inboxes(shelf: StoreAccess, conversations: set[str], rested: float | None) -> None:
    """Forget what people wrote where no agent has a log of it (any more), and nothing is to be done.

    With `rested`, not only in these conversations, but wherever nothing has happened since.
    """
    if not conversations and rested is None:
        return
    async with aclosing(await visit_run_store(shelf.url)) as runs:
        if rested is not None:
            conversations = conversations.union(await runs.rested(rested))
        for conversation_id in conversations - {key.conversation_id for key in await shelf.store.keys()}:
            await runs.forget(conversation_id)
    await shelf.store.tidy()


async def _insisting(change: Callable[[], Awaitable[T]]) -> T:
    """Make a change that is as good after what a run has just written."""
    for _ in range(_TRIES - 1):
        try:
            return await change()
        except WriteConflict:
            continue
    return await change()


def _what(forgotten: Forgotten) -> str:
    names = ", ".join(branch.name for branch in forgotten.branches) or "all of it"
    return f"{names} ({counted(forgotten.states, 'state')})"


def _sum(every: list[Forgotten], keep_days: int, *, only_look: bool) -> str:
    if not every:
        return f"There is nothing to forget to which nobody has written for {counted(keep_days, 'day')}."
    whole = sum(each.is_whole for each in every)
    some = sum(len(each.branches) for each in every)
    parts = [counted(whole, "conversation")] if whole else []
    parts += [counted(some, "branch", "branches")] if some else []
    told = f"{' and '.join(parts)} ({counted(sum(each.states for each in every), 'state')})"
    return f"Would forget {told}; nothing was changed." if only_look else f"Forgot {told}."


async def _stack(shelf: StoreAccess, conversation: str, agent: str | None) -> InteractionStack:
    return stack_of(shelf.store, await found(shelf.store, conversation, agent))


async def _current(stack: InteractionStack) -> str:
    return next(branch.name for branch in await stack.get_branch_info() if branch.is_current)


def _checkout(shelf: StoreAccess, key: Key, branch: str, agent: str | None) -> str:
    return shelf.command("checkout", key.conversation_id, branch, *(("--agent", agent) if agent else ()))


async def _pour(first: str, rest: AsyncIterator[str], file: IO[str]) -> None:
    file.write(first)
    async for piece in rest:
        file.write(piece)
