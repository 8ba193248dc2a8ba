"""The branches of a conversation, as immutable values that are the same for every store.

States are stored in segments. A segment starts at a fork point of its parent and grows only at its end. A branch is the
name of its last segment. A fork copies no states; a rewind moves the name to a new segment.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING

from pydantic import TypeAdapter

from orchestrator_interactive.interactions.errors import BadBranchName, BranchExists, NoSuchBranch

if TYPE_CHECKING:
    from collections.abc import Iterable

MAIN = "main"
_MAX_NAME = 100
# Sanity limit: a damaged length must not cause an endless loop.
MAX_STATES = 10_000_000


@dataclass(frozen=True, slots=True)
class Segment:
    """States [base, end) of a branch; the states before `base` belong to the parent.

    Args:
        name: of the branch that ends here; `None` if it was pruned and other segments still start here.
        created, written: seconds since the epoch.
        origin: description for people; empty for the first segment.
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
    """Public description of a branch; `length` in states, times in seconds since the epoch."""

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
        segments: by number; numbers are never reused.
        current: number of the segment that is written to.
        asked_by: ref of another agent's request that the conversation answers, if any.
    """

    segments: dict[int, Segment]
    current: int
    next_segment: int
    asked_by: str | None = None

    @classmethod
    def empty(cls, now: float, asked_by: str | None = None) -> Tree:
        return cls({0: Segment(MAIN, None, 0, 0, now, now)}, 0, 1, asked_by)

    @property
    def head(self) -> Segment:
        return self.segments[self.current]

    def with_end(self, end: int, written: float) -> Tree:
        """Return the tree with a new end of the current branch."""
        head = self.head
        # On the path of every push: `replace` takes three times as long.
        extended = Segment(head.name, head.parent, head.base, end, head.created, written, head.origin)
        return Tree({**self.segments, self.current: extended}, self.current, self.next_segment, self.asked_by)

    def pieces(self, segment: int, start: int, stop: int) -> list[Piece]:
        """Return the pieces that hold the states [start, stop) of the branch with this last segment, in order."""
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
        """Return the last segment of a branch.

        Raises:
            NoSuchBranch: there is no such branch; the message lists the branches.
        """
        found = next((number for number, each in self.segments.items() if each.name == name), None)
        if found is None:
            raise NoSuchBranch(f"There is no branch {name!r}; existing branches: {', '.join(self.names())}.")
        return found

    def names(self) -> list[str]:
        return [branch.name for branch in self.branches()]

    def branches(self) -> list[Branch]:
        """Describe each branch, in order of creation."""
        found = [
            Branch(each.name, each.end, number == self.current, each.created, each.written, each.origin)
            for number, each in self.segments.items()
            if each.name is not None
        ]
        return sorted(found, key=lambda branch: branch.created)

    def forked(self, segment: int, length: int, name: str | None, now: float) -> tuple[Tree, str]:
        """Return the tree with a branch of the first `length` states of the branch ending in `segment`, and its name.

        Raises:
            BranchExists: the name is taken.
            BadBranchName: the name is invalid.
        """
        if name is not None:
            self._check_name(name)
        name = name or self._free_name()
        origin = f"forked from {self.segments[segment].name} with {_states(length)}"
        branch = Segment(name, None, 0, 0, now, now, origin)
        return self._with_branch(segment, length, branch), name

    def checked_out(self, name: str) -> Tree:
        """Return the tree with this branch as the current one.

        Raises:
            NoSuchBranch: there is no branch of this name.
        """
        return replace(self, current=self.named(name))

    def rewound(self, length: int, now: float, left: str | None = None) -> tuple[Tree, str | None]:
        """Cut the current branch to its first `length` states; return the tree and the branch that keeps the rest.

        Its name is `left`, or else a free one, or `None` if another branch has the removed states anyway.

        Raises:
            BranchExists, BadBranchName: `left` is taken or invalid.
        """
        head = self.head
        if left is not None:
            self._check_name(left)
        if length == head.end:
            return self, None
        owner = None if head.parent is None else self.segments[head.parent].name
        if head.end == head.base and owner is not None and left is None:
            parent, base = self._place(self.current, length)
            return self._with({self.current: replace(head, parent=parent, base=base, end=length, written=now)}), None
        left = left or self._free_name()
        origin = f"left behind when {head.name} was rewound to {_states(length)}"
        tree = self._with({self.current: replace(head, name=left, origin=origin, created=now)})
        tree = tree._with_branch(self.current, length, replace(head, written=now))  # noqa: SLF001 - a tree of its own
        return replace(tree, current=self.next_segment), left

    def _check_name(self, name: str) -> None:
        if not name.isprintable() or name != name.strip() or not 0 < len(name) <= _MAX_NAME or name[0] == "-":
            raise BadBranchName(
                f"{name[:_MAX_NAME]!r} is not a valid branch name: use 1 to {_MAX_NAME} printable characters, "
                "without a leading dash or surrounding spaces."
            )
        if name in self.names():
            raise BranchExists(f"There is already a branch {name!r}: choose another name, or check it out.")

    def pruned(self, names: Iterable[str]) -> tuple[Tree, tuple[Piece, ...]]:
        """Return the tree without these branches, and the unreachable states. The current branch is kept."""
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

    def _with_branch(self, segment: int, length: int, branch: Segment) -> Tree:
        parent, base = self._place(segment, length)
        new = replace(branch, parent=parent, base=base, end=length)
        return replace(self._with({self.next_segment: new}), next_segment=self.next_segment + 1)

    def _place(self, segment: int, length: int) -> tuple[int | None, int]:
        """Return the segment that holds the last of the first `length` states; this keeps parent chains short."""
        at: int | None = segment
        while at is not None and length <= self.segments[at].base:
            at = self.segments[at].parent
        return at, length

    def _with(self, segments: dict[int, Segment]) -> Tree:
        return replace(self, segments={**self.segments, **segments})

    def _free_name(self) -> str:
        names = set(self.names())
        return next(name for n in count(self.next_segment) if (name := f"branch-{n}") not in names)


def to_json(tree: Tree) -> str:
    return _TREE.dump_json(tree).decode()


def from_json(text: str | bytes) -> Tree:
    """Rebuild a tree from the result of `to_json`.

    Raises:
        ValueError: it is damaged.
    """
    tree = _TREE.validate_json(text, strict=True)
    head = tree.segments.get(tree.current)
    is_sound = head is not None and head.name is not None and tree.next_segment > max(tree.segments)
    if not is_sound or not all(_is_sound(tree, number) for number in tree.segments):
        raise ValueError("The segments contradict each other.")
    return tree


def _is_sound(tree: Tree, number: int) -> bool:
    each = tree.segments[number]
    # A parent is older than its children, which rules out cycles.
    has_parent = each.parent is None or (each.parent < number and each.parent in tree.segments)
    return has_parent and 0 <= each.base <= each.end <= MAX_STATES


def _states(length: int) -> str:
    return "1 state" if length == 1 else f"{length} states"


_TREE = TypeAdapter(Tree)
