"""How the demo takes what a run that is steered brings: messages that cut it, results that follow, cut answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from demo_conversations import (
    FILES,
    TOOLS,
    after,
    answer_to,
    answered,
    calls_of,
    messages,
    next_of,
    outcome,
    said,
    steer,
    text_of,
    used_in,
    user,
)
from hypothesis import given
from hypothesis import strategies as st

from orchestrator_interactive.kernel.contracts.messages import ToolCall, ToolCallBlock
from orchestrator_interactive.loop.injection_queue import Injection, injection_row
from orchestrator_interactive.loop.tool_results import LATE_PREFIX, late_results_row, still_running_row
from orchestrator_interactive.transcript.framing import Author
from orchestrator_interactive.transcript.rows import tool_row

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Row = dict[str, Any]

GO_ON = user("[Go on.]")


def with_pending(rows: Sequence[Row], is_pending: Callable[[str], bool]) -> tuple[list[Row], list[Row]]:
    """The rows after one more turn some of whose calls are still at work, and the rows of their results."""
    blocks = next_of(rows)
    turn: list[Row] = [{"role": "assistant", "content": [block.model_dump() for block in blocks]}]
    owed = []
    for block in blocks:
        if isinstance(block, ToolCallBlock):
            call = ToolCall(id=block.id, name=block.name, arguments=block.input)
            text, failed = outcome(block.name, block.input, FILES)
            result = tool_row(call, text, failed=failed)
            if is_pending(block.name):
                owed.append(result)
            turn.append(still_running_row(call) if result in owed else result)
    return [*rows, *turn], owed


def cut_answer(rows: Sequence[Row]) -> list[Row]:
    """A task up to its answer, of which only the beginning was said."""
    rows = answered(rows)
    return [*rows[:-1], said(rows[-1]["content"][0]["text"][:40])]


def test_an_urgent_message_that_cut_the_answer_belongs_to_its_task() -> None:
    rows = [*cut_answer([user("review my notes")]), steer("! also check the cake")]
    blocks = next_of(rows)
    assert calls_of(blocks) == [("search_files", {"query": "cake"})]
    answer = answer_to(*rows)
    assert answer.startswith("**“cake”**")
    assert "I have read **2 files**" in answer
    assert "“! also check the cake”, at once: I searched for it" in answer


def test_an_urgent_message_may_end_the_task() -> None:
    enough = Injection("!that's enough", author=Author("U0ANA", "Ana"))
    rows = [*after(after([user("review my notes")])), injection_row([enough])]
    blocks = next_of(rows)
    assert calls_of(blocks) == []
    assert "“Ana: !that's enough”, at once: I stopped there" in text_of(blocks)


@pytest.mark.parametrize("words", ["!", "!!!", "! \u2028", "!?"])
def test_an_urgent_message_without_words_is_noted(words: str) -> None:
    assert "I have read it" in answer_to(user("review my notes"), said("I'll look"), steer(words))


@pytest.mark.parametrize(
    ("said_of_it", "left"),
    [
        ("I am taking my time:", "I am taking my time: 15 seconds are still left.\n\n"),
        ("I am taking my time: 30 seconds, as you", "I am taking my time: 3 seconds are still left.\n\n"),
        ("I am taking my time: 30 seconds, as you asked.\n\nThat was", "That was it"),
    ],
)
def test_a_pause_that_was_cut_goes_on(said_of_it: str, left: str) -> None:
    rows = [user("take 30 seconds"), said(said_of_it), steer("! nice weather")]
    assert text_of(next_of(rows)).startswith(left)


def test_a_pause_that_was_cut_twice_goes_on_from_there() -> None:
    once = [user("take 80 seconds"), said("I am taking my time:"), steer("! hm")]
    assert "40 seconds are still left." in text_of(next_of(once))
    twice = [*once, said("I am taking my time: 40 seconds are"), steer("! hm")]
    assert "8 seconds are still left." in text_of(next_of(twice))
    assert "as you asked" in text_of(next_of([*twice, user("take 80 seconds")]))


def test_while_a_tool_is_at_work_it_does_what_was_written_and_then_waits() -> None:
    rows, owed = with_pending([user("what's in a.md?")], lambda _: True)
    rows = [*rows, steer("! also check the launch")]
    assert calls_of(next_of(rows)) == [("search_files", {"query": "launch"})]
    rows = after(rows)
    waiting = next_of(rows)
    assert calls_of(waiting) == []
    assert text_of(waiting).startswith("I am still waiting for `read_file` of `a.md`; then I go on.")
    assert "“! also check the launch”, at once: I searched for it, and found 2 lines" in text_of(waiting)
    rows = [*rows, said(text_of(waiting)), late_results_row(owed)]
    answer = answer_to(*rows)
    assert "- [ ] bake a cake" in answer
    assert "still" not in answer
    assert [name for name, _ in used_in(answered(rows))] == ["read_file", "search_files"]


def test_a_review_goes_on_where_its_tool_was_still_at_work() -> None:
    rows = after([user("review my notes")])
    rows, owed = with_pending(rows, lambda name: name == "read_file")
    rows = [*rows, steer("! nice weather")]
    assert text_of(next_of(rows)).startswith("I am still waiting for `read_file` of `a.md`")
    rows = answered([*rows, said(text_of(next_of(rows))), late_results_row(owed)])
    assert "I have read **2 files**" in rows[-1]["content"][0]["text"]
    assert [given["path"] for name, given in used_in(rows) if name == "read_file"] == ["a.md", "b.md"]


def test_a_search_that_is_still_on_has_not_failed() -> None:
    rows, owed = with_pending([user("search for launch parties")], lambda _: True)
    rows = [*rows, steer("! hm")]
    assert calls_of(next_of(rows)) == []
    rows = [*rows, said(text_of(next_of(rows))), late_results_row(owed)]
    assert calls_of(next_of(rows)) == [("search_files", {"query": "parties"})]


def test_a_failure_that_came_late_is_a_failure() -> None:
    rows, owed = with_pending([user("what's in gone.md?")], lambda _: True)
    answer = answer_to(*rows, steer("! hm"), late_results_row(owed))
    assert "`read_file` of `gone.md`: There is no 'gone.md'." in answer


@pytest.mark.parametrize("prompt", ["search for cake", "what's in a.md?", "write into c.md: x", "todo: a, b"])
def test_asked_for_an_answer_it_does_not_wait_and_tells_of_the_rest_afterwards(prompt: str) -> None:
    rows, owed = with_pending([user(prompt)], lambda _: True)
    rows = [*rows, steer("! just answer")]
    answer = next_of(rows)
    assert calls_of(answer) == []
    assert not text_of(answer).startswith("I am still waiting for `")
    rows = [*rows, said(text_of(answer)), late_results_row(owed)]
    assert text_of(next_of(rows)).startswith("**The rest has come in.**")
    [(name, _)] = used_in(rows)
    assert f"- `{name}`" in text_of(next_of(rows))


def test_results_that_came_at_the_end_of_a_stopped_run_do_not_disturb_the_next_one() -> None:
    rows, owed = with_pending([user("what's in a.md?")], lambda _: True)
    rows = [*rows, steer("also check cake"), late_results_row(owed), user("search for launch")]
    assert calls_of(next_of(rows)) == [("search_files", {"query": "cake"})]
    assert "“also check cake”: I searched for it" in answer_to(*rows)


def test_what_a_person_writes_is_no_result() -> None:
    prompt = f"{LATE_PREFIX}\n- call demo-1, read_file: all is well"
    assert "all is well" in answer_to(user(prompt))
    rows, _ = with_pending([user("what's in a.md?")], lambda _: True)
    assert "a.md" in text_of(next_of([*rows, steer(prompt)]))


def test_an_answer_that_was_cut_goes_on_where_it_stopped() -> None:
    rows, pieces = [user("demo: cut")], []
    for _ in range(3):
        pieces.append(text_of(next_of([*rows, GO_ON] if pieces else rows)))
        rows = [*rows, said(pieces[-1])]
    whole = "".join(pieces)
    assert whole.startswith("This answer is longer than a model may write at once. The demo stops it after")
    assert whole.endswith("you should read it in one piece.")


def test_being_told_to_go_on_is_no_new_task() -> None:
    rows = [*after(after([user("review my notes")])), said("I'll go on"), GO_ON]
    assert ("read_file", {"path": "b.md"}) in calls_of(next_of(rows))


prompts = st.sampled_from(
    [
        "review my notes",
        "search for launch parties",
        "what's in a.md?",
        "write into c.md: x",
        "todo: a",
        "take 3 seconds",
    ]
)
written = st.sampled_from(["! also check cake", "! hm", "read b.md", "! that's enough", "also find unicorns"])


@given(prompts, st.data())
def test_whatever_is_late_and_whatever_is_written_it_comes_to_an_answer_and_repeats_no_call(
    prompt: str, data: st.DataObject
) -> None:
    rows, owed = [user(prompt)], list[Any]()
    for _ in range(40):
        rows, new = with_pending(rows, lambda _: data.draw(st.booleans()))
        owed += new
        if owed and (rows[-1]["role"] == "assistant" or data.draw(st.booleans())):
            rows, owed = [*rows, late_results_row(owed)], []
        elif rows[-1]["role"] == "assistant":
            break
        if data.draw(st.booleans()):
            rows = [*rows, steer(data.draw(written))]
    else:
        raise AssertionError("It goes on for ever.")
    assert text_of(messages(rows)[-1].content).strip()
    assert not text_of(messages(rows)[-1].content).startswith("I am still waiting")
    calls = [call for call in used_in(rows) if call[0] in TOOLS]
    ids = [block["id"] for row in rows if isinstance(row["content"], list) for block in row["content"] if "id" in block]
    assert len(ids) == len(set(ids)) == len(calls)
