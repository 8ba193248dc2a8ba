"""Repair messages that break a rule of the request check, so that a provider accepts them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts.messages import TextBlock, ToolCallBlock, ToolResultBlock
from orchestrator_interactive.kernel.contracts.models import sendable
from orchestrator_interactive.kernel.contracts.request_validation import (
    RequestRule,
    block_problem,
    can_be_sent,
    is_plain,
)
from orchestrator_interactive.kernel.contracts.tool_calls import calls_in_field, function_of, is_call
from orchestrator_interactive.transcript.rows import own_ids, with_ids

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator_interactive.kernel.contracts.messages import Message

    # Changes the name and the arguments of a call.
    CallRepair = Callable[[str, Any], tuple[str, Any]]

NO_OUTPUT = "(no output)"
UNNAMED = "unnamed"


def repaired(message: Message, rule: RequestRule, is_used: Callable[[str], bool]) -> Message | None:
    """Return the message changed to comply with the rule; None if nothing is left.

    `is_used` returns whether the conversation so far has a call of this id.
    """
    return _with_own_ids(message, is_used) if rule is RequestRule.CALL_ID else _REPAIRS[rule](message)


def _with_own_ids(message: Message, is_used: Callable[[str], bool]) -> Message:
    """Return the message with a unique id for each of its calls."""
    blocks = [] if isinstance(message.content, str) else message.content
    inside = [block.id for block in blocks if isinstance(block, ToolCallBlock)]
    beside = calls_in_field(message)
    own_inside, own_beside = own_ids(inside, [call["id"] for call in beside], is_used)
    changes: dict[str, Any] = {}
    if inside:
        changes["content"] = with_ids(blocks, own_inside)
    if beside:
        changes["tool_calls"] = [{**call, "id": own} for call, own in zip(beside, own_beside, strict=True)]
    return message.model_copy(update=changes)


def _with_role_of_result(message: Message) -> Message | None:
    # OpenAI's former role of tool results is "function".
    return message.model_copy(update={"role": "tool"}) if message.role == "function" else None


def _without(message: Message, rule: RequestRule) -> Message:
    """Remove the blocks that break the rule."""
    if isinstance(message.content, str):
        return message
    problems = ((block, block_problem(message, block)) for block in message.content)
    kept = [block for block, problem in problems if problem is None or problem.rule is not rule]
    return message.model_copy(update={"content": kept})


def _without_misplaced(message: Message) -> Message:
    kept = _without(message, RequestRule.MISPLACED)
    has_misplaced_calls = message.role != "assistant" and calls_in_field(message)
    return kept.model_copy(update={"tool_calls": None}) if has_misplaced_calls else kept


def _without_unreadable_calls(message: Message) -> Message:
    return message.model_copy(update={"tool_calls": [call for call in calls_in_field(message) if is_call(call)]})


def _without_blanks(message: Message) -> Message:
    if isinstance(message.content, str):
        return message.model_copy(update={"content": ""})
    return _without(message, RequestRule.BLANK)


def _with_names(message: Message) -> Message:
    message = _with_calls(message, lambda name, given: (sendable(name).strip() or UNNAMED, given))
    return message if message.name is None or is_plain(message.name) else message.model_copy(update={"name": None})


def _sendable(message: Message) -> Message:
    message = _with_calls(message, lambda name, given: (name, _sendable_value(given)))
    if isinstance(message.content, str):
        return message.model_copy(update={"content": sendable(message.content)})
    blocks = list(message.content)
    for place, block in enumerate(blocks):  # thinking blocks cannot be changed, because they are signed
        match block:
            case TextBlock():
                blocks[place] = block.model_copy(update={"text": sendable(block.text)})
            case ToolResultBlock():
                blocks[place] = block.model_copy(update={"output": _sendable_value(block.output)})
    return _without(message.model_copy(update={"content": blocks}), RequestRule.UNSENDABLE)


def _sendable_value(value: Any) -> Any:
    if can_be_sent(value):
        return value
    match value:
        case dict():
            return {sendable(str(key)): _sendable_value(item) for key, item in value.items()}
        case list() | tuple():
            return [_sendable_value(item) for item in value]
    return sendable(str(value))


def _with_calls(message: Message, repair: CallRepair) -> Message:
    """Repair every call, in `content` and in `tool_calls`."""
    blocks, calls = message.content, []
    if not isinstance(blocks, str):
        blocks = list(blocks)
        for place, block in enumerate(blocks):
            if isinstance(block, ToolCallBlock):
                name, given = repair(block.name, block.input)
                blocks[place] = block.model_copy(update={"name": name, "input": given})
    for call in calls_in_field(message):
        part = function_of(call)
        name, given = repair(part["name"], part.get("arguments"))
        changed = {**part, "name": name, "arguments": given}
        calls.append(changed if part is call else {**call, "function": changed})
    return message.model_copy(update={"content": blocks, **({"tool_calls": calls} if calls else {})})


def _with_own_result(message: Message) -> Message:
    own = {"tool_call_id": message.tool_call_id}
    blocks = [b.model_copy(update=own) if isinstance(b, ToolResultBlock) else b for b in message.content]
    return message.model_copy(update={"content": blocks})


def _with_some_content(message: Message) -> Message | None:
    if message.role == "tool":
        return message.model_copy(update={"content": NO_OUTPUT})
    return message.model_copy(update={"content": ""}) if calls_in_field(message) else None


_REPAIRS: dict[RequestRule, Callable[[Message], Message | None]] = {
    RequestRule.ROLE: _with_role_of_result,
    RequestRule.NO_CALL: lambda _: None,
    RequestRule.MISPLACED: _without_misplaced,
    RequestRule.UNREADABLE_CALL: _without_unreadable_calls,
    RequestRule.NAME: _with_names,
    RequestRule.UNSENDABLE: _sendable,
    RequestRule.BLANK: _without_blanks,
    RequestRule.UNSIGNED: lambda message: _without(message, RequestRule.UNSIGNED),
    RequestRule.OTHER_RESULT: _with_own_result,
    RequestRule.ENDS_IN_THINKING: lambda message: message.model_copy(update={"content": message.content[:-1]}),
    RequestRule.EMPTY: _with_some_content,
}
