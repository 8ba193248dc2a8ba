"""Observations in Slack: the actions of people and the posts of the bot."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from router import Event

from fault_injection.model import MARK, TAG
from local_slack import LocalSlack, WorkspaceMessage
from local_slack.workspace.messages import Change, Changed, Deleted, Posted, Reacted

HOURGLASS = "hourglass_flowing_sand"
STATUS = ":status"

_URGENT = re.compile(r"(<@\w+>\s*)?!")

Kind = Literal["message", "edit", "deletion", "reaction"]


@dataclass(frozen=True, slots=True)
class Act:
    """An action on the message `ts` in the thread `root`; `words` is its new text, `user` the author of a message."""

    kind: Kind
    root: str
    ts: str
    at: str
    words: str
    user: str = ""

    @property
    def event(self) -> Event:
        return ("reaction_added" if self.kind == "reaction" else "message", self.at)

    @property
    def mark(self) -> str | None:
        found = MARK.search(self.words)
        return found[1] if found else None

    @property
    def is_urgent(self) -> bool:
        """Whether the words begin with a "!", perhaps after a mention."""
        return _URGENT.match(self.words) is not None


@dataclass(frozen=True, slots=True)
class Post:
    """A message of the bot, as it was posted."""

    root: str
    ts: str
    key: str
    words: str

    @property
    def run(self) -> str:
        return self.key.partition(":")[0]

    @property
    def is_status(self) -> bool:
        return self.key.endswith(STATUS)

    @property
    def tags(self) -> list[str]:
        return TAG.findall(self.words)


@dataclass
class Observations:
    """Hears every change of a workspace; `statuses` and `hourglasses` are those there are now, with their threads.

    `named` are the marks that the answers in a thread name.
    """

    acts: dict[str, list[Act]] = field(default_factory=lambda: defaultdict(list))
    posts: dict[str, list[Post]] = field(default_factory=lambda: defaultdict(list))
    statuses: dict[str, str] = field(default_factory=dict)
    hourglasses: dict[str, str] = field(default_factory=dict)
    named: dict[str, set[str]] = field(default_factory=lambda: defaultdict(set))

    @classmethod
    def of(cls, slack: LocalSlack) -> Observations:
        record = cls()
        slack.workspace.listen(record.hear)
        return record

    def hear(self, change: Change) -> None:
        match change:
            case Posted(message) if message.by_bot:
                self._hear_bot(message)
            case Posted(message):
                self._note(Act("message", _root(message), message.ts, message.ts, message.text, message.user))
            case Changed(message, previous, at) if not message.by_bot and not message.tombstone:
                self._note(Act("edit", _root(previous), message.ts, at, message.text))
            case Changed(_, previous, at) if not previous.by_bot:
                self._note(Act("deletion", _root(previous), previous.ts, at, previous.text))
            case Deleted(previous, at) if previous.by_bot:
                self.statuses.pop(previous.ts, None)
            case Deleted(previous, at):
                self.hourglasses.pop(previous.ts, None)
                self._note(Act("deletion", _root(previous), previous.ts, at, previous.text))
            case Reacted(message, name=name, at=at, added=added) if name == HOURGLASS:
                self._hear_hourglass(message, added=added)
            case Reacted(message, name="x", at=at, added=True):
                self._note(Act("reaction", _root(message), message.ts, at, ""))

    def is_busy(self, root: str) -> bool:
        """Whether a run is shown in a thread."""
        return root in self.statuses.values() or root in self.hourglasses.values()

    def status_in(self, root: str) -> str | None:
        return next((ts for ts, place in self.statuses.items() if place == root), None)

    def every_post(self) -> Iterator[Post]:
        for posts in self.posts.values():
            yield from posts

    def every_act(self) -> Iterator[Act]:
        for acts in self.acts.values():
            yield from acts

    def _note(self, act: Act) -> None:
        self.acts[act.root].append(act)

    def _hear_bot(self, message: WorkspaceMessage) -> None:
        key = str((message.metadata or {}).get("event_payload", {}).get("key", ""))
        post = Post(_root(message), message.ts, key, message.text)
        self.posts[post.root].append(post)
        if post.is_status:
            self.statuses[post.ts] = post.root
        self.named[post.root].update(message.text.partition(" names ")[2].rstrip(". …").split())

    def _hear_hourglass(self, message: WorkspaceMessage, *, added: bool) -> None:
        if added:
            self.hourglasses[message.ts] = _root(message)
        else:
            self.hourglasses.pop(message.ts, None)


def _root(message: WorkspaceMessage) -> str:
    return message.thread_ts or message.ts
