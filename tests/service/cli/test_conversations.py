"""`amplifier-slack conversations list | branches | fork | rewind | checkout`."""

from __future__ import annotations

import pytest
from stored_conversations import HERE, THERE, StoredConversations, run, run_told

from orchestrator_interactive.interactions.states import (
    AssistantMessageState,
    FinishedState,
    ToolCallState,
    ToolResultState,
    UserMessageState,
)


@pytest.fixture
def kept(tmp_path) -> StoredConversations:
    return StoredConversations(tmp_path / "kept.db")


def told(result) -> str:
    assert result.exit_code == 0, result.output
    return result.output


def refused(result, code: int = 1) -> str:
    """The one sentence of a command that did nothing."""
    assert result.exit_code == code, result.output
    (line,) = result.output.splitlines()
    assert line.startswith("Error: ")
    return line.removeprefix("Error: ")


class TestList:
    def test_the_conversations_stand_in_columns_the_one_written_last_first(self, kept):
        kept.talk("look at the roadmap", "and the budget")
        kept.talk("what is new?", place=THERE, agent="beta")
        head, first, second = told(kept.run("list")).splitlines()
        assert head.split("  ")[0] == "conversation"
        assert [first.split()[at] for at in (0, 1, 2, 3)] == [THERE, "beta", "2", "1"]
        assert first.endswith("  what is new?")
        assert [second.split()[at] for at in (0, 1, 2, 3)] == [HERE, "alpha", "4", "1"]
        assert second.endswith("  and the budget")

    def test_the_last_prompt_is_the_last_task_and_not_what_was_written_while_it_was_worked_on(self, kept):
        kept.push(
            UserMessageState("the task\nin two lines \x1b[31mand red", {"author": "ana"}),
            AssistantMessageState(
                "I look.", [{"id": "1", "type": "function", "function": {"name": "look", "arguments": "{}"}}]
            ),
            ToolCallState("1", "look"),
            ToolResultState("1", "look", "nothing"),
            UserMessageState("[While you worked …]", {"injections": ["T:C:1"]}),
            *[AssistantMessageState("and on")] * 100,
        )
        line = told(kept.run("list", COLUMNS="200")).splitlines()[1]
        assert line.endswith("  the task in two lines [31mand red")

    def test_a_prompt_of_blocks_is_shown_by_its_text(self, kept):
        kept.push(UserMessageState([{"type": "image", "source": {}}, {"type": "text", "text": "what is this?"}]))
        assert told(kept.run("list")).rstrip().endswith("what is this?")

    @pytest.mark.parametrize("columns", [100, 140])
    def test_no_line_is_wider_than_the_terminal(self, kept, columns):
        kept.talk("words " * 100)
        lines = told(kept.run("list", COLUMNS=str(columns))).splitlines()
        assert max(map(len, lines)) <= columns
        assert lines[1].endswith("…")

    def test_it_stops_at_the_limit_and_says_how_many_there_are(self, kept):
        for number in range(5):
            kept.talk("hello", place=f"T:C:{number}")
        output = told(kept.run("list", "--limit", "2"))
        assert [line.split()[0] for line in output.splitlines()[1:3]] == ["T:C:4", "T:C:3"]
        assert "… and 3 more: --limit 5" in output

    def test_those_of_one_agent(self, kept):
        kept.talk("hello")
        kept.talk("hello", agent="beta")
        assert "alpha" not in told(kept.run("list", "--agent", "beta"))
        assert "no conversations of gamma" in told(kept.run("list", "--agent", "gamma"))

    def test_what_agents_say_to_each_other_is_left_out_unless_all_is_asked_for(self, kept):
        kept.talk("hello")
        kept.push(UserMessageState("look"), place=f"{HERE}/1", agent="helper", asked_by="some/ref/0/1")
        assert len(told(kept.run("list")).splitlines()) == 2
        assert [line.split()[0] for line in told(kept.run("list", "--all")).splitlines()[1:]] == [f"{HERE}/1", HERE]

    def test_an_empty_store_is_told(self, kept):
        assert "There are no conversations yet." in told(kept.run("list"))


class TestTheName:
    @pytest.mark.parametrize("part", [HERE, "C0GENERAL", "1700000001", "T0TEAM:C0G", "001.0"])
    def test_is_the_id_or_a_part_that_no_other_one_has(self, kept, part):
        kept.talk("hello")
        kept.talk("hello", place=THERE)
        told(kept.run("fork", part, "--name", "try"))
        assert kept.branches() == {"main": 2, "try": 2}
        assert kept.branches(THERE) == {"main": 2}

    def test_of_one_conversation_may_be_a_part_of_another_ones(self, kept):
        kept.talk("hello", place="T:C:1.0")
        kept.talk("hello", place="T:C:1.01")
        told(kept.run("fork", "T:C:1.0"))
        assert len(kept.branches("T:C:1.0")) == 2

    def test_does_not_mean_what_agents_said_to_each_other_for_it(self, kept):
        kept.talk("hello")
        for place in (f"{HERE}/1", f"{HERE}/1/2"):
            kept.talk("look", place=place, agent="helper")
        told(kept.run("fork", "C0GENERAL"))
        assert len(kept.branches()) == 2
        told(kept.run("fork", "100/1/"))
        assert len(kept.branches(f"{HERE}/1/2", "helper")) == 2

    def test_of_several_conversations_is_told_with_some_of_them(self, kept):
        for number in range(7):
            kept.talk("hello", place=f"T:C:{number}")
        said = refused(kept.run("branches", "T:C"))
        assert said.startswith("'T:C' matches 7 conversations: T:C:6, T:C:5, T:C:4, T:C:3, T:C:2 and 2 more. ")

    def test_of_a_conversation_of_several_agents_needs_the_agent(self, kept):
        kept.talk("hello")
        kept.talk("hello", agent="beta")
        assert "Choose one with --agent" in refused(kept.run("rewind", HERE, "0"))
        output = told(kept.run("rewind", HERE, "0", "--agent", "beta"))
        assert (kept.branches(agent="beta")["main"], kept.branches(agent="alpha")) == (1, {"main": 2})
        told(run_told(output))
        assert next(iter(kept.branches(agent="beta").values())) == 2

    @pytest.mark.parametrize(("part", "more"), [("nope", ()), ("", ()), ("C0GENERAL", ("--agent", "gamma"))])
    def test_of_no_conversation_is_told(self, kept, part, more):
        kept.talk("hello")
        assert "`list` shows all conversations" in refused(kept.run("branches", part, *more))


class TestBranches:
    def test_a_fork_has_the_states_up_to_the_index_and_the_conversation_stays_where_it_is(self, kept):
        kept.talk("one", "two")
        output = told(kept.run("fork", HERE, "--at", "1"))
        assert output.startswith("Created branch-1 with 2 states of main. The conversation stays on main. ")
        assert kept.branches() == {"main": 4, "branch-1": 2}
        assert told(run_told(output)).startswith(
            "The conversation is now on branch-1, which has 2 states. To switch back:"
        )
        assert kept.said() == ["one"]

    def test_a_rewind_is_undone_by_what_it_says(self, kept):
        kept.talk("one", "two", "three")
        output = told(kept.run("rewind", "C0GENERAL", "1"))
        assert output.startswith("main ends with state 1 now. The 4 later states are on branch-1. To undo this:\n  ")
        assert kept.said() == ["one"]
        back = told(run_told(output))
        assert kept.said() == ["one", "two", "three"]
        told(run_told(back))
        assert kept.said() == ["one"]

    def test_a_negative_index_counts_from_the_end(self, kept):
        kept.talk("one", "two")
        assert "The 2 later states are on branch-1" in told(kept.run("rewind", HERE, "-3"))
        assert kept.branches()["main"] == 2
        told(kept.run("fork", HERE, "--at", "-2", "--name", "short"))
        assert kept.branches()["short"] == 1

    def test_a_rewind_to_where_it_ends_changes_nothing(self, kept):
        kept.talk("one")
        before = kept.logs()
        assert told(kept.run("rewind", HERE, "1")) == "main ends with state 1 already: nothing was changed.\n"
        assert kept.logs()[next(iter(before))].tree == before[next(iter(before))].tree

    def test_a_second_rewind_says_where_the_states_are(self, kept):
        kept.talk("one", "two", "three")
        told(kept.run("rewind", HERE, "3"))
        assert "are on the branch from which it was created" in told(kept.run("rewind", HERE, "1"))
        assert kept.branches() == {"main": 2, "branch-1": 6}

    def test_a_finished_conversation_can_be_rewound_to_go_on(self, kept):
        kept.talk("one")
        kept.push(FinishedState())
        assert "The later state is on branch-1" in told(kept.run("rewind", HERE, "1"))
        kept.talk("two")
        assert kept.said() == ["one", "two"]

    def test_a_checkout_of_the_current_branch_changes_nothing(self, kept):
        kept.talk("one")
        before = kept.logs()
        assert "is on main already" in told(kept.run("checkout", HERE, "main"))
        assert kept.logs() == before

    def test_the_list_has_a_star_at_the_current_one_and_says_where_each_comes_from(self, kept):
        kept.talk("one", "two")
        told(kept.run("fork", HERE, "--at", "1", "--name", "try"))
        told(kept.run("checkout", HERE, "try"))
        head, main, other = told(kept.run("branches", HERE)).splitlines()
        assert head.split() == ["branch", "states", "made", "last", "written", "from"]
        assert main.split()[:2] == ["main", "4"]
        assert other.split()[:3] == ["*", "try", "2"]
        assert other.endswith("forked from main with 2 states")

    @pytest.mark.parametrize(
        ("words", "said"),
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
    def test_what_is_not_there_is_told_and_nothing_is_written(self, kept, words, said):
        kept.talk("one", "two")
        before = kept.logs()
        assert refused(kept.run(*words)).startswith(said)
        assert kept.logs() == before

    @pytest.mark.parametrize(
        "words",
        [
            ("rewind", HERE),
            ("rewind", HERE, "two"),
            ("rewind", HERE, "1.5"),
            ("rewind", HERE, "--nope"),
            ("rewind", HERE, "1", "--nope"),
            ("fork", HERE, "--at", "x"),
            ("checkout", HERE),
            ("list", "--limit", "0"),
            ("show", HERE, "--last", "0"),
            ("export", HERE, "--format", "pdf"),
            ("prune", "--keep-days", "-1"),
            ("nope",),
        ],
    )
    def test_what_cannot_be_meant_is_told_by_its_name(self, kept, words):
        kept.talk("one", "two")
        before = kept.logs()
        result = kept.run(*words)
        assert result.exit_code == 2
        assert "Usage: amplifier-slack conversations" in result.output
        assert kept.logs() == before


class TestTheStore:
    @pytest.fixture
    def config(self, tmp_path):
        path = tmp_path / "agents.yaml"
        path.write_text("store: sqlite:kept.db\n")
        return str(path)

    def test_is_the_one_of_the_configuration(self, kept, config):
        kept.talk("one", "two")
        output = told(run("conversations", "rewind", HERE, "1", "--config", config))
        assert output.rstrip().endswith(f"--config {config}")
        told(run_told(output))
        assert kept.said() == ["one", "two"]

    def test_is_the_one_of_the_environment_before_that(self, kept, config, tmp_path):
        other = StoredConversations(tmp_path / "other.db")
        other.talk("elsewhere")
        kept.talk("here")
        assert "elsewhere" in told(run("conversations", "list", "--config", config, AMPLIFIER_SLACK_STORE=other.url))

    def test_is_the_one_that_is_given_before_all(self, kept, config, tmp_path):
        other = StoredConversations(tmp_path / "other.db")
        kept.talk("here")
        words = ("conversations", "list", "--config", config, "--store", kept.url)
        assert "here" in told(run(*words, AMPLIFIER_SLACK_STORE=other.url))

    def test_is_relative_to_where_the_command_is_given(self, kept, monkeypatch, tmp_path):
        kept.talk("here")
        monkeypatch.chdir(tmp_path)
        assert "here" in told(run("conversations", "list", "--store", "sqlite:kept.db"))
        assert "here" in told(run("conversations", "list", AMPLIFIER_SLACK_STORE="sqlite:kept.db"))

    @pytest.mark.parametrize("words", [("list",), ("show", "x"), ("rewind", "x", "1"), ("prune", "--whole")])
    def test_that_is_a_file_which_is_not_there_is_told_and_no_file_is_made(self, tmp_path, words):
        said = refused(run("conversations", *words, "--store", f"sqlite:{tmp_path}/below/typo.db"), 2)
        assert said.startswith(f"The store file {tmp_path}/below/typo.db does not exist. ")
        assert list(tmp_path.iterdir()) == []

    def test_without_any_is_in_the_home_folder(self, tmp_path):
        said = refused(run("conversations", "list", HOME=str(tmp_path)), 2)
        assert f"The store file {tmp_path}/.local/share/amplifier-slack/conversations.db does not exist." in said

    @pytest.mark.parametrize("url", ["geheimgeheim", "sqlite:", "sqlite://host/a.db", "postgres://a:geheimgeheim@b/c"])
    def test_that_is_none_is_told_without_its_password(self, url):
        assert "geheim" not in refused(run("conversations", "list", "--store", url), 2)

    def test_that_cannot_be_used_is_told(self, tmp_path):
        (tmp_path / "kept.db").write_text("a text" * 1000)
        assert "kept.db" in refused(run("conversations", "list", "--store", f"sqlite:{tmp_path}/kept.db"), 2)

    def test_of_a_configuration_that_is_wrong_is_told_as_ever(self, tmp_path):
        (tmp_path / "agents.yaml").write_text("stores: a")
        said = refused(run("conversations", "list", "--config", str(tmp_path / "agents.yaml")), 2)
        assert "stores: unknown key" in said
