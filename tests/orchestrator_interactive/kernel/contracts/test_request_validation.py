"""The check of requests finds every error that a provider would refuse, and no other."""

from typing import Any

import pytest

from orchestrator_interactive.kernel.contracts.errors import InvalidRequestError
from orchestrator_interactive.kernel.contracts.messages import ChatRequest, Message, ToolSpec
from orchestrator_interactive.kernel.contracts.request_validation import RequestCheck, RequestRule, check, problems_of
from orchestrator_interactive.testing import MockProvider

Row = dict[str, Any]
LONE_SURROGATE = "\ud83d"
USER = {"role": "user", "content": "Hello"}
SIGNED = {"type": "thinking", "thinking": "Hm.", "signature": "s"}
STATEFUL = {"type": "thinking", "thinking": "Hm.", "content": ["state"]}
IMAGE = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aGk="}}
TOOL = ToolSpec(name="echo", parameters={"type": "object"})


def text(said: str) -> Row:
    return {"type": "text", "text": said}


def called(call_id: str, *, name: str = "echo", given: Any = None) -> Row:
    return {"type": "tool_call", "id": call_id, "name": name, "input": given or {}}


def beside(call_id: str, *, name: str = "echo", arguments: str = "{}") -> Row:
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": arguments}}


def assistant(*blocks: Row, **fields: Any) -> Row:
    return {"role": "assistant", "content": list(blocks), **fields}


def result(call_id: str, content: Any = "done") -> Row:
    return {"role": "tool", "tool_call_id": call_id, "name": "echo", "content": content}


def request_of(*rows: Row, **fields: Any) -> ChatRequest:
    return ChatRequest(messages=[Message.model_validate(row) for row in rows], **fields)


@pytest.mark.parametrize(
    ("fields", "rule"),
    [
        ({"tool_choice": "none"}, RequestRule.TOOL_CHOICE),
        ({"tool_choice": "none", "tools": []}, RequestRule.TOOL_CHOICE),
        ({"tools": [TOOL, TOOL]}, RequestRule.TOOL_NAMES),
        ({"tools": [TOOL.model_copy(update={"name": ""})]}, RequestRule.TOOL_NAMES),
    ],
)
def test_invalid_tools_and_tool_choices_are_found(fields: dict[str, Any], rule: RequestRule) -> None:
    [problem] = problems_of(request_of(USER, **fields))
    assert rule in problem


def test_tools_may_be_declared_though_none_may_be_used() -> None:
    assert problems_of(request_of(USER, tools=[TOOL], tool_choice="none")) == []


def test_a_valid_request_passes() -> None:
    check(request_of(USER))


def test_the_error_names_every_problem_and_its_place() -> None:
    rows = [USER, assistant(called("a"), text("")), {"role": "user", "content": "Hi\x00"}]
    with pytest.raises(InvalidRequestError) as refused:
        check(request_of(*rows))
    assert str(refused.value) == (
        "A provider would refuse this request: message 1: blank text (assistant); "
        "message 2: characters that cannot be sent (user); message 2: call without a result (a)."
    )


def test_looking_at_a_message_does_not_add_it() -> None:
    checking = RequestCheck()
    checking.add(Message(role="user", content="Hello"))
    answer = Message.model_validate(assistant(called("a")))
    assert checking.problems_of(answer) == checking.problems_of(answer) == []
    checking.add(answer)
    assert [problem.rule for problem in checking.problems_of(answer)] == [RequestRule.CALL_ID, RequestRule.NO_RESULT]


def test_a_fork_is_independent() -> None:
    checking = RequestCheck()
    checking.add(Message.model_validate(assistant(called("a"))))
    fork = checking.fork()
    fork.add(Message.model_validate(result("a")))
    fork.add(Message.model_validate(assistant(called("b"))))
    assert (fork.is_used("a"), fork.is_used("b"), list(fork.open)) == (True, True, ["b"])
    assert (checking.is_used("b"), list(checking.open)) == (False, ["a"])


async def test_the_mock_provider_refuses_an_invalid_request() -> None:
    provider, invalid = MockProvider(["Hi."]), request_of(USER, result("a"))
    with pytest.raises(InvalidRequestError, match="result without a call"):
        await provider.complete(invalid)
    assert provider.requests == [invalid]
    assert (await provider.complete(request_of(USER))).text == "Hi."


VALID: dict[str, list[Row]] = {
    "a question": [USER],
    "an aside at the end": [USER, {"role": "system", "content": "Be brief."}],
    "an answer and a question": [USER, assistant(text("Hi.")), USER],
    "two of the user's in a row": [USER, USER],
    "two calls, answered in another order": [USER, assistant(called("a"), called("b")), result("b"), result("a")],
    "a call in both places": [USER, assistant(called("a"), tool_calls=[beside("a")]), result("a")],
    "a call beside blank content": [
        USER,
        {"role": "assistant", "content": "", "tool_calls": [beside("a")]},
        result("a"),
    ],
    "a call as the kernel has it": [
        USER,
        {"role": "assistant", "content": "", "tool_calls": [{"id": "a", "name": "echo", "arguments": {}}]},
        result("a"),
    ],
    "signed thinking": [USER, assistant(SIGNED, text("Hi.")), USER],
    "thinking with the provider's state": [USER, assistant(STATEFUL, text("Hi.")), USER],
    "thinking before a call beside it": [USER, assistant(SIGNED, tool_calls=[beside("a")]), result("a")],
    "redacted thinking": [USER, assistant({"type": "redacted_thinking", "data": "x"}, text("Hi.")), USER],
    "images": [{"role": "user", "content": [IMAGE]}, assistant(called("a")), result("a", [text("This:"), IMAGE])],
    "a result as a block of its own": [
        USER,
        assistant(called("a")),
        result("a", [{"type": "tool_result", "tool_call_id": "a", "output": {"n": 1}}]),
    ],
    "lines, tabs and all scripts": [{"role": "user", "content": "a\tb\r\nc — 한국어 👩‍👩‍👧 \u200f"}],
    "NaN as a word": [USER, assistant(called("a", given={"text": "NaN, Infinity"})), result("a")],
}
REFUSED: list[tuple[RequestRule, list[Row]]] = [
    (RequestRule.NO_RESULT, [USER, assistant(called("a"))]),
    (RequestRule.NO_RESULT, [USER, assistant(called("a")), USER]),
    (RequestRule.NO_RESULT, [USER, assistant(called("a"), called("b")), result("b"), USER]),
    (RequestRule.NO_RESULT, [USER, assistant(called("a")), {"role": "system", "content": "Be brief."}, result("a")]),
    (RequestRule.NO_CALL, [USER, result("a")]),
    (RequestRule.NO_CALL, [USER, assistant(called("a")), result("a"), result("a")]),
    (RequestRule.NO_CALL, [USER, assistant(called("a")), result("a"), USER, result("a")]),
    (RequestRule.NO_CALL, [USER, assistant(called("a")), result("a"), {"role": "tool", "content": "whose?"}]),
    (RequestRule.CALL_ID, [USER, assistant(called("a"), called("a")), result("a"), USER]),
    (RequestRule.CALL_ID, [USER, assistant(called("a")), result("a"), assistant(called("a")), result("a")]),
    (RequestRule.CALL_ID, [USER, assistant(tool_calls=[beside("a"), beside("a")]), result("a"), USER]),
    (RequestRule.CALL_ID, [USER, assistant(called("a"), tool_calls=[beside("a"), beside("a")]), result("a"), USER]),
    (RequestRule.CALL_ID, [USER, assistant(called(" ")), result(" ")]),
    (RequestRule.CALL_ID, [USER, assistant(called(LONE_SURROGATE)), result(LONE_SURROGATE)]),
    (RequestRule.UNREADABLE_CALL, [USER, assistant(text("Hi."), tool_calls=["a"]), USER]),
    (RequestRule.UNREADABLE_CALL, [USER, assistant(text("Hi."), tool_calls={"id": "a"}), USER]),
    (RequestRule.UNREADABLE_CALL, [USER, assistant(text("Hi."), tool_calls=[{"id": "a", "type": "function"}]), USER]),
    (RequestRule.NAME, [USER, assistant(called("a", name=" ")), result("a")]),
    (RequestRule.NAME, [USER, assistant(tool_calls=[beside("a", name="")]), result("a")]),
    (RequestRule.NAME, [{**USER, "name": ""}]),
    (RequestRule.BLANK, [{"role": "user", "content": " \n"}]),
    (RequestRule.BLANK, [USER, assistant(text("Hi."), text("")), USER]),
    (RequestRule.BLANK, [USER, assistant(called("a")), result("a", [text(" ")])]),
    (RequestRule.EMPTY, [{"role": "user", "content": ""}]),
    (RequestRule.EMPTY, [USER, assistant(), USER]),
    (RequestRule.EMPTY, [USER, assistant(called("a")), result("a", "")]),
    (RequestRule.UNSIGNED, [USER, assistant({"type": "thinking", "thinking": "Hm."}, text("Hi.")), USER]),
    (
        RequestRule.UNSIGNED,
        [USER, assistant({"type": "thinking", "thinking": "Hm.", "signature": ""}, text("Hi.")), USER],
    ),
    (RequestRule.ENDS_IN_THINKING, [USER, assistant(text("Hi."), SIGNED), USER]),
    (RequestRule.ENDS_IN_THINKING, [USER, assistant({"type": "reasoning", "content": ["x"], "summary": []}), USER]),
    (RequestRule.ENDS_IN_THINKING, [USER, assistant(called("a"), SIGNED, tool_calls=[beside("a")]), result("a")]),
    (RequestRule.ROLE, [USER, {"role": "function", "name": "echo", "content": "done"}]),
    (RequestRule.MISPLACED, [USER, assistant(text("Hi."), IMAGE), USER]),
    (RequestRule.MISPLACED, [{"role": "system", "content": [IMAGE]}, USER]),
    (RequestRule.MISPLACED, [{"role": "user", "content": [text("Hi."), called("a")]}]),
    (RequestRule.MISPLACED, [{**USER, "tool_calls": [beside("a")]}]),
    (RequestRule.MISPLACED, [{"role": "user", "content": [{"type": "tool_result", "tool_call_id": "a", "output": 1}]}]),
    (
        RequestRule.OTHER_RESULT,
        [USER, assistant(called("a")), result("a", [{"type": "tool_result", "tool_call_id": "b", "output": 1}])],
    ),
    (RequestRule.UNSENDABLE, [{"role": "user", "content": f"Hi {LONE_SURROGATE}"}]),
    (RequestRule.UNSENDABLE, [{"role": "user", "content": [text("Hi\x00")]}]),
    (RequestRule.UNSENDABLE, [USER, assistant({**SIGNED, "thinking": LONE_SURROGATE}, text("Hi.")), USER]),
    (RequestRule.UNSENDABLE, [USER, assistant(called("a", given={"text": [LONE_SURROGATE]})), result("a")]),
    (RequestRule.UNSENDABLE, [USER, assistant(called("a", given={"n": float("nan")})), result("a")]),
    (RequestRule.UNSENDABLE, [USER, assistant(called("a", given={"n": float("-inf")})), result("a")]),
    (RequestRule.UNSENDABLE, [USER, assistant(tool_calls=[beside("a", arguments=LONE_SURROGATE)]), result("a")]),
    (
        RequestRule.UNSENDABLE,
        [USER, assistant(called("a"), tool_calls=[beside("a", arguments=LONE_SURROGATE)]), result("a")],
    ),
    (RequestRule.ENDS_WITH_ANSWER, []),
    (RequestRule.ENDS_WITH_ANSWER, [{"role": "system", "content": "Be brief."}]),
    (RequestRule.ENDS_WITH_ANSWER, [USER, assistant(text("Hi."))]),
    (RequestRule.ENDS_WITH_ANSWER, [USER, assistant(text("Hi.")), {"role": "developer", "content": "Be brief."}]),
]


@pytest.mark.parametrize("rows", VALID.values(), ids=VALID.keys())
def test_a_valid_request_has_no_problems(rows: list[Row]) -> None:
    assert problems_of(request_of(*rows)) == []


@pytest.mark.parametrize(("rule", "rows"), REFUSED, ids=[rule.name.lower() for rule, _ in REFUSED])
def test_an_invalid_request_has_the_problem(rule: RequestRule, rows: list[Row]) -> None:
    found = problems_of(request_of(*rows))
    assert any(rule in problem for problem in found), found


def test_every_rule_has_an_example() -> None:
    assert {rule for rule, _ in REFUSED} == set(RequestRule) - {RequestRule.TOOL_CHOICE, RequestRule.TOOL_NAMES}
