"""For any rows, valid or not, each request is valid and grows only at its tail."""

from typing import Any

from agents import ScriptedProvider, echo
from hypothesis import given
from hypothesis import strategies as st

from orchestrator_interactive.kernel.contracts.messages import ChatRequest
from orchestrator_interactive.kernel.contracts.models import sendable
from orchestrator_interactive.kernel.contracts.request_validation import problems_of
from orchestrator_interactive.transcript.transcript import NO_RESULT, RequestBuilder, Transcript

Row = dict[str, Any]
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
SIGNED = st.just({"type": "thinking", "thinking": "hm", "signature": "s"})
SOUND_BLOCKS = st.one_of(st.just({"type": "text", "text": "hello"}), SIGNED, CALLED)
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
    _fields(role=ROLES, content=ODD_CONTENT, metadata=st.sampled_from([None, 7, {"usage": {}}, {"is_error": True}])),
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
