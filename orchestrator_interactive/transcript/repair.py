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

    from orchestrator_interactive.kernel.contracts.messages import ContentBlock, Message

_NO_OUTPUT = "(no output)"
_NO_NAME = "unnamed"


def repaired(message: Message, rule: RequestRule) -> Message | None:
    """Return the message changed to comply with the rule; None if nothing is left."""
    return _REPAIRS[rule](message)


def with_own_ids(message: Message, is_used: Callable[[str], bool]) -> Message:
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


def _without_misplaced(message: Message) -> Message:
    kept = _without(RequestRule.MISPLACED)(message)
    if calls_in_field(message) and message.role != "assistant":
        return kept.model_copy(update={"tool_calls": None})
    return kept


def _without(rule: RequestRule) -> Callable[[Message], Message]:
    def repair(message: Message) -> Message:
        if isinstance(message.content, str):
            return message
        return message.model_copy(update={"content": [b for b in message.content if _rule_of(message, b) is not rule]})

    return repair


def _rule_of(message: Message, block: ContentBlock) -> RequestRule | None:
    problem = block_problem(message, block)
    return problem.rule if problem else None


def _without_unreadable_calls(message: Message) -> Message:
    return message.model_copy(update={"tool_calls": [call for call in calls_in_field(message) if is_call(call)]})


def _with_names(message: Message) -> Message:
    def repair(name: str, given: Any) -> tuple[str, Any]:
        return sendable(name).strip() or _NO_NAME, given

    message = _with_calls(message, repair)
    return message if message.name is None or is_plain(message.name) else message.model_copy(update={"name": None})


def _sendable(message: Message) -> Message:
    def repair(name: str, given: Any) -> tuple[str, Any]:
        return name, given if can_be_sent(given) else _sendable_value(given)

    message = _with_calls(message, repair)
    if isinstance(message.content, str):
        return message.model_copy(update={"content": sendable(message.content)})
    blocks = [_sendable_block(block) for block in message.content]
    # Thinking blocks cannot be changed, because they are signed.
    return _without(RequestRule.UNSENDABLE)(message.model_copy(update={"content": blocks}))


def _sendable_block(block: ContentBlock) -> ContentBlock:
    match block:
        case TextBlock():
            return block.model_copy(update={"text": sendable(block.text)})
        case ToolResultBlock() if not can_be_sent(block.output):
            return block.model_copy(update={"output": _sendable_value(block.output)})
        case _:
            return block


def _sendable_value(value: Any) -> Any:
    match value:
        case str():
            return sendable(value)
        case dict():
            return {sendable(str(key)): _sendable_value(item) for key, item in value.items()}
        case list() | tuple():
            return [_sendable_value(item) for item in value]
        case _:
            return value if can_be_sent(value) else sendable(str(value))


def _with_calls(message: Message, repair: Callable[[str, Any], tuple[str, Any]]) -> Message:
    """Apply `repair` to the name and arguments of every call, in `content` and in `tool_calls`."""
    changes: dict[str, Any] = {}
    if not isinstance(message.content, str):
        changes["content"] = [_call_block(block, repair) for block in message.content]
    if beside := calls_in_field(message):
        changes["tool_calls"] = [_call_beside(call, repair) for call in beside]
    return message.model_copy(update=changes)


def _call_block(block: ContentBlock, repair: Callable[[str, Any], tuple[str, Any]]) -> ContentBlock:
    if not isinstance(block, ToolCallBlock):
        return block
    name, given = repair(block.name, block.input)
    return block.model_copy(update={"name": name, "input": given})


def _call_beside(call: dict[str, Any], repair: Callable[[str, Any], tuple[str, Any]]) -> dict[str, Any]:
    part = function_of(call)
    name, given = repair(part["name"], part.get("arguments"))
    changed = {**part, "name": name, "arguments": given}
    return changed if part is call else {**call, "function": changed}


def _without_blanks(message: Message) -> Message:
    return (
        message.model_copy(update={"content": ""})
        if isinstance(message.content, str)
        else _without(RequestRule.BLANK)(message)
    )


def _with_own_result(message: Message) -> Message:
    blocks = [
        block.model_copy(update={"tool_call_id": message.tool_call_id}) if isinstance(block, ToolResultBlock) else block
        for block in message.content
    ]
    return message.model_copy(update={"content": blocks})


def _without_last_thinking(message: Message) -> Message:
    return message.model_copy(update={"content": message.content[:-1]})


def _with_some_content(message: Message) -> Message | None:
    if message.role == "tool":
        return message.model_copy(update={"content": _NO_OUTPUT})
    return message.model_copy(update={"content": ""}) if calls_in_field(message) else None


def _left_out(_message: Message) -> None:
    return None


_REPAIRS: dict[RequestRule, Callable[[Message], Message | None]] = {
    RequestRule.ROLE: _with_role_of_result,
    RequestRule.MISPLACED: _without_misplaced,
    RequestRule.UNREADABLE_CALL: _without_unreadable_calls,
    RequestRule.NAME: _with_names,
    RequestRule.UNSENDABLE: _sendable,
    RequestRule.BLANK: _without_blanks,
    RequestRule.UNSIGNED: _without(RequestRule.UNSIGNED),
    RequestRule.OTHER_RESULT: _with_own_result,
    RequestRule.ENDS_IN_THINKING: _without_last_thinking,
    RequestRule.EMPTY: _with_some_content,
    RequestRule.NO_CALL: _left_out,
}
