"""How the branches of a conversation hang together; pure values, so that every store keeps the same ones.

States stand in segments. A segment begins where it leaves its parent and only ever grows at its end; a branch is the
name of the segment that it ends in. So a fork copies nothing, and a rewind gives the name to a new segment.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.interactions.errors import BadBranchName, BranchExists, NoSuchBranch

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

MAIN = "main"
_LONGEST_NAME = 100


@dataclass(frozen=True, slots=True)
class Segment:
    """States [base, end) of the branch that ends in it; those before `base` are the parent's.

    Args:
        name: of the branch that ends in it; `None` once that was pruned and others still begin in it.
        created, written: seconds since the epoch.
        origin: where it comes from, for people; blank for the first.
    """

    name: str | None
    parent: int | None
    base: int
    end: int
    created: float
    written: float
    origin: str = ""


@dataclass(frozen=True, slots=True)
class Branch:
    """What is told of a branch; `length` in states, times in seconds since the epoch."""

    name: str
    length: int
    is_current: bool
    created: float
    written: float
    origin: str


@dataclass(frozen=True, slots=True)
class Piece:
    """States [start, stop) of a segment."""

    segment: int
    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Tree:
    """The branches of a conversation.

    Args:
        segments: by their number, which is never given again.
        current: the segment that is written to.
        asked_by: the artifact of another agent's request, where the conversation answers one.
    """

    segments: Mapping[int, Segment]
    current: int
    next_segment: int
    asked_by: str | None = None

    @classmethod
    def planted(cls, now: float, asked_by: str | None = None) -> Tree:
        return cls({0: Segment(MAIN, None, 0, 0, now, now)}, 0, 1, asked_by)

    @property
    def head(self) -> Segment:
        return self.segments[self.current]

    def grown(self, end: int, written: float) -> Tree:
        """The tree with more states at the end of the current branch."""
        head = self.head
        # Every push comes here: `replace` would take three times as long.
        grown = Segment(head.name, head.parent, head.base, end, head.created, written, head.origin)
        return Tree({**self.segments, self.current: grown}, self.current, self.next_segment, self.asked_by)

    def pieces(self, segment: int, start: int, stop: int) -> list[Piece]:
        """Where the states [start, stop) of the branch that ends in this segment stand, in order."""
        found: list[Piece] = []
        at: int | None = segment
        while at is not None and start < stop:
            base = self.segments[at].base
            if stop > base:
                found.append(Piece(at, max(start, base), stop))
                stop = base
            at = self.segments[at].parent
        return found[::-1]

    def named(self, name: str) -> int:
        """The segment in which a branch ends.

        Raises:
            NoSuchBranch: there is none of this name; the message tells which there are.
        """
        found = next((number for number, each in self.segments.items() if each.name == name), None)
        if found is None:
            raise NoSuchBranch(f"There is no branch {name!r}; there are: {', '.join(self.names())}.")
        return found

    def names(self) -> list[str]:
        return [branch.name for branch in self.branches()]

    def branches(self) -> list[Branch]:
        """What is told of each branch, in the order in which they came to be."""
        found = [
            Branch(each.name, each.end, number == self.current, each.created, each.written, each.origin)
            for number, each in self.segments.items()
            if each.name is not None
        ]
        return sorted(found, key=lambda branch: branch.created)

    def forked(self, segment: int, length: int, name: str | None, now: float) -> tuple[Tree, str]:
        """The tree with a branch that has the first `length` states of the one that ends in `segment`, and its name.

        Raises:
            BranchExists: the name is taken.
            BadBranchName: no branch can be called so.
        """
        if name is not None:
            self._check_name(name)
        name = name or self._free_name()
        origin = f"forked from {self.segments[segment].name} with {_states(length)}"
        branch = Segment(name, None, 0, 0, now, now, origin)
        return self._sprouted(segment, length, branch), name

    def checked_out(self, name: str) -> Tree:
        """The tree whose current branch is this one.

        Raises:
            NoSuchBranch: there is none of this name.
        """
        return replace(self, current=self.named(name))

    def rewound(self, length: int, now: float) -> tuple[Tree, str | None]:
        """The tree whose current branch has only its first `length` states, and the branch that has what it leaves.

        Where nothing is left behind that is not another branch's, there is none.
        """
        head = self.head
        if length == head.end:
            return self, None
        owner = None if head.parent is None else self.segments[head.parent].name
        if head.end == head.base and owner is not None:
            parent, base = self._place(self.current, length)
            return self._with({self.current: replace(head, parent=parent, base=base, end=length, written=now)}), None
        left = self._free_name()
        origin = f"left behind when {head.name} was rewound to {_states(length)}"
        tree = self._with({self.current: replace(head, name=left, origin=origin, created=now)})
        tree = tree._sprouted(self.current, length, replace(head, written=now))  # noqa: SLF001 - a tree of its own
        return replace(tree, current=self.next_segment), left

    def _check_name(self, name: str) -> None:
        if not name.isprintable() or name != name.strip() or not 0 < len(name) <= _LONGEST_NAME or name[0] == "-":
            raise BadBranchName(
                f"A branch cannot be called {name[:_LONGEST_NAME]!r}: a name has up to {_LONGEST_NAME} letters, digits "
                "and signs that can be seen, and does not begin with a dash."
            )
        if name in self.names():
            raise BranchExists(f"There is a branch {name!r} already: choose another name, or check it out.")

    def pruned(self, names: Iterable[str]) -> tuple[Tree, tuple[Piece, ...]]:
        """The tree without these branches, and the states that nobody can reach any more. The current one stays."""
        gone = {self.named(name) for name in names} - {self.current}
        segments = {n: replace(each, name=None) if n in gone else each for n, each in self.segments.items()}
        cuts = []
        for number in sorted(segments, reverse=True):  # a parent is older than its children
            each = segments[number]
            if each.name is not None:
                continue
            needed = max((child.base for child in segments.values() if child.parent == number), default=each.base)
            if each.end > needed:
                cuts.append(Piece(number, needed, each.end))
            if needed > each.base:
                segments[number] = replace(each, end=needed)
            else:
                del segments[number]
        return replace(self, segments=segments), tuple(cuts)

    def _sprouted(self, segment: int, length: int, branch: Segment) -> Tree:
        parent, base = self._place(segment, length)
        sprout = replace(branch, parent=parent, base=base, end=length)
        return replace(self._with({self.next_segment: sprout}), next_segment=self.next_segment + 1)

    def _place(self, segment: int, length: int) -> tuple[int | None, int]:
        """The segment that has the last of the first `length` states: so no chain is longer than it must be."""
        at: int | None = segment
        while at is not None and length <= self.segments[at].base:
            at = self.segments[at].parent
        return at, length

    def _with(self, segments: Mapping[int, Segment]) -> Tree:
        return replace(self, segments={**self.segments, **segments})

    def _free_name(self) -> str:
        names = set(self.names())
        return next(name for n in count(self.next_segment) if (name := f"branch-{n}") not in names)


def written(tree: Tree) -> dict[str, Any]:
    """The tree as JSON knows it."""
    segments = {
        number: [each.name, each.parent, each.base, each.end, each.created, each.written, each.origin]
        for number, each in tree.segments.items()
    }
    return {"current": tree.current, "next": tree.next_segment, "asked_by": tree.asked_by, "segments": segments}


def read(told: dict[str, Any]) -> Tree:
    """The tree that was `written`."""
    segments = {int(number): Segment(*each) for number, each in told["segments"].items()}
    return Tree(segments, told["current"], told["next"], told["asked_by"])


def _states(length: int) -> str:
    return "1 state" if length == 1 else f"{length} states"
