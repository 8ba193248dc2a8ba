"""The audit: compares the actions of people, the stores, and the posts of the bot."""

from __future__ import annotations

import asyncio
import json
import re
from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import permutations
from math import inf
from pathlib import Path
from typing import Any

from router import Router

from connector.formatting.splitting import complete_sentences
from fault_injection.late_replies import may_be_stopped_unanswered, must_be_read_first
from fault_injection.model import MARK, TAG, InstructedModel
from fault_injection.observations import Act, Observations, Post
from orchestrator_interactive.interactions import InteractionStack
from orchestrator_interactive.interactions.rows import row_of
from orchestrator_interactive.interactions.stores.base import LogStore
from orchestrator_interactive.transcript.rows import (
    call_ids,
    delivered_ids_in,
    is_prompt,
    metadata_of,
    talk_ids_in,
    text_of,
)
from service.doctor.delivery_audit import check
from service.store.base import ConversationRecord, RunStore

NOTHING_RUNS = "Nothing is running here."
_STOPPED, _REPLY = "🛑", ":reply"
_TAKEN_BACK = "(I have deleted my earlier message:)"
_VERSION = re.compile(r"#\d+ v\d+")
_LOOK_EVERY_S = 0.5
_ENDS = ("delivered", "withdrawn", "refused", "waiting")

AGENT = "alpha"
_ALL = 1_000_000


@dataclass(frozen=True, slots=True)
class StoredConversation:
    """A conversation as its inbox and its log have it."""

    known: ConversationRecord
    rows: Sequence[dict[str, Any]]

    @property
    def delivered(self) -> list[str]:
        """The ids of messages, in the order in which the model was given them."""
        return [id_ for row in self.rows for id_ in delivered_ids_in(row)]

    @property
    def talk(self) -> set[str]:
        """The messages that were read as talk: their authors took no part."""
        return {id_ for row in self.rows for id_ in talk_ids_in(row)}

    @property
    def prompts(self) -> set[str]:
        """The messages that runs began with."""
        return {id_ for row in self.rows if is_prompt(row) for id_ in delivered_ids_in(row)}

    @property
    def answers(self) -> list[tuple[str, str]]:
        """The answers to users by tag, each with the first message of its run."""
        found, prompt = [], ""
        for row in self.rows:
            if is_prompt(row):
                prompt = next(iter(delivered_ids_in(row)), "")
            elif _is_told(row):
                found += [(tag, prompt) for tag in TAG.findall(_shown(row))]
        return found

    @property
    def words(self) -> str:
        """All that people said, as the model read it."""
        return "\n".join(text_of(row) for row in self.rows if row.get("role") == "user")

    @property
    def results(self) -> list[str]:
        """The results of tools."""
        return [text_of(row) for row in self.rows if row.get("role") == "tool"] + [
            text_of(row) for row in self.rows if "results" in metadata_of(row)
        ]

    def end_of(self, id_: str) -> str:
        """Return the outcome of a message: delivered, withdrawn, refused, waiting, unknown."""
        if id_ in self.delivered:
            return "delivered"
        if any(entry.id == id_ for entry in self.known.waiting):
            return "waiting"
        end = self.known.ends.get(id_)
        return "unknown" if end is None else (end or "delivered, as its inbox says")


async def told(conversation_id: str, runs: RunStore, logs: LogStore) -> StoredConversation | None:
    """`None`: the store knows nothing of such a conversation."""
    known = await runs.record(conversation_id)
    if known is None:
        return None
    stack = InteractionStack(logs, conversation_id, AGENT)
    rows = [row async for entry in stack.iter_last_n(_ALL) if entry.state and (row := row_of(entry.state)) is not None]
    return StoredConversation(known, rows)


def _is_told(row: dict[str, Any]) -> bool:
    metadata = metadata_of(row)
    is_words = not call_ids(row) or metadata.get("partial") == "urgent"
    return row.get("role") == "assistant" and is_words and metadata.get("hidden") is not True


def _shown(row: dict[str, Any]) -> str:
    """Return the text of an answer for people: one that an urgent message cut ends at its last complete sentence."""
    return complete_sentences(text_of(row)) if metadata_of(row).get("partial") == "urgent" else text_of(row)


@dataclass
class Audit:
    """`counts` are for the table; `wrong` are violations, each with words to find in the logs.

    `stories` describe each conversation from its thread and its stores.
    """

    counts: Counter[str] = field(default_factory=Counter)
    stories: dict[str, str] = field(default_factory=dict)
    wrong: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)

    def blame(self, sentence: str, *words: str) -> None:
        self.wrong.append((sentence, words))

    @property
    def holds(self) -> bool:
        return not self.wrong

    def table(self) -> str:
        width = max(map(len, self.counts), default=0)
        return "\n".join(f"{name.ljust(width)}  {count:>7,}" for name, count in self.counts.items())


@dataclass
class Sides:
    """The sources of the audit: Slack, both stores, the model, and the file of the tools.

    `unanswered` are the threads whose last message was not answered in time.
    """

    team: str
    channel: str
    record: Observations
    board: Router
    runs: RunStore
    logs: LogStore
    model: InstructedModel
    marks: Path
    replicas: int
    unanswered: Collection[str] = ()

    async def settled(self, within_s: float) -> None:
        """Wait until no run is active, and the cleanup after takeovers is done."""
        with suppress(TimeoutError):  # it is counted
            async with asyncio.timeout(within_s):
                while (await check(self.runs, self.logs)).tally.runs_on:  # noqa: ASYNC110 - other processes change it
                    await asyncio.sleep(_LOOK_EVERY_S)

    async def counted(self) -> Audit:
        """Count everything, and collect the violations."""
        tally = Audit()
        for root in self.record.acts:
            conversation_id = f"{self.team}:{self.channel}:{root}"
            there = await told(conversation_id, self.runs, self.logs)
            if there is None:
                tally.blame(f"{conversation_id}: the store does not know it", conversation_id)
                continue
            _Conversation(conversation_id, there, self, tally).count(root)
            tally.stories[conversation_id] = self._story(root, there)
        self._count_posts(tally)
        self._count_calls(tally)
        tally.counts["requests to the model"] = self.model.asked.total()
        for problem in self.model.problems:
            tally.blame(f"a request that cannot be read: {problem}")
        await self._count_stores(tally)
        return tally

    def _story(self, root: str, there: StoredConversation) -> str:
        lines = [(act.at, f"{act.kind} of {act.ts}: {act.words}") for act in self.record.acts[root]]
        lines += [(post.ts, f"post {post.key}: {post.words}") for post in self.record.posts[root]]
        rows = [json.dumps(row) for row in there.rows]
        return "\n".join([*(f"{at} {what}" for at, what in sorted(lines)), "", *rows, "", repr(there.known)])

    async def _count_stores(self, tally: Audit) -> None:
        found = await check(self.runs, self.logs)
        tally.counts["runs still active"] = found.tally.runs_on
        for sentence in found.violations:
            tally.blame(f"the stores: {sentence}", sentence.partition(": ")[0])
        if found.tally.runs_on:
            tally.blame("not all runs have come to their end")

    def _place_of(self, mark: str) -> str:
        """Return the conversation of a message, by its mark."""
        wanted = mark.partition(".")[0]
        root = next((act.root for act in self.record.every_act() if act.mark == wanted), "")
        return f"{self.team}:{self.channel}:{root}"

    def _count_posts(self, tally: Audit) -> None:
        posts = list(self.record.every_post())
        keys = Counter(post.key for post in posts)
        for post in posts:
            if keys[post.key] > 1:
                tally.blame(f"the post {post.key} was made {keys[post.key]} times: {post.words}", post.key, post.root)
            if not post.is_status:
                tally.counts[f"posts: {_kind(post)}"] += 1
        for ts, root in self.record.statuses.items():
            tally.blame(f"the status message {ts} in {root} was left", root)
        for ts, root in self.record.hourglasses.items():
            tally.blame(f"the hourglass on {ts} in {root} was left", root)

    def _count_calls(self, tally: Audit) -> None:
        lines = self.marks.read_text().splitlines() if self.marks.exists() else []
        made = Counter(tuple(line.split()[:2]) for line in lines)
        for (tool, mark), count in made.items():
            tally.counts[f"calls of {tool}"] += 1
            if count > 1:
                tally.counts[f"calls of {tool} that were made again"] += 1
                if tool == "note":
                    tally.blame(f"the call {mark} of `note` was made {count} times", self._place_of(mark))


@dataclass(frozen=True)
class _Conversation:
    """The audit of one conversation."""

    id: str
    told: StoredConversation
    sides: Sides
    tally: Audit

    def count(self, root: str) -> None:
        acts, posts = self.sides.record.acts[root], self.sides.record.posts[root]
        self.tally.counts["conversations"] += 1
        messages = [act for act in acts if act.kind == "message" and act.mark is not None]
        for act in acts:
            self.tally.counts[f"people: {_what(act)}"] += 1
        deleted = {act.ts for act in acts if act.kind == "deletion"}
        for act in messages:
            is_of_part = any(
                self._is_known_mention(each) for each in messages if each.user == act.user and each.ts <= act.ts
            )
            self._count_message(act, is_deleted=act.ts in deleted, takes_part=is_of_part)
        self._compare_order(messages)
        if root in self.sides.unanswered:
            self._count_unanswered(acts, messages[-1])
        for act in acts:
            self._count_change(act, acts)
        self._count_answers(posts)
        self._count_runs(posts)

    def _is_known_mention(self, act: Act) -> bool:
        """Return whether a message is a mention that makes its author take part: it was not deleted before it came."""
        return "<@" in act.words and self.told.known.ends.get(self._id_of(act)) != "withdrawn"

    def _count_message(self, act: Act, *, is_deleted: bool, takes_part: bool) -> None:
        if act.event not in self.sides.board.acknowledged:
            self._blame(f"message #{act.mark} was never acknowledged", act)
        end = self.told.end_of(self._id_of(act))
        if end == "unknown" and is_deleted:  # it was acknowledged before the mention that calls the agent had come
            end = "withdrawn"
        # Talk, which the next message would have brought; also if a run was active that did not come to read it.
        if end in ("unknown", "done") and not takes_part:
            self.tally.counts["messages of talk that no message has brought yet"] += 1
            return
        self.tally.counts[f"messages {end}"] += 1
        if end not in _ENDS:
            self._blame(f"message #{act.mark} is {end}", act)
        if self.told.delivered.count(self._id_of(act)) > 1:
            self._blame(f"message #{act.mark} is in the log more than once", act)

    def _compare_order(self, messages: list[Act]) -> None:
        """Check that a message that was acknowledged before another was sent was read before it, unless it is talk."""
        heard, sent, accepted = self.sides.board.acknowledged, self.sides.board.sent, self.told.known.order
        urgent = {self._id_of(act) for act in messages if act.is_urgent}
        place = {id_: number for number, id_ in enumerate(self.told.delivered) if id_ not in self.told.talk}
        read = [(act, self._id_of(act)) for act in messages if self._id_of(act) in place]
        for (before, older), (after, newer) in permutations(read, 2):
            is_before = heard.get(before.event, inf) < sent.get(after.event, 0.0)
            if is_before and place[older] > place[newer] and must_be_read_first(older, newer, accepted, urgent):
                self._blame(f"message #{after.mark} was read before #{before.mark}", before, after)

    def _count_unanswered(self, acts: list[Act], last: Act) -> None:
        stops = {self._id_of(act) for act in acts if act.kind == "message" and act.mark is None}
        if not may_be_stopped_unanswered(self._id_of(last), self.told.known.order, stops):
            self._blame("the last message was not answered", last)

    def _count_change(self, act: Act, acts: list[Act]) -> None:
        """Check that the last change of a message had its effect."""
        if act.kind not in ("edit", "deletion") or act.mark is None:
            return
        latest = [each for each in acts if each.ts == act.ts and each.kind in ("edit", "deletion")][-1]
        end = self.told.end_of(self._id_of(act))
        if act is not latest or end != "delivered" or self._id_of(act) in self.told.talk:
            return
        if self.told.known.ends.get(f"{self._id_of(act)}:edit:{act.at}") == "withdrawn":
            self.tally.counts["edits that were stopped with their run"] += 1
            return
        if self._may_be_missed(act):
            self.tally.counts["changes before the mention was known"] += 1
            return
        if act.kind == "edit" and _VERSION.findall(act.words)[0] not in self.told.words:
            self._blame(f"the edit of #{act.mark} was not read: {act.words}", act)
        if act.kind == "deletion":
            self.tally.counts["deletions after the message was read"] += 1
            is_told = f"{_TAKEN_BACK} #{act.mark} " in self.told.words.replace("!#", "#")
            if not is_told and self._id_of(act) not in self.told.prompts:  # to delete a prompt is to stop its run
                self._blame(f"the model does not know that #{act.mark} was deleted", act)

    def _may_be_missed(self, change: Act) -> bool:
        """Return whether the process that stored the message did not know of its change.

        Another replica, which stores the mention, may have had the unchanged reply in memory. Or the process that
        acknowledged the change was killed before Slack delivered the message again.
        """
        heard = self.sides.board.acknowledged
        if heard.get(change.event, inf) < heard.get(("message", change.ts), inf):
            return True
        mention_s = min(heard.get((kind, change.root), inf) for kind in ("message", "app_mention"))
        return self.sides.replicas > 1 and change.ts != change.root and heard.get(change.event, inf) < mention_s

    def _count_answers(self, posts: list[Post]) -> None:
        """Check that the answers in the log and in the thread are the same."""
        said = Counter(tag for tag, _ in self.told.answers)
        shown = Counter(tag for post in posts if not post.is_status for tag in post.tags)
        for tag in said.keys() | shown.keys():
            if (said[tag], shown[tag]) != (1, 1):
                self.tally.blame(
                    f"{self.id}: `answer {tag}` is in the log {said[tag]} times, and in the thread {shown[tag]} times",
                    self.id,
                )
        self.tally.counts["answers in the logs"] += said.total()
        self.tally.counts["answers in the threads"] += shown.total()

    def _count_runs(self, posts: list[Post]) -> None:
        """Check that every run has an end notice, and that no two answer one prompt."""
        runs: dict[str, list[Post]] = {}
        for post in posts:
            if not post.key.endswith(_REPLY):
                runs.setdefault(post.run, []).append(post)
        prompt_of, answered = dict(self.told.answers), dict[str, str]()
        for run, of_run in runs.items():
            self.tally.counts["runs"] += 1
            texts = [post for post in of_run if not post.is_status]
            if not texts:
                self.tally.blame(f"{self.id}: the run {run} has said nothing", run, self.id)
            for prompt in {prompt_of[tag] for post in texts for tag in post.tags if tag in prompt_of}:
                other = answered.setdefault(prompt, run)
                if other != run:
                    self.tally.blame(f"{self.id}: the runs {other} and {run} both answer {prompt}", run, other)

    def _id_of(self, act: Act) -> str:
        return f"{self.sides.team}:{self.sides.channel}:{act.ts}"

    def _blame(self, sentence: str, *acts: Act) -> None:
        self.tally.blame(f"{self.id}: {sentence}", *(act.ts for act in acts), self.id)


def _what(act: Act) -> str:
    if act.kind != "message":
        return {"edit": "edits", "deletion": "deletions", "reaction": "crosses"}[act.kind]
    return "messages" if MARK.search(act.words) else "stops in words"


def _kind(post: Post) -> str:
    if post.key.endswith(_REPLY):
        return "replies to a stop that met nothing"
    if post.words.startswith(_STOPPED):
        return "stop summaries"
    if post.words.startswith("🔁"):
        return "outcomes unknown"
    if post.tags:
        return "answers"
    return f"others: {post.words[:40]}"
