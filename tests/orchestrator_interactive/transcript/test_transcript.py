"""Rows of a conversation, valid or not, become valid messages of a request, which grow only at their tail."""

import copy
from typing import Any

import pytest
from agents import ScriptedProvider, ScriptedTool, echo
from hypothesis import given
from hypothesis import strategies as st
from loop_rows import injection_row
from structlog.testing import capture_logs

from orchestrator_interactive import Injection
from orchestrator_interactive.kernel.contracts.messages import (
    ChatRequest,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolCallBlock,
)
from orchestrator_interactive.kernel.contracts.models import sendable
from orchestrator_interactive.kernel.contracts.request_validation import problems_of
from orchestrator_interactive.transcript.answer_parts import mark_partial
from orchestrator_interactive.transcript.rows import assistant_row, tool_row, user_row
from orchestrator_interactive.transcript.transcript import NO_RESULT, RequestBuilder, Transcript, normalised, unreadable

Row = dict[str, Any]
USER = user_row("Hello")
SIGNED = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
LONE_SURROGATE = "\ud83d"


def _called(*call_ids: str, name: str = "t") -> Row:
    blocks = [{"type": "tool_call", "id": call_id, "name": name, "input": {}} for call_id in call_ids]
    return {"role": "assistant", "content": blocks}


def _beside(*call_ids: str) -> Row:
    calls = [{"id": i, "type": "function", "function": {"name": "t", "arguments": "{}"}} for i in call_ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def _result(call_id: str, content: Any = "done") -> Row:
    return {"role": "tool", "tool_call_id": call_id, "name": "t", "content": content}


def _sent(rows: list[Row], transcript: Transcript | None = None) -> list[Row]:
    messages = (transcript or Transcript()).messages(rows)
    return [message.model_dump(exclude_none=True) for message in messages]


def _shape(rows: list[Row]) -> list[tuple[str, str]]:
    """The roles, each with the call that it answers or the calls that it makes."""
    return [
        (row["role"], row.get("tool_call_id") or ",".join(b["id"] for b in row["content"] if "input" in b))
        for row in rows
        if row["role"] in {"assistant", "tool"}
    ]


def test_a_valid_conversation_is_unchanged_and_logs_nothing() -> None:
    call = ToolCall(id="a", name="t", arguments={"text": "hi"})
    thought = ThinkingBlock(thinking="Hm.", signature="s")
    rows = [USER, assistant_row([thought, ToolCallBlock(id="a", name="t", input={"text": "hi"})], [call])]
    rows.append(tool_row(call, "no", failed=True))
    with capture_logs() as logs:
        assert _sent(rows) == rows
    assert logs == []


class TestCallsAndResults:
    def test_a_call_without_a_result_gets_one_that_says_so(self) -> None:
        sent = _sent([USER, _called("a", "b"), _result("b"), USER])
        assert _shape(sent) == [("assistant", "a,b"), ("tool", "b"), ("tool", "a")]
        assert (sent[3]["content"], sent[3]["metadata"]) == (NO_RESULT, {"is_error": True})

    def test_the_note_of_a_missing_result_is_replaced_by_the_result(self) -> None:
        transcript, rows = Transcript(), [USER, _called("a")]
        assert _sent(rows, transcript)[-1]["content"] == NO_RESULT
        assert _sent([*rows, _result("a")], transcript)[-1]["content"] == "done"

    @pytest.mark.parametrize("calls", [_called("a"), _beside("a")])
    def test_a_result_after_other_rows_moves_to_its_call(self, calls: Row) -> None:
        sent = _sent([USER, calls, {"role": "system", "content": "Mind."}, USER, _result("a")])
        assert [row["role"] for row in sent] == ["user", "assistant", "tool", "system", "user"]

    @pytest.mark.parametrize(("call_id", "result"), [("a", _result("a")), ("", {"role": "tool", "content": "done"})])
    def test_a_late_result_replaces_the_note_before_other_rows(self, call_id: str, result: Row) -> None:
        transcript, rows = Transcript(), [USER, _called(call_id), USER]
        assert _sent(rows, transcript)[2]["content"] == NO_RESULT
        sent = _sent([*rows, result], transcript)
        assert [row["content"] for row in sent[2:]] == ["done", "Hello"]

    @pytest.mark.parametrize("rows", [[_result("a")], [_called("a"), _result("a"), _result("a")]])
    def test_a_result_without_a_call_is_left_out(self, rows: list[Row]) -> None:
        transcript = Transcript()
        assert _sent([USER, *rows, USER], transcript) == [USER, *rows[:-1], USER]
        assert transcript.problems == ["result without a call"]

    def test_results_in_a_user_message_become_messages_of_their_own(self) -> None:
        nested = {"type": "tool_result", "tool_call_id": "a", "output": {"n": 1}}
        sent = _sent([USER, _called("a"), {"role": "user", "content": [nested, {"type": "text", "text": "And?"}]}])
        assert [row["role"] for row in sent] == ["user", "assistant", "tool", "user"]
        assert (sent[2]["tool_call_id"], sent[2]["content"]) == ("a", [nested])

    def test_a_row_with_the_role_function_is_a_result(self) -> None:
        sent = _sent([USER, _called("a"), {"role": "function", "tool_call_id": "a", "content": "done"}])
        assert sent[-1] == {"role": "tool", "tool_call_id": "a", "content": "done"}

    def test_a_result_without_content_says_that_there_is_none(self) -> None:
        assert _sent([USER, _called("a"), _result("a", " \n")])[-1]["content"] == "(no output)"


class TestCallIds:
    def test_a_repeated_id_in_an_answer_is_renamed(self) -> None:
        sent = _sent([USER, _called("a", "a"), _result("a", "first"), _result("a", "second")])
        assert _shape(sent) == [("assistant", "a,a-2"), ("tool", "a"), ("tool", "a-2")]
        assert [row["content"] for row in sent[2:]] == ["first", "second"]

    def test_a_repeated_id_in_a_later_answer_is_renamed(self) -> None:
        once = [_called("a"), _result("a")]
        sent = _sent([USER, *once, *once, *once])
        assert [call_id for _, call_id in _shape(sent)] == ["a", "a", "a-2", "a-2", "a-3", "a-3"]

    def test_a_call_in_both_places_is_renamed_in_both(self) -> None:
        both = {**_called("a", "a"), "tool_calls": _beside("a", "a")["tool_calls"]}
        [_, sent, *_] = _sent([USER, both, _result("a"), _result("a")])
        assert [call["id"] for call in sent["content"]] == [call["id"] for call in sent["tool_calls"]] == ["a", "a-2"]

    def test_a_result_belongs_to_the_last_call_with_its_id(self) -> None:
        sent = _sent([USER, _called("a"), USER, _called("a"), _result("a")])
        assert [row["content"] for row in sent if row["role"] == "tool"] == [NO_RESULT, "done"]

    def test_a_blank_id_is_replaced(self) -> None:
        sent = _sent([USER, _called("", ""), _result("", "first"), {"role": "tool", "content": "second"}])
        assert _shape(sent) == [("assistant", "call,call-2"), ("tool", "call"), ("tool", "call-2")]

    def test_the_rows_keep_their_ids(self) -> None:
        rows = [USER, _beside("a", "a"), _result("a"), _result("a")]
        before = copy.deepcopy(rows)
        _sent(rows)
        assert rows == before

    def test_a_builder_knows_the_ids_of_the_conversation(self) -> None:
        builder = RequestBuilder(ScriptedProvider(), {})
        passing = [_called("passing")]
        builder.build([USER, _called("a", "a"), _result("a"), _result("a")], passing, tools_allowed=True)
        assert [builder.is_used(call_id) for call_id in ("a", "a-2", "b", "passing")] == [True, True, False, False]


class TestContent:
    @pytest.mark.parametrize("content", [[], "", None, " \n", [{"type": "thinking", "thinking": "cut"}], [SIGNED]])
    def test_an_answer_without_content_is_left_out(self, content: Any) -> None:
        assert _sent([USER, {"role": "assistant", "content": content}, USER]) == [USER, USER]

    def test_blank_text_and_unsigned_thinking_are_left_out_of_an_answer(self) -> None:
        blocks = [
            {"type": "thinking", "thinking": "cut"},
            {"type": "text", "text": " "},
            {"type": "text", "text": "Yes."},
        ]
        assert _sent([USER, {"role": "assistant", "content": blocks}, USER])[1]["content"] == [blocks[-1]]

    def test_thinking_after_the_last_text_is_left_out(self) -> None:
        said = {"type": "text", "text": "Yes."}
        redacted = {"type": "redacted_thinking", "data": "x"}
        for more in ([SIGNED], [SIGNED, redacted]):
            answer = {"role": "assistant", "content": [SIGNED, said, *more]}
            assert _sent([USER, answer, USER])[1]["content"] == [SIGNED, said]

    def test_thinking_stays_before_a_call_beside_it(self) -> None:
        [_, sent, *_] = _sent([USER, {**_beside("a"), "content": [SIGNED]}, _result("a")])
        assert sent["content"] == [SIGNED]

    def test_unsendable_characters_are_removed_everywhere(self) -> None:
        answer = _called("a")
        answer["content"][0]["input"] = {"text": [f"x{LONE_SURROGATE}"], "n": float("nan")}
        sent = _sent([user_row("Hi\x00!"), answer, _result("a", [{"type": "text", "text": "a\x07b"}])])
        assert sent[0]["content"] == "Hi!"
        assert sent[1]["content"][0]["input"] == {"text": ["x"], "n": "nan"}
        assert sent[2]["content"] == [{"type": "text", "text": "ab"}]

    def test_a_call_without_a_name_gets_one(self) -> None:
        call = ToolCall(id="a", name="", arguments={})
        sent = _sent([USER, assistant_row([], [call]), tool_row(call, "There is no tool ''.")])
        assert sent[1]["content"][0]["name"] == sent[1]["tool_calls"][0]["function"]["name"] == "unnamed"
        assert "name" not in sent[2]

    def test_unreadable_rows_and_blocks_are_left_out(self) -> None:
        transcript = Transcript()
        blocks = [{"type": "server_tool_use", "id": "x"}, {"type": "text", "text": "Hi."}]
        rows = [USER, {"role": "assistant", "content": blocks}, {"role": "somebody", "content": "?"}, USER]
        assert [row["content"] for row in _sent(rows, transcript)] == ["Hello", blocks[1:], "Hello"]
        assert transcript.problems == ["a row, or a part of one, that cannot be read"] * 2

    def test_a_result_that_is_data_is_read_as_json(self) -> None:
        assert _sent([USER, _called("a"), _result("a", {"n": 1})])[-1]["content"] == '{"n": 1}'

    def test_only_the_error_flag_of_the_metadata_is_sent(self) -> None:
        metadata = {"is_error": True, "whole": "long", "usage": {"input_tokens": 1}}
        rows = [{**USER, "metadata": {"injections": ["m"]}}, _called("a"), {**_result("a"), "metadata": metadata}]
        sent = _sent(rows)
        assert [row.get("metadata") for row in sent] == [None, None, {"is_error": True}]


class TestGrowing:
    def test_the_returned_list_is_a_copy(self) -> None:
        transcript = Transcript()
        transcript.messages([USER]).clear()
        assert len(transcript.messages([USER])) == 1

    @pytest.mark.parametrize("copied", [list, tuple, copy.deepcopy])
    def test_messages_of_equal_rows_are_reused(self, copied: Any) -> None:
        transcript, rows = Transcript(), [USER, _called("a"), _result("a")]
        before = transcript.messages(rows)
        assert [id(message) for message in transcript.messages(copied(rows))] == [id(message) for message in before]

    @pytest.mark.parametrize("seen", [0, 1, 4])
    def test_a_refused_task_is_left_out_also_if_its_rows_were_read_before(self, seen: int) -> None:
        transcript = Transcript()
        transcript.messages([user_row(str(number)) for number in range(seen)])
        refused = {"role": "assistant", "content": [{"type": "text", "text": "I"}], "metadata": {"refused": True}}
        sent = _sent([user_row("one"), user_row("two"), refused], transcript)
        assert sent[0] == user_row("one")
        assert "refused" in sent[1]["content"]
        assert len(sent) == 2

    @pytest.mark.parametrize("steered", [False, True])
    @pytest.mark.parametrize("prompts", [["bad"], []])
    def test_a_summary_of_earlier_tasks_stays_if_one_was_refused(self, prompts: list[str], *, steered: bool) -> None:
        note = {**user_row("[Summary]"), "metadata": {"left_out": 3}}
        meanwhile = [injection_row([Injection("more")])] if steered else []
        refused = {"role": "assistant", "content": "I", "metadata": {"refused": True}}
        sent = _sent([note, *map(user_row, prompts), *meanwhile, refused, user_row("next")])
        assert [row["content"] for row in sent[::2]] == ["[Summary]", "next"]
        assert "refused" in sent[1]["content"]

    def test_a_malformed_row_is_no_prompt(self) -> None:
        refused = {"role": "assistant", "content": "I", "metadata": {"refused": True}}
        odd: list[Any] = [None, "user", {"role": ["user"]}, {"content": "x"}]
        assert len(_sent([user_row("one"), user_row("two"), *odd, refused])) == 2

    @pytest.mark.parametrize(
        ("reason", "between", "is_continued"),
        [
            ("length", [], True),
            ("stopped", [{"role": "system", "content": "Be brief."}], True),
            ("length", [USER], False),
            (None, [], False),
        ],
    )
    def test_the_request_of_an_answer_that_continues_a_cut_one_stays(
        self, reason: Any, between: list[Row], *, is_continued: bool
    ) -> None:
        rows = [USER, mark_partial(assistant_row([TextBlock(text="One, ")]), reason), *between]
        transcript = Transcript()
        asked = _sent(rows, transcript)
        rows.append(assistant_row([TextBlock(text="two.")]))
        sent = _sent([*rows, USER], transcript)
        assert [row["content"] for row in sent].count(GO_ON) == is_continued
        assert GO_ON not in [message.content for message in normalised(rows)]
        assert (sent[: len(asked)] == asked) == (is_continued or between == [USER])

    def test_nothing_is_continued_if_nothing_is_left_of_a_cut_answer(self) -> None:
        cut: Row = mark_partial({"role": "assistant", "content": ""}, "length")
        assert [row["role"] for row in _sent([USER, cut, _called("a"), _result("a")])] == ["user", "assistant", "tool"]

    def test_a_repair_is_logged_once(self) -> None:
        transcript, rows = Transcript(), [USER, _result("a"), USER]
        with capture_logs() as logs:
            _sent(rows, transcript)
            _sent(rows[1:], transcript)
        told = {"event": "request.repaired", "log_level": "warning", "problem": "result without a call", "where": "a"}
        assert logs == [told]


class TestRequests:
    def test_ephemeral_rows_are_in_one_request_only_and_are_repaired_too(self) -> None:
        builder = RequestBuilder(ScriptedProvider(), {})
        passing = [{"role": "system", "content": ""}, {"role": "assistant", "content": "I am to be brief."}]
        request = builder.build([USER, _called("a")], passing, tools_allowed=True)
        said = [message.content for message in request.messages[2:]]
        assert said == [NO_RESULT, "I am to be brief.", "[Go on.]"]
        later = builder.build([USER, _called("a"), _result("a")], tools_allowed=True)
        assert [message.content for message in later.messages[2:]] == ["done"]

    @pytest.mark.parametrize("rows", [[], [{"role": "system", "content": "Be brief."}]])
    def test_a_request_without_a_user_message_ends_in_go_on(self, rows: list[Row]) -> None:
        request = RequestBuilder(ScriptedProvider(), {}).build(rows, tools_allowed=True)
        assert request.messages[-1].content == "[Go on.]"
        assert problems_of(request) == []

    def test_tools_are_declared_with_their_schemas(self) -> None:
        tool = echo()
        request = RequestBuilder(ScriptedProvider(), {"echo": tool}).build([], tools_allowed=True)
        assert [(spec.name, spec.description, spec.parameters) for spec in request.tools or ()] == [
            ("echo", tool.description, tool.input_schema)
        ]

    @pytest.mark.parametrize(("can_choose", "declared", "choice"), [(True, 1, "none"), (False, 0, None)])
    def test_disallowed_tools_stay_declared_if_the_provider_has_tool_choice(
        self, can_choose: bool, declared: int, choice: str | None
    ) -> None:
        builder = RequestBuilder(ScriptedProvider(tool_choice=can_choose), {"echo": echo()})
        request = builder.build([USER], tools_allowed=False)
        assert (len(request.tools or ()), request.tool_choice) == (declared, choice)
        assert builder.build([USER], tools_allowed=True).tool_choice is None

    def test_no_tools_are_declared_as_none(self) -> None:
        request = RequestBuilder(ScriptedProvider(), {}).build([], tools_allowed=False)
        assert (request.tools, request.tool_choice) == (None, None)

    def test_a_tool_without_a_name_is_not_offered(self) -> None:
        builder = RequestBuilder(ScriptedProvider(), {"": ScriptedTool("", echo().execute), "echo": echo()})
        assert [spec.name for spec in builder.build([USER], tools_allowed=True).tools or ()] == ["echo"]


@pytest.mark.parametrize("row", [USER, _called("a"), _beside("a"), _result("a")])
def test_a_row_of_the_contract_is_readable(row: Row) -> None:
    assert unreadable(row) is None


@pytest.mark.parametrize(
    "row",
    [None, "text", {}, {"role": "somebody", "content": ""}, {**USER, "content": [7]}, {**USER, "tool_calls": [{}]}],
)
def test_a_malformed_row_is_unreadable(row: Any) -> None:
    assert unreadable(row) is not None


GO_ON = "[Go on.]"
HALF_A_PAIR = "\ud83d"
IDS = st.sampled_from(["a", "b", "c", "a-2"])
ODD_IDS = IDS | st.sampled_from(["", " ", HALF_A_PAIR, None])
TEXTS = st.sampled_from(["hello", "", " \n", "x\x00y", HALF_A_PAIR, "\x07", "NaN"])
NAMES = st.sampled_from(["t", "", " ", HALF_A_PAIR])
INPUTS = st.sampled_from([{}, {"text": "hi"}, {"text": [HALF_A_PAIR]}, {"n": float("nan")}, {HALF_A_PAIR: 1}])


def _fields(**strategies: st.SearchStrategy[Any]) -> st.SearchStrategy[Row]:
    return st.fixed_dictionaries(strategies)


def _block(kind: str, **strategies: st.SearchStrategy[Any]) -> st.SearchStrategy[Row]:
    return _fields(type=st.just(kind), **strategies)


CALLED = _block("tool_call", id=IDS, name=st.just("t"), input=st.just({}))
BESIDE = st.builds(lambda i: {"id": i, "type": "function", "function": {"name": "t", "arguments": "{}"}}, IDS)
SIGNED_BLOCKS = st.just({"type": "thinking", "thinking": "hm", "signature": "s"})
SOUND_BLOCKS = st.one_of(st.just({"type": "text", "text": "hello"}), SIGNED_BLOCKS, CALLED)
ODD_BLOCKS = st.one_of(
    _block("text", text=TEXTS | st.none()),
    _block("thinking", thinking=TEXTS, signature=st.sampled_from(["s", "", None])),
    _block("thinking", thinking=TEXTS, content=st.just(["state"])),
    _block("redacted_thinking", data=st.just("x")),
    _block("reasoning", content=st.just([]), summary=st.just([])),
    _block("tool_call", id=ODD_IDS, name=NAMES, input=INPUTS),
    _block("tool_result", tool_call_id=IDS, output=st.none() | TEXTS | INPUTS),
    _block("image", source=st.just({"type": "url"})),
    st.sampled_from([None, "text", 7, {}, {"type": "server_tool_use", "id": "a"}]),
)
ODD_CALLS = st.one_of(
    BESIDE,
    _fields(id=ODD_IDS, function=_fields(name=NAMES, arguments=TEXTS)),
    _fields(id=ODD_IDS, name=NAMES, arguments=INPUTS),
    st.sampled_from([None, "a", {}, {"id": "a"}]),
)


def _in_both_places(role: str, call_id: str, name: str, arguments: Any) -> Row:
    block = {"type": "tool_call", "id": call_id, "name": name, "input": {}}
    call = {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}
    return {"role": role, "content": [block], "tool_calls": [call]}


ODD_CONTENT = st.one_of(
    TEXTS, st.none(), st.lists(SOUND_BLOCKS | ODD_BLOCKS, max_size=4), st.sampled_from([7, {"n": 1}])
)
METADATA = st.sampled_from([None, 7, {"usage": {}}, {"is_error": True}, {"partial": "length"}])
ROLES = st.sampled_from(["system", "developer", "user", "assistant", "tool", "function", "human", None])
SOUND_ROWS = st.one_of(
    st.sampled_from([{"role": "user", "content": "hi"}, {"role": "system", "content": "be good"}]),
    _fields(role=st.just("assistant"), content=st.lists(SOUND_BLOCKS, max_size=3)),
    _fields(role=st.just("assistant"), content=st.none(), tool_calls=st.lists(BESIDE, min_size=1, max_size=2)),
    _fields(role=st.just("tool"), tool_call_id=IDS, name=st.just("t"), content=st.just("done")),
)
ODD_ROWS = st.one_of(
    _fields(role=ROLES, content=ODD_CONTENT),
    _fields(role=st.just("assistant"), content=ODD_CONTENT, tool_calls=st.none() | st.lists(ODD_CALLS, max_size=3)),
    _fields(role=ROLES, content=ODD_CONTENT, tool_calls=st.lists(ODD_CALLS, max_size=2)),
    st.builds(_in_both_places, st.sampled_from(["user", "assistant"]), IDS, NAMES, TEXTS | INPUTS),
    _fields(role=st.sampled_from(["tool", "function"]), tool_call_id=ODD_IDS, name=NAMES, content=ODD_CONTENT),
    _fields(role=ROLES, content=ODD_CONTENT, metadata=METADATA),
    st.sampled_from([None, "hi", {}, {"content": "hi"}]),
)
ROWS = st.lists(st.one_of(SOUND_ROWS, SOUND_ROWS, ODD_ROWS), max_size=14)


def _builder(*, can_choose: bool = True) -> RequestBuilder:
    return RequestBuilder(ScriptedProvider(tool_choice=can_choose), {"t": echo("t")})


def _wire(request: ChatRequest) -> list[str]:
    return [message.model_dump_json(exclude_none=True) for message in request.messages]


def _lasting(request: ChatRequest) -> list[str]:
    """The messages that the next request begins with: not the results of calls that still wait for theirs."""
    messages = list(request.messages)
    while messages and (messages[-1].content in {GO_ON, NO_RESULT} if isinstance(messages[-1].content, str) else False):
        messages.pop()
    return _wire(request)[: len(messages)]


def _comes_late(rows: list[Row], cut: int, request: ChatRequest) -> bool:
    """Whether a row after the cut may be the result of a call that has none in the request."""
    results = [row for row in rows[cut:] if isinstance(row, dict) and (row.get("role") in {"tool", "function"})]
    nested = "tool_result" in str(rows[cut:])
    return (bool(results) or nested) and any(message.content == NO_RESULT for message in request.messages)


@given(ROWS, ROWS, st.booleans(), st.booleans())
def test_every_request_is_valid(rows: list[Row], passing: list[Row], tools_allowed: bool, can_choose: bool) -> None:
    request = _builder(can_choose=can_choose).build(rows, passing, tools_allowed=tools_allowed)
    assert problems_of(request) == []


@given(ROWS, st.data())
def test_a_growing_transcript_equals_a_new_one_and_is_valid_at_every_step(rows: list[Row], data: st.DataObject) -> None:
    grown = _builder()
    cuts = sorted(data.draw(st.sets(st.integers(0, len(rows)))))
    for cut in [*cuts, len(rows)]:
        request = grown.build(rows[:cut], tools_allowed=True)
        assert _wire(request) == _wire(_builder().build(rows[:cut], tools_allowed=True))
        assert problems_of(request) == []


@given(ROWS, st.data())
def test_a_request_begins_with_the_lasting_messages_of_the_one_before(rows: list[Row], data: st.DataObject) -> None:
    builder = _builder()
    cut = data.draw(st.integers(0, len(rows)))
    before = builder.build(rows[:cut], tools_allowed=True)
    lasting = _lasting(before)
    after = _wire(builder.build(rows, tools_allowed=True))
    assert after[: len(lasting)] == lasting or _comes_late(rows, cut, before)


@given(ROWS, ROWS, st.data())
def test_rows_that_were_replaced_are_read_again(rows: list[Row], others: list[Row], data: st.DataObject) -> None:
    builder = _builder()
    builder.build(rows, tools_allowed=True)
    at = data.draw(st.integers(0, len(rows)))
    changed = [*rows[:at], *others, *rows[at + 1 :]]
    assert _wire(builder.build(changed, tools_allowed=True)) == _wire(_builder().build(changed, tools_allowed=True))


@given(ROWS, st.data())
def test_a_valid_conversation_is_sent_unchanged(rows: list[Row], data: st.DataObject) -> None:
    request = _builder().build(rows, tools_allowed=True)
    sound = [message.model_dump() for message in request.messages]
    transcript = Transcript()
    transcript.messages(sound[: data.draw(st.integers(0, len(sound)))])
    assert [message.model_dump() for message in transcript.messages(sound)] == sound


@given(ROWS)
def test_messages_of_users_are_never_left_out(rows: list[Row]) -> None:
    written = [row["content"] for row in rows if isinstance(row, dict) and row.get("role") == "user"]
    texts = [sendable(content) for content in written if isinstance(content, str) and sendable(content).strip()]
    messages = _builder().build(rows, tools_allowed=True).messages
    sent = [message.content for message in messages if message.role == "user" and message.content != GO_ON]
    assert [content for content in sent if content in texts] == texts


@given(ROWS)
def test_the_ids_of_a_request_are_used(rows: list[Row]) -> None:
    builder = _builder()
    request = builder.build(rows, tools_allowed=True)
    called = [message.tool_call_id for message in request.messages if message.role == "tool"]
    assert all(builder.is_used(call_id or "") for call_id in called)
    assert len(set(called)) == len(called)
