"""The branches of a conversation, as segments that share their states."""

from orchestrator_interactive.interactions.tree import Piece, Tree

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
