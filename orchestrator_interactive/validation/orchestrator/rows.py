"""Rules for the context rows and the requests of an orchestrator."""

from __future__ import annotations

from typing import TYPE_CHECKING

from orchestrator_interactive.validation.orchestrator.runner import as_text
from orchestrator_interactive.validation.orchestrator.scenarios import (
    ANSWER,
    CANCELLED_MODEL,
    CANCELLED_TOOL,
    PLAIN,
    PROMPT,
    SIGNATURE,
    TOOLS,
    result_for,
)
from orchestrator_interactive.validation.orchestrator.script import VIEW
from orchestrator_interactive.validation.report import Check
from orchestrator_interactive.validation.runner import Returned, rule
from orchestrator_interactive.validation.tool_pairs import pair_problems

if TYPE_CHECKING:
    from orchestrator_interactive.validation.orchestrator.runner import Recordings
    from orchestrator_interactive.validation.runner import Problems, ValidationRule

_CONTEXT = "Context Management"
_CANCELLED = (CANCELLED_MODEL.name, CANCELLED_TOOL.name)


@rule(
    Check(
        rule="the prompt and the answer are added to the context",
        section=_CONTEXT,
        fix="Call context.add_message() with the user's row before the model is asked, and with each answer after it.",
    )
)
def keeps_prompt_and_answer(recordings: Recordings) -> Problems:
    rows = recordings.of(PLAIN).rows
    wanted = (("user", PROMPT, "the prompt"), ("assistant", ANSWER, "the answer"))
    return [
        f"After a run the context holds no row of the role '{role}' with {what}."
        for role, text, what in wanted
        if not any(row.get("role") == role and text in as_text([row]) for row in rows)
    ]


@rule(
    Check(
        rule="it sends the context's view for the request",
        section=_CONTEXT,
        fix="Take the messages from context.get_messages_for_request() before each request, and put them into a "
        "ChatRequest.",
    )
)
def sends_the_view(recordings: Recordings) -> Problems:
    strange = {
        f"The provider is asked with a {name} instead of a ChatRequest."
        for r in recordings
        for name in r.invalid_requests
    }
    unseen = {
        f"In the run with {recording.scenario.name} a request lacks the view of get_messages_for_request()."
        for recording in recordings
        for request in recording.requests
        if VIEW not in as_text(request.messages)
    }
    return sorted(strange | unseen)


@rule(
    Check(
        rule="the model reads the prompt and the tool results",
        section=_CONTEXT,
        fix="Add each result as a row of the role 'tool' with its tool_call_id before the model is asked again.",
    )
)
def sends_prompt_and_results(recordings: Recordings) -> Problems:
    requests = [as_text(request.messages) for request in recordings.of(TOOLS).requests]
    problems = ["A request lacks the prompt."] if any(PROMPT not in request for request in requests) else []
    results = (result_for("0.txt"), result_for("1.txt"))
    return problems + [
        f"The request after the tools lacks a result: {said!r}."
        for said in results
        if said not in "".join(requests[1:2])
    ]


@rule(
    Check(
        rule="in every request each tool result follows its call",
        section=_CONTEXT,
        fix="Add the assistant's row first, then one result for every call, and only then anything else.",
    )
)
def sends_whole_pairs(recordings: Recordings) -> Problems:
    return [
        f"In the run with {recording.scenario.name}: {problem}"
        for recording in recordings
        for request in recording.requests
        for problem in pair_problems(request.messages)
    ]


@rule(
    Check(
        rule="in the context each tool result follows its call",
        section=_CONTEXT,
        fix="Add the assistant's row first, then one result for every call; a denied, "
        "unknown or failed call has a result, too.",
    )
)
def keeps_whole_pairs(recordings: Recordings) -> Problems:
    return [
        f"After the run with {recording.scenario.name}: {problem}"
        for recording in recordings
        if recording.scenario.name not in _CANCELLED and isinstance(recording.ended, Returned)
        for problem in pair_problems(recording.rows)
    ]


@rule(
    Check(
        rule="a cancelled or failed run leaves no call without its result",
        section=_CONTEXT,
        fix="When you are cancelled, add for every open call a result that reports the cancellation, then "
        "re-raise CancelledError.",
    )
)
def leaves_whole_pairs(recordings: Recordings) -> Problems:
    return [
        f"After the run with {recording.scenario.name}: {problem}"
        for recording in recordings
        if recording.scenario.name in _CANCELLED or not isinstance(recording.ended, Returned)
        for problem in pair_problems(recording.rows)
    ]


@rule(
    Check(
        rule="thinking goes back to the model with its signature",
        section=_CONTEXT,
        fix="Keep the content blocks of an answer as they are, instead of its text only.",
        required=False,
    )
)
def keeps_the_signature(recordings: Recordings) -> Problems:
    later = [as_text(request.messages) for request in recordings.of(TOOLS).requests[1:]]
    return [] if all(SIGNATURE in request for request in later) else ["The signature is missing in the next request."]


ROW_RULES: tuple[ValidationRule[Recordings], ...] = (
    keeps_prompt_and_answer,
    sends_the_view,
    sends_prompt_and_results,
    sends_whole_pairs,
    keeps_whole_pairs,
    leaves_whole_pairs,
    keeps_the_signature,
)
