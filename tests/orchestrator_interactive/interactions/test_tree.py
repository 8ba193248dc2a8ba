from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from orchestrator_interactive.interactions.errors import BranchExists, NoSuchBranch
from orchestrator_interactive.interactions.tree import Piece, Tree, from_dict, to_dict

NOW = 100.0


def grown(length: int) -> Tree:
    return Tree.empty(NOW).with_end(length, NOW)


class TestForks:
    def test_a_fork_begins_where_it_leaves_and_copies_nothing(self) -> None:
        tree, name = grown(10).forked(0, 6, None, NOW)
        assert tree.pieces(tree.named(name), 0, 6) == [Piece(0, 0, 6)]
        assert tree.current == 0

    def test_its_own_states_stand_behind_those_of_its_parent(self) -> None:
        tree, name = grown(10).forked(0, 6, "mine", NOW)
        tree = tree.checked_out(name).with_end(9, NOW)
        assert tree.pieces(tree.current, 4, 9) == [Piece(0, 4, 6), Piece(1, 6, 9)]

    def test_a_chain_of_forks_is_no_longer_than_it_must_be(self) -> None:
        tree = grown(10)
        for _ in range(100):
            tree, name = tree.forked(tree.current, 5, None, NOW)
            tree = tree.checked_out(name)
        assert tree.head.parent == 0

    def test_a_name_is_given_once(self) -> None:
        with pytest.raises(BranchExists, match="already a branch 'main'"):
            grown(1).forked(0, 1, "main", NOW)

    def test_a_name_made_up_is_not_one_that_somebody_chose(self) -> None:
        tree, _ = grown(1).forked(0, 1, "branch-2", NOW)
        assert tree.forked(0, 1, None, NOW)[1] == "branch-3"

    def test_an_unknown_branch_is_told_with_those_there_are(self) -> None:
        with pytest.raises(NoSuchBranch, match="no branch 'mine'; existing branches: main"):
            grown(1).checked_out("mine")


class TestRewinds:
    def test_what_is_left_behind_keeps_a_name(self) -> None:
        tree, left = grown(10).rewound(4, NOW)
        assert left is not None
        assert tree.segments[tree.named(left)].end == 10
        assert (tree.head.name, tree.head.end) == ("main", 4)

    def test_to_where_it_stands_changes_nothing(self) -> None:
        tree = grown(10)
        assert tree.rewound(10, NOW) == (tree, None)

    def test_again_and_again_leaves_one_branch(self) -> None:
        tree, _ = grown(10).rewound(8, NOW)
        for length in range(7, 0, -1):
            tree, left = tree.rewound(length, NOW)
            assert left is None
        assert len(tree.branches()) == 2

    def test_a_number_is_never_given_again(self) -> None:
        tree, left = grown(10).rewound(4, NOW)
        tree, _ = tree.pruned([str(left)])
        assert 0 in tree.segments  # the first four states
        tree, _ = tree.forked(tree.current, 2, None, NOW)
        assert sorted(tree.segments) == [0, 1, 2]


class TestPrunes:
    def test_what_nobody_else_has_is_cut(self) -> None:
        tree, left = grown(10).rewound(4, NOW)
        tree, cuts = tree.pruned([str(left)])
        assert cuts == (Piece(0, 4, 10),)
        assert tree.names() == ["main"]
        assert tree.pieces(tree.current, 0, 4) == [Piece(0, 0, 4)]

    def test_a_whole_chain_goes_once_nobody_stands_on_it(self) -> None:
        tree, a = grown(10).forked(0, 5, "a", NOW)
        tree = tree.checked_out(a).with_end(8, NOW)
        tree, b = tree.forked(tree.current, 7, "b", NOW)
        tree = tree.checked_out("main")
        tree, cuts = tree.pruned(["a"])
        assert cuts == (Piece(1, 7, 8),)
        tree, cuts = tree.pruned([b])
        assert cuts == (Piece(1, 5, 7),)
        assert list(tree.segments) == [0]

    def test_the_current_branch_stays(self) -> None:
        tree = grown(3)
        assert tree.pruned(["main"]) == (tree, ())


def test_a_tree_can_be_written_and_read() -> None:
    tree, _ = grown(10).rewound(4, NOW)
    assert from_dict(json.loads(json.dumps(to_dict(tree)))) == tree


class TreeMachine(RuleBasedStateMachine):
    """The tree beside what it stands for: for each branch, the list of its states."""

    def __init__(self) -> None:
        super().__init__()
        self.tree = Tree.empty(NOW)
        self.kept: dict[tuple[int, int], int] = {}
        self.branches: dict[str, list[int]] = {"main": []}
        self.current = "main"
        self.pushed = 0

    @rule(count=st.integers(1, 4))
    def push(self, count: int) -> None:
        end = self.tree.head.end
        for index in range(end, end + count):
            assert (self.tree.current, index) not in self.kept
            self.kept[self.tree.current, index] = self.pushed
            self.branches[self.current].append(self.pushed)
            self.pushed += 1
        self.tree = self.tree.with_end(end + count, NOW)

    @rule(data=st.data())
    def fork(self, data: st.DataObject) -> None:
        states = self.branches[self.current]
        length = data.draw(st.integers(0, len(states)))
        self.tree, name = self.tree.forked(self.tree.current, length, None, NOW)
        self.branches[name] = states[:length]

    @rule(data=st.data())
    def checkout(self, data: st.DataObject) -> None:
        self.current = data.draw(st.sampled_from(sorted(self.branches)))
        self.tree = self.tree.checked_out(self.current)

    @rule(data=st.data())
    def rewind(self, data: st.DataObject) -> None:
        states = self.branches[self.current]
        length = data.draw(st.integers(0, len(states)))
        self.tree, left = self.tree.rewound(length, NOW)
        self.branches[self.current] = states[:length]
        if left is not None:
            self.branches[left] = states
        else:  # somebody else has it
            assert any(other[: len(states)] == states for other in self.branches.values())

    @rule(data=st.data())
    def prune(self, data: st.DataObject) -> None:
        names = data.draw(st.sets(st.sampled_from(sorted(self.branches)), max_size=2))
        self.tree, cuts = self.tree.pruned(names)
        for cut in cuts:
            for index in range(cut.start, cut.stop):
                del self.kept[cut.segment, index]
        self.branches = {n: states for n, states in self.branches.items() if n == self.current or n not in names}

    @invariant()
    def every_branch_has_its_states(self) -> None:
        assert set(self.tree.names()) == set(self.branches)
        for name, states in self.branches.items():
            number = self.tree.named(name)
            pieces = self.tree.pieces(number, 0, self.tree.segments[number].end)
            assert [self.kept[p.segment, i] for p in pieces for i in range(p.start, p.stop)] == states

    @invariant()
    def nothing_is_kept_that_nobody_has(self) -> None:
        assert set(self.kept.values()) == {state for states in self.branches.values() for state in states}


TestTreeAgainstLists: Any = TreeMachine.TestCase


@given(st.integers(0, 20), st.integers(0, 20))
def test_a_range_of_one_segment_is_one_piece(start: int, stop: int) -> None:
    expected = [Piece(0, start, stop)] if start < stop else []
    assert grown(20).pieces(0, start, stop) == expected
