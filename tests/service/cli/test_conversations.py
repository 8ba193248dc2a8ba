"""`amplifier-slack conversations list | branches | fork | rewind | checkout`."""

from __future__ import annotations

import pytest
from stored_conversations import HERE, THERE, run_told

from orchestrator_interactive.interactions.states import (
    AssistantMessageState,
    FinishedState,
    ToolCallState,
    ToolResultState,
    UserMessageState,
)


def columns_of(line, count=4):
    return line.split()[:count]


class TestList:
    def test_the_most_recent_conversation_is_first(self, kept, output_of):
        kept.talk("look at the roadmap", "and the budget")
        kept.talk("any news?", place=THERE, agent="beta")
        head, first, second, place = output_of(kept.run("list")).splitlines()
        assert place == f"Store: sqlite:{kept.path}"
        assert head.startswith("conversation  ")
        assert columns_of(first) == [THERE, "beta", "2", "1"]
        assert first.endswith("  any news?")
        assert columns_of(second) == [HERE, "alpha", "4", "1"]
        assert second.endswith("  and the budget")

    def test_the_last_prompt_is_shown_and_not_an_injected_message(self, kept, output_of):
        call = {"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
        kept.push(
            UserMessageState("the task\nin two lines \x1b[31mand red", {"author": "ana"}),
            AssistantMessageState("I look.", [call]),
            ToolCallState("1", "look"),
            ToolResultState("1", "look", "nothing"),
            UserMessageState("[While you worked …]", {"injections": ["T:C:1"]}),
            *[AssistantMessageState("and on")] * 100,
        )
        line = output_of(kept.run("list", COLUMNS="200")).splitlines()[1]
        assert line.endswith("  the task in two lines [31mand red")

    def test_a_prompt_of_blocks_is_shown_by_its_text(self, kept, output_of):
        kept.push(UserMessageState([{"type": "image", "source": {}}, {"type": "text", "text": "describe this"}]))
        assert output_of(kept.run("list")).splitlines()[1].endswith("describe this")

    @pytest.mark.parametrize("columns", [100, 140])
    def test_no_line_is_wider_than_the_terminal(self, kept, output_of, columns):
        kept.talk("words " * 100)
        lines = output_of(kept.run("list", COLUMNS=str(columns))).splitlines()
        assert max(map(len, lines)) <= columns
        assert lines[1].endswith("…")

    def test_the_limit_leaves_out_older_conversations_and_says_how_many(self, kept, output_of):
        for number in range(5):
            kept.talk("hello", place=f"T:C:{number}")
        output = output_of(kept.run("list", "--limit", "2"))
        assert [line.split()[0] for line in output.splitlines()[1:3]] == ["T:C:4", "T:C:3"]
        assert "… and 3 more: --limit 5" in output

    def test_the_agent_option_selects_the_conversations_of_one_agent(self, kept, output_of):
        kept.talk("hello")
        kept.talk("hello", agent="beta")
        assert "alpha" not in output_of(kept.run("list", "--agent", "beta"))
        assert "no conversations of gamma" in output_of(kept.run("list", "--agent", "gamma"))

    def test_conversations_between_agents_are_listed_only_with_all(self, kept, output_of):
        kept.talk("hello")
        kept.push(UserMessageState("look"), place=f"{HERE}/1", agent="helper", asked_by="some/ref/0/1")
        for options, expected in (((), [HERE]), (("--all",), [f"{HERE}/1", HERE])):
            lines = output_of(kept.run("list", *options)).splitlines()[1:-1]
            assert [line.split()[0] for line in lines] == expected

    def test_an_empty_store_has_no_conversations(self, kept, output_of):
        assert "There are no conversations in sqlite:" in output_of(kept.run("list"))


class TestConversationArgument:
    @pytest.mark.parametrize("part", [HERE, "C0GENERAL", "1700000001", "T0TEAM:C0G", "001.0"])
    def test_a_unique_part_of_the_id_is_enough(self, kept, output_of, part):
        kept.talk("hello")
        kept.talk("hello", place=THERE)
        output_of(kept.run("fork", part, "--name", "try"))
        assert kept.branches() == {"main": 2, "try": 2}
        assert kept.branches(THERE) == {"main": 2}

    def test_a_whole_id_may_be_a_part_of_another(self, kept, output_of):
        kept.talk("hello", place="T:C:1.0")
        kept.talk("hello", place="T:C:1.01")
        output_of(kept.run("fork", "T:C:1.0"))
        assert len(kept.branches("T:C:1.0")) == 2

    def test_conversations_between_agents_match_only_their_own_part(self, kept, output_of):
        kept.talk("hello")
        for place in (f"{HERE}/1", f"{HERE}/1/2"):
            kept.talk("look", place=place, agent="helper")
        output_of(kept.run("fork", "C0GENERAL"))
        assert len(kept.branches()) == 2
        output_of(kept.run("fork", "100/1/"))
        assert len(kept.branches(f"{HERE}/1/2", "helper")) == 2

    def test_an_ambiguous_part_is_an_error_with_some_of_the_matches(self, kept, error_of):
        for number in range(7):
            kept.talk("hello", place=f"T:C:{number}")
        error = error_of(kept.run("branches", "T:C"))
        assert error.startswith("'T:C' matches 7 conversations: T:C:6, T:C:5, T:C:4, T:C:3, T:C:2 and 2 more. ")

    def test_a_conversation_of_several_agents_needs_the_agent(self, kept, output_of, error_of):
        kept.talk("hello")
        kept.talk("hello", agent="beta")
        assert "Choose one with --agent" in error_of(kept.run("rewind", HERE, "0"))
        output = output_of(kept.run("rewind", HERE, "0", "--agent", "beta"))
        assert (kept.branches(agent="beta")["main"], kept.branches(agent="alpha")) == (1, {"main": 2})
        output_of(run_told(output))
        assert next(iter(kept.branches(agent="beta").values())) == 2

    @pytest.mark.parametrize(("part", "more"), [("nope", ()), ("", ()), ("C0GENERAL", ("--agent", "gamma"))])
    def test_a_part_without_a_match_is_an_error(self, kept, error_of, part, more):
        kept.talk("hello")
        assert "`list` shows all conversations" in error_of(kept.run("branches", part, *more))


class TestBranches:
    def test_a_fork_copies_states_and_a_checkout_switches_to_it(self, kept, output_of):
        kept.talk("one", "two")
        output = output_of(kept.run("fork", HERE, "--at", "1"))
        assert output.startswith("Created branch-1 with 2 states of main. The conversation stays on main. ")
        assert kept.branches() == {"main": 4, "branch-1": 2}
        assert output_of(run_told(output)).startswith(
            "The conversation is now on branch-1, which has 2 states. To switch back:"
        )
        assert kept.said() == ["one"]

    def test_the_output_of_a_rewind_is_the_command_that_undoes_it(self, kept, output_of):
        kept.talk("one", "two", "three")
        output = output_of(kept.run("rewind", "C0GENERAL", "1"))
        assert output.startswith("main ends with state 1 now. The 4 later states are on branch-1. To undo this:\n  ")
        assert kept.said() == ["one"]
        back = output_of(run_told(output))
        assert kept.said() == ["one", "two", "three"]
        output_of(run_told(back))
        assert kept.said() == ["one"]

    def test_a_negative_index_counts_from_the_end(self, kept, output_of):
        kept.talk("one", "two")
        assert "The 2 later states are on branch-1" in output_of(kept.run("rewind", HERE, "-3"))
        assert kept.branches()["main"] == 2
        output_of(kept.run("fork", HERE, "--at", "-2", "--name", "short"))
        assert kept.branches()["short"] == 1

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (("rewind", HERE, "1"), "main ends with state 1 already: nothing was changed."),
            (("checkout", HERE, "main"), "is on main already"),
        ],
    )
    def test_a_command_without_an_effect_changes_nothing(self, kept, output_of, words, message):
        kept.talk("one")
        before = kept.logs()
        assert message in output_of(kept.run(*words))
        assert [log.tree for log in kept.logs().values()] == [log.tree for log in before.values()]

    def test_a_second_rewind_names_the_branch_with_the_later_states(self, kept, output_of):
        kept.talk("one", "two", "three")
        output_of(kept.run("rewind", HERE, "3"))
        assert "are on the branch from which it was created" in output_of(kept.run("rewind", HERE, "1"))
        assert kept.branches() == {"main": 2, "branch-1": 6}

    def test_a_rewound_finished_conversation_continues(self, kept, output_of):
        kept.talk("one")
        kept.push(FinishedState())
        assert "The later state is on branch-1" in output_of(kept.run("rewind", HERE, "1"))
        kept.talk("two")
        assert kept.said() == ["one", "two"]

    def test_branches_lists_the_current_one_with_a_star_and_the_origin_of_each(self, kept, output_of):
        kept.talk("one", "two")
        output_of(kept.run("fork", HERE, "--at", "1", "--name", "try"))
        output_of(kept.run("checkout", HERE, "try"))
        head, main, other = output_of(kept.run("branches", HERE)).splitlines()
        assert head.split() == ["branch", "states", "made", "last", "written", "from"]
        assert columns_of(main, 2) == ["main", "4"]
        assert columns_of(other, 3) == ["*", "try", "2"]
        assert other.endswith("forked from main with 2 states")

    @pytest.mark.parametrize(
        ("words", "message"),
        [
            (("fork", HERE, "--at", "4"), "There is no state 4: branch main has the states 0 to 3."),
            (("fork", HERE, "--at", "-5"), "There is no state -5: branch main has the states 0 to 3."),
            (("fork", HERE, "--name", "main"), "There is already a branch 'main'"),
            (("rewind", HERE, "99"), "There is no state 99: branch main has the states 0 to 3."),
            (("rewind", HERE, "-5"), "There is no state -5: branch main has the states 0 to 3."),
            (("checkout", HERE, "nope"), "There is no branch 'nope'; existing branches: main."),
            (("checkout", HERE, ""), "There is no branch ''; existing branches: main."),
        ],
    )
    def test_a_missing_state_or_branch_is_an_error_and_nothing_is_written(self, kept, error_of, words, message):
        kept.talk("one", "two")
        before = kept.logs()
        assert error_of(kept.run(*words)).startswith(message)
        assert kept.logs() == before

    @pytest.mark.parametrize(
        "words",
        [
            *(("rewind", HERE), ("rewind", HERE, "two"), ("rewind", HERE, "1.5"), ("rewind", HERE, "--nope")),
            *(("rewind", HERE, "1", "--nope"), ("fork", HERE, "--at", "x"), ("checkout", HERE)),
            *(("list", "--limit", "0"), ("show", HERE, "--last", "0"), ("export", HERE, "--format", "pdf")),
            *(("prune", "--keep-days", "-1"), ("nope",)),
        ],
    )
    def test_wrong_usage_exits_with_code_2_and_changes_nothing(self, kept, words):
        kept.talk("one", "two")
        before = kept.logs()
        result = kept.run(*words)
        assert result.exit_code == 2
        assert "Usage: amplifier-slack conversations" in result.output
        assert kept.logs() == before
