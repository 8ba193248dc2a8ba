"""What the store knows of the conversations, and what of it may be forgotten."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.errors import DamagedLog
from orchestrator_interactive.interactions.stores.base import Change
from orchestrator_interactive.interactions.tree import MAIN
from orchestrator_interactive.modules.context_stack.rows import row_of
from orchestrator_interactive.transcript.rows import is_prompt

if TYPE_CHECKING:
    from collections.abc import Iterable

    from orchestrator_interactive.interactions.records import Key
    from orchestrator_interactive.interactions.stores.base import LogStore
    from orchestrator_interactive.interactions.tree import Branch

# In the place of a prompt.
DAMAGED = "(damaged)"
# Of ids that a sentence names.
_NAMED = 5
# Of the states in which a prompt is looked for first; then in as many times more.
_PAGE = 32


class Unclear(Exception):  # noqa: N818 - a fact about what was asked
    """It cannot be told which conversation is meant; the message says what to do."""


@dataclass(frozen=True, slots=True)
class ConversationSummary:
    """A conversation in a line; `written` in seconds since the epoch, `prompt` is the last task that was given.

    Of one that is damaged nothing is known but its key.
    """

    key: Key
    states: int
    branches: int
    written: float
    prompt: str


@dataclass(frozen=True, slots=True)
class Forgotten:
    """What of a conversation was forgotten, or would be: these branches, or where there are none all of it."""

    key: Key
    branches: tuple[Branch, ...]
    states: int

    @property
    def is_whole(self) -> bool:
        return not self.branches


def stack_of(store: LogStore, key: Key) -> InteractionStack:
    return InteractionStack(store, key.conversation_id, key.agent_id)


async def found(store: LogStore, part: str, agent: str | None = None) -> Key:
    """The conversation whose id is `part`, or, if there is none, the only one that has it in its id.

    What agents say to each other for the sake of a conversation (`ID/…`) is meant only by more of its id.

    Raises:
        Unclear: there is none, there are several, or several agents have a log of it.
    """
    keys = [key for key in await store.keys() if agent in (None, key.agent_id)]
    keys = [key for key in keys if key.conversation_id == part] or [key for key in keys if part in key.conversation_id]
    ids = {key.conversation_id for key in keys}
    keys = [key for key in keys if key.conversation_id.rpartition("/")[0] not in ids]
    conversations = list(dict.fromkeys(key.conversation_id for key in keys))
    if not part or not keys:
        of_agent = f" of {agent}" if agent else ""
        raise Unclear(f"There is no conversation{of_agent} with {part!r} in its id: `list` shows those that there are.")
    if len(conversations) > 1:
        raise Unclear(
            f"{part!r} is in the ids of {len(conversations)} conversations, {_some(conversations)}: write more of one."
        )
    if len(keys) > 1:
        agents = " and ".join(key.agent_id for key in keys)
        raise Unclear(f"{conversations[0]} has logs of {agents}: say by --agent which one you mean.")
    return keys[0]


async def with_people(store: LogStore, keys: Iterable[Key]) -> list[Key]:
    """Those of the conversations that answer no other agent's request, as far as that can be told."""
    return [key for key in keys if await _is_with_people(store, key)]


async def _is_with_people(store: LogStore, key: Key) -> bool:
    try:
        log = await store.load(key)
    except DamagedLog:
        return True
    return log is not None and log.tree.asked_by is None


async def summary(store: LogStore, key: Key) -> ConversationSummary:
    """A conversation in a line."""
    stack = stack_of(store, key)
    try:
        branches = await stack.get_branch_info()
    except DamagedLog:
        return ConversationSummary(key, 0, 0, 0.0, DAMAGED)
    states = await stack.length()
    written = max(branch.written for branch in branches)
    return ConversationSummary(key, states, len(branches), written, await _last_prompt(stack, states))


async def forget(store: LogStore, key: Key, before: float, *, whole: bool, only_look: bool = False) -> Forgotten | None:
    """Forget branches to which nobody has written since `before`, in seconds since the epoch.

    Neither the current one nor `main`, but with `whole` the conversation itself, where nobody has written to any of its
    branches. A branch that came to be since stays, however old its states are. With `only_look` all stays.

    Raises:
        WriteConflict: somebody else has just written to it.
        DamagedLog: it cannot be read.
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
            return _text(prompt["content"])
        looked = n
    return ""


def _text(content: Any) -> str:
    """The text of a row's content, without what is no text in it."""
    if isinstance(content, str):
        return content
    return " ".join(str(block.get("text")) for block in content if isinstance(block, dict) and "text" in block)


def _some(ids: Iterable[str]) -> str:
    named = list(ids)
    more = len(named) - _NAMED
    return f"{', '.join(named[:_NAMED])} and {more} more" if more > 0 else ", ".join(named)
