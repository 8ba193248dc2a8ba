"""The final state of one conversation, from all sources."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from math import inf
from typing import Any

from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.rows import row_of
from orchestrator_interactive.interactions.states import BaseState, RunFinishedState
from orchestrator_interactive.interactions.stores.base import LogStore
from orchestrator_interactive.loop.tool_results import results_in
from orchestrator_interactive.transcript.rows import delivered_ids_in, is_prompt
from service.store.base import ConversationRecord
from simulated.service.notes import ReportedNote
from simulated.service.people import StopReaction, WrittenMessage
from simulated.service.slack import BOT, DIRECT, SlackMessage
from simulated.service.store_observer import ObservedRun

Row = dict[str, Any]

_TEXT = re.compile(r"\bt\d+\b")
# The first status of a run, and later ones.
_STATUS = re.compile(r"^\w+:status(:|$)")
# Tools whose calls are not in `executed`.
_STARTING = {"delegate", "dispatch_worker"}


@dataclass(frozen=True)
class Evidence:
    """One conversation.

    Args:
        record: its inbox.
        rows: of each agent's log, on the current branch.
        run_ends: of each agent's log: "prompt", and the status of each recorded end, in order.
        accepted_s: when each entry was accepted.
        read_s: when a row with each entry was committed first.
        posts: the bot's messages that were not deleted, in the order of the thread.
        all_posts: the bot's messages in the thread, deleted ones included.
        has_thread: the thread exists.
        runs_by_message: the runs that began with a message, by its id.
        claims_s: when each process claimed it.
        executed: the tool calls that were executed.
        observed: its runs as the store recorded them.
        notes: that code reported to it.
        is_muted: it was muted for some time.
        all_may_steer: a run reads the messages of all who take part.
    """

    id: str
    record: ConversationRecord
    rows: dict[str, list[Row]]
    run_ends: dict[str, list[str]]
    written: list[WrittenMessage]
    reactions: list[StopReaction]
    accepted_s: dict[str, float]
    read_s: dict[str, float]
    posts: list[SlackMessage]
    all_posts: list[SlackMessage]
    has_thread: bool
    runs_by_message: Mapping[str, list[str]]
    claims_s: Mapping[int, list[float]]
    executed: set[str]
    observed: list[ObservedRun]
    notes: list[ReportedNote]
    is_muted: bool
    all_may_steer: bool

    @cached_property
    def delivered(self) -> dict[str, list[str]]:
        """The message ids in the rows of each agent's log, in order."""
        return {agent: [each for row in rows for each in delivered_ids_in(row)] for agent, rows in self.rows.items()}

    @cached_property
    def seqs(self) -> dict[str, int]:
        """The sequence number of each entry."""
        return {entry_id: seq for seq, entry_id in enumerate(self.record.order, 1)}

    @cached_property
    def waiting(self) -> set[str]:
        return {entry.id for entry in self.record.waiting}

    @property
    def all_rows(self) -> list[Row]:
        return [row for rows in self.rows.values() for row in rows]

    @cached_property
    def unrecorded(self) -> int:
        """The number of executed calls without a result in a log; those that start a task or sub-agent, if called."""
        recorded = {call for row in self.all_rows for call, _, _ in results_in(row)}
        calls = (call for row in self.all_rows for call in row.get("tool_calls") or ())
        started = {call["id"] for call in calls if call["function"]["name"] in _STARTING}
        return len((self.executed | started) - recorded)

    @property
    def statuses(self) -> list[SlackMessage]:
        return [post for post in self.posts if _STATUS.match(post.key)]

    @property
    def lasting_posts(self) -> list[SlackMessage]:
        return [post for post in self.posts if not _STATUS.match(post.key)]

    @property
    def notices(self) -> list[SlackMessage]:
        """The posts of the service itself."""
        return [post for post in self.lasting_posts if post.username is None]

    def end_of(self, entry_id: str) -> str | None:
        """How an entry was closed; an empty text means delivered."""
        return self.record.ends.get(entry_id)

    def is_for_agent(self, written: WrittenMessage) -> bool:
        """Whether a message is for an agent: it mentions one, or its author takes part and the thread is not muted.

        That of a bot may be for an agent, and so may one after a mention that was deleted, perhaps before it arrived.
        """
        if written.is_of_bot:
            return False
        return BOT in written.message.text or (not self.is_muted and self.takes_part(written, is_certain=True))

    @property
    def is_direct(self) -> bool:
        """Whether it is in direct messages, which are all for the agent."""
        return f":{DIRECT}:" in self.id

    def takes_part(self, written: WrittenMessage, *, is_certain: bool = False) -> bool:
        """Whether a message mentions an agent, or its author did so before, and that was accepted.

        `is_certain`: by a mention that was not deleted.
        """
        message = written.message
        return (
            BOT in message.text
            or self.is_direct
            or any(
                each.is_mention
                and each.id in self.seqs
                and each.message.user == message.user
                and each.message.ts <= message.ts
                and not (is_certain and each.deletion is not None)
                for each in self.written
            )
        )

    def took_part(self, written: WrittenMessage) -> bool:
        """Whether an accepted message is one to the agent that was not deleted.

        It mentions the agent, or was accepted after an older mention of its author that was not deleted.
        """
        last, ts = self.seqs[written.id], written.message.ts
        mentions = (each for each in self.written if each.is_mention and each.message.user == written.message.user)
        seqs = (self._called_at(each) for each in mentions if each.message.ts <= ts and each.deletion is None)
        return written.deletion is None and (self.is_direct or min(seqs, default=inf) <= last)

    def _called_at(self, mention: WrittenMessage) -> float:
        """The sequence number of a mention, or of the last edit of a message that an edit has made one."""
        edits = [seq for each, seq in self.seqs.items() if each.startswith(f"{mention.id}:edit:")]
        return max([self.seqs.get(mention.id, inf), *(edits if mention.calling_edit is not None else [])])

    def times_delivered(self, message_id: str) -> int:
        """How often a message was read; what one agent read is talk for the others, and some is talk for all."""
        as_talk = sum(row.get("metadata", {}).get("talk", []).count(message_id) for row in self.all_rows)
        return sum(ids.count(message_id) for ids in self.delivered.values()) - as_talk or min(as_talk, 1)

    def stored_texts(self, agent: str) -> dict[str, bool]:
        """The texts in an agent's log, in order; the value is False for remarks with tool calls."""
        rows = (row for row in self.rows[agent] if row["role"] == "assistant")
        return {text: not row.get("tool_calls") for row in rows for text in _TEXT.findall(text_of(row))}

    def shown_texts(self, agent: str) -> list[str]:
        posts = (post for post in self.lasting_posts if (post.username or "").lower() == agent)
        return [text for post in posts for text in _TEXT.findall(post.text)]

    def versions_read(self, word: str, agent: str = "") -> list[int]:
        """The versions of a message that an agent, or any, has read, in order."""
        rows = self.rows[agent] if agent else self.all_rows
        texts = (text_of(row) for row in rows if row["role"] == "user")
        return [int(version) for text in texts for version in re.findall(rf"\b{word}\.(\d+)\b", text)]


def text_of(row: Row) -> str:
    content = row["content"]
    if isinstance(content, str):
        return content
    return "\n".join(block.get("text", "") for block in content if block["type"] == "text")


async def states_of(logs: LogStore, conversation_id: str, agent: str) -> list[BaseState]:
    """Return the states on the current branch."""
    stack = InteractionStack(logs, conversation_id, agent)
    entries = [entry async for entry in stack.iter_last_n(await stack.length())]
    return [entry.state for entry in entries if entry.state is not None]


def rows_of(states: list[BaseState]) -> list[Row]:
    return [row for state in states if (row := row_of(state)) is not None]


def run_ends_of(states: list[BaseState]) -> list[str]:
    """Return "prompt" for each prompt, and the status of each end of a run."""
    ends = (state.status if isinstance(state, RunFinishedState) else is_prompt(row_of(state)) for state in states)
    return [end if isinstance(end, str) else "prompt" for end in ends if end]
