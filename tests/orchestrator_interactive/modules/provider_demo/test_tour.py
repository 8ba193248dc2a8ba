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
    names_of,
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
from orchestrator_interactive.loop.injection_queue import Injection, injection_row, notice_row
from orchestrator_interactive.loop.tool_results import LATE_PREFIX, late_results_row, still_running_row
from orchestrator_interactive.modules.provider_demo.tour import next_step
from orchestrator_interactive.transcript.framing import Author
from orchestrator_interactive.transcript.rows import tool_row

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Row = dict[str, Any]


def test_a_review_looks_reads_and_reports_what_is_really_there() -> None:
    rows = [user("look through the notes and suggest improvements")]
    first = next_of(rows)
    assert text_of(first) == "I'll look at the files."
    assert names_of(first) == ["list_files", "todo"]
    rows = answered(rows)
    assert [given["path"] for name, given in used_in(rows) if name == "read_file"] == ["a.md", "b.md"]
    answer = rows[-1]["content"][0]["text"]
    assert "I have read **2 files**, 5 lines" in answer
    assert "3 May in `a.md:3`, 4 May in `b.md:1`" in answer
    assert "“bake a cake” (`a.md:2`)" in answer
    assert "p.png" not in answer
    assert "review.md" in answer.splitlines()[-1]


def test_a_review_of_many_files_reads_six_one_after_the_other() -> None:
    files = {f"n{n}.md": "text\n" for n in range(8)}
    rows = [user("review the files")]
    turns = []
    for _ in range(8):
        turns.append([given["path"] for name, given in calls_of(next_of(rows)) if name == "read_file"])
        rows = after(rows, files=files)
    assert turns == [[], ["n0.md"], ["n1.md"], ["n2.md"], ["n3.md"], ["n4.md"], ["n5.md"], []]


def test_the_to_do_list_follows_the_review_to_its_end() -> None:
    lists = [given["items"] for name, given in used_in(answered([user("review my notes")])) if name == "todo"]
    assert [item["status"] for item in lists[0]] == ["in_progress", "pending", "pending"]
    assert [item["status"] for item in lists[-1]] == ["done", "done", "done", "in_progress"], "the answer is written"


@pytest.mark.parametrize(
    ("prompt", "call"),
    [
        ("search for cake", ("search_files", {"query": "cake"})),
        ("please find every mention of the launch in the notes", ("search_files", {"query": "launch"})),
        ("grep “launch on”", ("search_files", {"query": "launch on"})),
        ("where is the cake mentioned? who mentions cake", ("search_files", {"query": "cake"})),
        ("what's in a.md?", ("read_file", {"path": "a.md"})),
        ("read plans/b.md", ("read_file", {"path": "plans/b.md"})),
        ("open ../secret.md", ("read_file", {"path": "../secret.md"})),
        (
            "what does it say?\n\n  (my plan.md: text/plain, 3 bytes, 1 line, stored at files/F1/my plan.md)\n  > hi",
            ("read_file", {"path": "files/F1/my plan.md"}),
        ),
        (
            "todo: buy flour, bake",
            ("todo", {"items": [{"text": t, "status": "pending"} for t in ("buy flour", "bake")]}),
        ),
        ("show my to-do list", ("todo", {"action": "show"})),
        ("write into c.md: hello", ("write_file", {"path": "c.md", "content": "hello\n", "append": False})),
        ("add “milk” to list.txt", ("write_file", {"path": "list.txt", "content": "milk\n", "append": True})),
        ("put hello world in c.md", ("write_file", {"path": "c.md", "content": "hello world\n", "append": False})),
        ("<@U1> search for cake", ("search_files", {"query": "cake"})),
    ],
)
def test_a_prompt_leads_to_the_call_it_asks_for(prompt: str, call: tuple[str, dict[str, Any]]) -> None:
    assert calls_of(next_of([user(prompt)])) == [call]


def test_what_was_answered_can_be_saved() -> None:
    rows = answered([user("review my notes")])
    answer = rows[-1]["content"][0]["text"]
    (call,) = calls_of(next_of([*rows, user("save it into review.md")]))
    assert call == ("write_file", {"path": "review.md", "content": answer + "\n", "append": False})


def test_with_nothing_to_save_it_asks_what_to_write() -> None:
    assert "What shall I write into `review.md`?" in answer_to(user("save it into review.md"))


def test_a_search_shows_the_lines_it_found() -> None:
    assert "a.md:2: - [ ] bake a cake" in answer_to(user("search for cake"))
    assert "I found nothing" in answer_to(user("search for parties"))


def test_failures_of_tools_are_reported() -> None:
    answer = answer_to(user("what's in gone.md?"))
    assert "**What did not work**" in answer
    assert "`read_file` of `gone.md`: There is no 'gone.md'." in answer


@pytest.mark.parametrize("greeting", ["hello", "help", "who are you?", "What can you do"])
def test_it_says_honestly_that_it_is_a_demo(greeting: str) -> None:
    assert "**offline demo**" in answer_to(user(greeting))


@pytest.mark.parametrize(
    ("words", "query"),
    [
        ("also check the launch", "launch"),
        ("Focus on the cake, please", "cake"),
        ("what about cake?", "cake"),
        ("don\u2019t forget the launch!", "launch"),
        ("Ana: also search for cake", "cake"),
        ("also the cake", "cake"),
    ],
)
def test_a_wish_in_between_is_searched_for_at_the_next_turn_and_leads_the_answer(words: str, query: str) -> None:
    rows = [*after(after([user("review my notes")])), steer(words)]
    assert calls_of(next_of(rows)) == [("search_files", {"query": query})]
    rows = answered(rows)
    answer = rows[-1]["content"][0]["text"]
    assert answer.startswith(f"**“{query}”**")
    assert f"**While I was working you also wrote:**\n- “{words}”: I searched for it" in answer
    assert ("read_file", {"path": "b.md"}) in used_in(rows)


@pytest.mark.parametrize("words", ["stop reading", "skip the rest", "that's enough"])
def test_told_that_it_is_enough_it_answers_with_what_it_has(words: str) -> None:
    rows = [*after(after([user("review my notes")])), steer(words)]
    blocks = next_of(rows)
    assert names_of(blocks) == []
    assert "**1 file**" in text_of(blocks)
    assert "Not read: `b.md`" in text_of(blocks)
    assert f"“{words}”: I stopped there" in text_of(blocks)


def test_every_message_in_between_is_quoted_with_what_came_of_it() -> None:
    rows = [*after([user("review my notes")]), steer("also check cake", "Bo: nice\nweather", "read b.md")]
    rows = [*after(rows), steer("also look for unicorns")]
    answer = answer_to(*rows)
    for quoted in (
        "“also check cake”: I searched",
        "“Bo: nice weather”: I have read it",
        "“read b.md”: I read it",
        "`b.md`, 2 lines:\n```\nThe launch",
    ):
        assert quoted in answer
    assert "**“unicorns”**: I found nothing" in answer
    assert "“also look for unicorns”: I searched for it." in answer


def test_what_is_written_after_the_answer_is_answered_alone() -> None:
    rows = [*answered([user("review my notes")]), steer("also check the cake", "and thanks!")]
    assert calls_of(next_of(rows)) == [("search_files", {"query": "cake"})]
    answer = answer_to(*rows)
    assert answer.startswith("**“cake”**")
    assert "I have read **" not in answer
    assert "“and thanks!”" in answer


def test_a_question_after_the_answer_is_understood_like_a_prompt() -> None:
    rows = [*answered([user("review my notes")]), steer("what's in b.md?")]
    assert calls_of(next_of(rows)) == [("read_file", {"path": "b.md"})]


def test_text_whose_calls_were_cut_away_is_no_answer() -> None:
    rows = [user("review my notes"), said("I'll look at the files."), steer("also check cake")]
    assert calls_of(next_of(rows)) == [("search_files", {"query": "cake"})]
    assert "list_files" in [name for name, _ in used_in(answered(rows))]


def test_continue_takes_up_the_task_that_was_stopped() -> None:
    rows = [*after(after([user("review my notes")])), user("go on, please")]
    assert ("read_file", {"path": "b.md"}) in calls_of(next_of(rows))


def test_messages_left_over_from_a_stopped_run_belong_to_the_next_prompt() -> None:
    rows = [*after([user("review my notes")]), steer("also check cake"), user("search for launch")]
    assert {given["query"] for _, given in calls_of(next_of(rows))} == {"cake"}
    assert "“also check cake”: I searched for it" in answer_to(*rows)


def test_a_notice_is_not_taken_for_a_prompt() -> None:
    rows = [user("search for cake"), notice_row(["A worker is done."])]
    assert calls_of(next_of(rows)) == [("search_files", {"query": "cake"})]


@pytest.mark.parametrize(
    "prompt", ["review my notes", "search for cake", "read a.md", "write into c.md: x", "todo: a, b", "who are you?"]
)
def test_without_tools_it_answers_in_text(prompt: str) -> None:
    blocks = next_of([user(prompt)], tools=())
    assert names_of(blocks) == []
    assert text_of(blocks)


def test_with_some_of_the_tools_it_does_what_they_allow() -> None:
    rows = answered([user("review my notes")], tools=("list_files", "read_file"))
    assert {name for name, _ in used_in(rows)} == {"list_files", "read_file"}
    assert "**2 files**" in rows[-1]["content"][0]["text"]


words = st.sampled_from(
    [
        *(
            "review",
            "notes",
            "a.md",
            "search for",
            "cake",
            "wait 3 seconds",
            "also",
            "check",
            "stop",
            "my name is",
            "Zoë",
        ),
        *("todo:", "save it into", "“", "\n- ", "  x", "?", "read", "focus on", "Ana: ", "🎂", ",", "go on", "\u2028"),
    ]
)
prompts = st.one_of(st.lists(words, min_size=1, max_size=6).map(" ".join), st.text(max_size=40))
row_kinds = st.one_of(
    prompts.map(user),
    prompts.filter(str.strip).map(steer),
    prompts.map(said),
    prompts.map(lambda text: {"role": "assistant", "content": text}),
    prompts.map(lambda text: {"role": "system", "content": text}),
    st.just({"role": "assistant", "content": []}),
)


@given(st.lists(row_kinds, max_size=6), st.sets(st.sampled_from(TOOLS)), st.integers(0, 4))
def test_whatever_was_said_it_comes_to_an_answer_and_repeats_no_call(
    history: list[Row], tools: set[str], turns: int
) -> None:
    rows = list(history)
    for _ in range(turns):
        rows = after(rows, sorted(tools))
    rows = answered([*rows, steer("also check the cake")], sorted(tools))
    assert text_of(messages(rows)[-1].content).strip()
    ids = [block["id"] for row in rows if isinstance(row["content"], list) for block in row["content"] if "id" in block]
    assert len(ids) == len(set(ids))
    assert {name for name, _ in used_in(rows)} <= tools


@given(st.lists(row_kinds, max_size=6))
def test_the_same_conversation_leads_to_the_same_step(history: list[Row]) -> None:
    assert next_of(history) == next_of(history)


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


def test_while_a_tool_is_at_work_it_does_what_was_written_and_then_waits() -> None:
    rows, owed = with_pending([user("what's in a.md?")], lambda _: True)
    rows = [*rows, steer("! also check the launch")]
    assert calls_of(next_of(rows)) == [("search_files", {"query": "launch"})]
    rows = after(rows)
    waiting = next_of(rows)
    assert calls_of(waiting) == []
    assert text_of(waiting).startswith("I am still waiting for `read_file` of `a.md`; then I continue.")
    assert "“! also check the launch”, at once: I searched for it." in text_of(waiting)
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
    assert answer_to(user(prompt))
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


tasks = st.sampled_from(
    [
        "review my notes",
        "search for launch parties",
        "what's in a.md?",
        "write into c.md: x",
        "todo: a",
        "take 3 seconds",
        "demo: call list_files",
        "demo: table",
        "demo: cut",
    ]
)
written = st.sampled_from(
    ["! demo: call list_files", "! also check cake", "! hm", "read b.md", "! that's enough", "also find unicorns"]
)


@given(tasks, st.data())
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


def test_the_calls_of_another_loop_are_read_from_their_field() -> None:
    function = {"name": "search_files", "arguments": '{"query": "cake"}'}
    call = {"role": "assistant", "content": "", "tool_calls": [{"id": "x1", "type": "function", "function": function}]}
    result = {"role": "tool", "tool_call_id": "x1", "content": "a.md:2: bake a cake"}
    assert "a.md:2: bake a cake" in answer_to(user("search for cake"), call, result)


def test_an_urgent_question_is_answered_at_once_from_what_is_known() -> None:
    rows = answered([user("look through the notes")])[:-1]
    asked = [*rows, steer("! what is the launch date?")]
    reply = next_of(asked)
    assert text_of(reply).startswith("You also mention “launch date”: nothing in what I have read so far")
    assert calls_of(reply) == [("search_files", {"query": "launch date"})]
    known = text_of(next_of([*rows, steer("! what about the launch?")]))
    assert known.startswith("You also mention “launch”: \n- a.md:3: ")


@pytest.mark.parametrize(
    ("command", "call"),
    [
        ('demo: call roll_dice {"sides": 6}', ("roll_dice", {"sides": 6})),
        ("demo: call `roll_dice` `{“sides”: 6}`", ("roll_dice", {"sides": 6})),
        ("Demo:call roll_dice", ("roll_dice", {})),
        ('demo: call roll_dice {"text": "“hi” `x`"}', ("roll_dice", {"text": "“hi” `x`"})),
    ],
)
def test_a_prompt_can_call_any_tool_and_reads_its_result(command: str, call: tuple[str, Any]) -> None:
    rows = [user(command)]
    [block] = next_of(rows, ["roll_dice"])
    assert calls_of([block]) == [call]
    made = ToolCall(id=block.id, name="roll_dice", arguments={})
    rows += [{"role": "assistant", "content": [block.model_dump()]}, tool_row(made, "4")]
    assert text_of(next_of(rows, ["roll_dice"])) == "`roll_dice` returned:\n```\n4\n```"


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("demo: call roll {}", "There is no tool `roll`. The tools of this agent are: `roll_dice`."),
        ("demo: call roll_dice {sides: 6}", "The arguments of `roll_dice` are not JSON: Expecting property name"),
        ("demo: call roll_dice [6]", "The arguments of `roll_dice` must be a JSON object, such as"),
        *(
            (f'demo: call roll_dice {{"sides": {value}}}', "The arguments of `roll_dice` are not JSON: ")
            for value in ("NaN", "1e999", "-Infinity", '"\\ud800"', "[" * 3000, "[" * 300 + "]" * 300)
        ),
        ("demo: tabl", "There is no `demo: tabl`. There are: `demo: table`, `demo: code`, "),
    ],
)
def test_a_call_that_cannot_be_made_gets_the_reason(command: str, reason: str) -> None:
    assert text_of(next_of([user(command)], ["roll_dice"])).startswith(reason)


@pytest.mark.parametrize(("command", "part"), [("table", "|---|"), ("code", "```python"), ("long", "Paragraph 40")])
def test_the_demo_shows_how_answers_look(command: str, part: str) -> None:
    for prompt in (f"demo: {command}", f"Demo:{command.upper()}"):
        assert part in text_of(next_of([user(prompt)]))


def test_a_call_whose_input_a_hook_changed_is_not_repeated() -> None:
    rows = after([user('demo: call roll_dice {"sides": 6}')], ["roll_dice"])
    rows[1]["content"][0]["input"] = {"sides": 20}
    assert text_of(next_of(rows, ["roll_dice"])) == "`roll_dice` returned:\n```\nDone.\n```"


@pytest.mark.parametrize(
    ("command", "beginning", "rest"),
    [
        ("long", "**Paragraph 1.** A long", "**Paragraph 1.**"),
        ("long", text_of(next_of([user("demo: long")])).partition("paragraph 3 of")[0], "**Paragraph 3.**"),
        ("table", "What a", "What a model call costs"),
        ("code", "This tool adds two numbers; `inl", "This tool adds"),
        ("cut", "This answer is", "This answer is longer than"),
    ],
)
@pytest.mark.parametrize("tools", [TOOLS, ()])
def test_an_urgent_question_in_a_sample_is_answered_at_once_and_the_sample_goes_on(
    command: str, beginning: str, rest: str, tools: Sequence[str]
) -> None:
    rows = [user(f"demo: {command}"), said(beginning), steer("! how far are you?")]
    if tools:
        reply = next_of(rows, tools)
        assert text_of(reply) == "You also wrote “how far are you?”. I go on."
        assert names_of(reply) == ["todo"], "a text with a call is posted at once"
    answer = answer_to(*rows, tools=tools)
    note, _, sample = answer.partition("\n\n")
    assert "“! how far are you?”, at once: I have read it." in note
    assert sample.startswith(rest)
    assert text_of(next_of([user(f"demo: {command}")])).rpartition("\n\n")[2] in sample


def test_enough_ends_a_sample() -> None:
    answer = answer_to(user("demo: long"), said("**Paragraph 1.** A"), steer("! that's enough"))
    assert "I stopped there" in answer
    assert "Paragraph" not in answer


def test_a_message_between_the_parts_of_a_truncated_answer_belongs_to_it() -> None:
    first = text_of(next_of([user("demo: cut")]))
    answer = answer_to(user("demo: cut"), said(first), steer("also check the cake"))
    assert answer.startswith("**“cake”**: 1 line")
    assert answer.endswith("you should read it in one piece.")


def test_what_is_written_while_a_commanded_tool_works_is_answered() -> None:
    call, tools = user('demo: call slow {"s": 8}'), ("slow", "search_files")
    [block] = next_of([call], tools)
    made = ToolCall(id=block.id, name="slow", arguments={"s": 8})
    rows = [call, {"role": "assistant", "content": [block.model_dump()]}, still_running_row(made)]
    rows = answered([*rows, steer("! how far are you?")], tools)
    assert rows[-1]["content"][0]["text"].startswith("I am still waiting for `slow`; then I continue.")
    assert "“! how far are you?”, at once: I have read it" in rows[-1]["content"][0]["text"]
    rows = answered([*rows, steer("also check the cake")], tools)
    assert ("search_files", {"query": "cake"}) in used_in(rows)
    answer = answer_to(*rows, late_results_row([tool_row(made, "slept")]), tools=tools)
    assert answer.startswith("**“cake”**: 1 line")
    assert answer.endswith("`slow` returned:\n```\nslept\n```")


def test_an_urgent_command_runs_its_tool_and_ends_the_waiting_truthfully() -> None:
    rows = [user("take 20 seconds"), said("I am taking"), steer("! demo: call list_files")]
    assert calls_of(next_of(rows)) == [("list_files", {})]
    answer = answer_to(*rows)
    assert "`list_files` returned:\n```\na.md (" in answer
    assert "I stopped waiting, because you wrote." in answer
    assert "I am done waiting" not in answer


def test_a_message_from_before_the_waiting_does_not_shorten_it() -> None:
    rows = [steer("also check the cake"), user("take 20 seconds")]
    assert next_step(messages(answered(rows)[:-1]), TOOLS).wait_s == 20


@pytest.mark.parametrize("command", ["fail", "stall", "refuse"])
def test_an_ending_is_over_once_a_person_wrote_on(command: str) -> None:
    assert f"`demo: {command}` is over" in answer_to(user(f"demo: {command}"), steer("! go on with it"))
