"""The branches of a conversation, as segments that share their states."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from orchestrator_interactive.interactions.tree import Piece, Tree, from_json, to_json

NOW = 100.0


def grown(length: int) -> Tree:
    return Tree.empty(NOW).with_end(length, NOW)


def test_a_fork_starts_after_its_parents_states_and_copies_nothing() -> None:
    tree, name = grown(10).forked(0, 6, "mine", NOW)
    assert tree.pieces(tree.named(name), 0, 6) == [Piece(0, 0, 6)]
    assert tree.current == 0
    tree = tree.checked_out(name).with_end(9, NOW)
    assert tree.pieces(tree.current, 4, 9) == [Piece(0, 4, 6), Piece(1, 6, 9)]


def test_a_fork_of_a_fork_refers_to_the_branch_that_has_the_states() -> None:
    tree = grown(10)
    for _ in range(100):
        tree, name = tree.forked(tree.current, 5, None, NOW)
        tree = tree.checked_out(name)
    assert tree.head.parent == 0


def test_a_generated_name_differs_from_chosen_ones() -> None:
    tree, _ = grown(1).forked(0, 1, "branch-2", NOW)
    assert tree.forked(0, 1, None, NOW)[1] == "branch-3"


def test_a_rewind_names_a_branch_for_the_removed_states_unless_one_has_them() -> None:
    assert grown(10).rewound(10, NOW) == (grown(10), None)
    tree, left = grown(10).rewound(8, NOW)
    assert tree.segments[tree.named(str(left))].end == 10
    assert (tree.head.name, tree.head.end) == ("main", 8)
    for length in range(7, 0, -1):
        tree, left = tree.rewound(length, NOW)
        assert left is None
    assert len(tree.branches()) == 2


def test_a_segment_number_is_not_reused() -> None:
    tree, left = grown(10).rewound(4, NOW)
    tree, _ = tree.pruned([str(left)])
    assert 0 in tree.segments  # the first four states
    tree, _ = tree.forked(tree.current, 2, None, NOW)
    assert sorted(tree.segments) == [0, 1, 2]


def test_a_prune_cuts_the_states_that_no_other_branch_has() -> None:
    tree, a = grown(10).forked(0, 5, "a", NOW)
    tree = tree.checked_out(a).with_end(8, NOW)
    tree, b = tree.forked(tree.current, 7, "b", NOW)
    tree = tree.checked_out("main")
    assert tree.pruned(["main"]) == (tree, ())
    tree, cuts = tree.pruned(["a"])
    assert cuts == (Piece(1, 7, 8),)
    tree, cuts = tree.pruned([b])
    assert cuts == (Piece(1, 5, 7),)
    assert list(tree.segments) == [0]


def test_a_tree_can_be_written_and_read() -> None:
    tree, _ = grown(10).rewound(4, NOW)
    assert from_json(to_json(tree)) == tree


class TreeMachine(RuleBasedStateMachine):
    """Compare the tree with a list of states per branch."""

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
        else:  # another branch has them
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
    def states_of_no_branch_are_deleted(self) -> None:
        assert set(self.kept.values()) == {state for states in self.branches.values() for state in states}


TestTreeAgainstLists: Any = TreeMachine.TestCase


@given(st.integers(0, 20), st.integers(0, 20))
def test_a_range_of_one_segment_is_one_piece(start: int, stop: int) -> None:
    expected = [Piece(0, start, stop)] if start < stop else []
    assert grown(20).pieces(0, start, stop) == expected
