"""Compute the next calls of a recipe, or its report, from its transcript."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.delegation.tool_delegate import answer_in
from orchestrator_interactive.json_limits import parse_json
from orchestrator_interactive.kernel.contracts.messages import ToolCall
from orchestrator_interactive.recipes.schema import (
    TEMPLATES,
    AgentStep,
    ApprovalStep,
    JudgeStep,
    Step,
    ToolStep,
    WorkerStep,
)
from orchestrator_interactive.registries.agent_calls import judge_request, verdict_in
from orchestrator_interactive.registries.templates import TemplateError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from orchestrator_interactive.recipes.schema import Recipe
    from orchestrator_interactive.recipes.transcript import RecipeCall, Transcript

APPROVE, DENY = "Approve", "Deny"
# The tools that ask an agent, the first one that is mounted: its name, and those of its arguments.
AGENT_TOOLS = (("delegate", "agent", "instruction"), ("call_agent", "agent_id", "message"))
_ASK, _DISPATCH = "ask_user", "dispatch_worker"
_MAX_ITEMS = 1_000
# How often a call whose process ended is made again if its step is repeatable, without counting as a failure.
_MAX_LOST = 3
# Texts of a condition that are false, in lower case.
_NO = frozenset({"", "0", "false", "no", "none", "null", "[]", "{}"})
_MESSAGES = "Messages that people wrote in the meantime:"
_AGAIN = """\
{instruction}

Your earlier answer was judged with {score:g} of 1; at least {at_least:g} is needed. {comment}
Give a better answer. The earlier one was:
{output}"""


class Ended(Exception):  # noqa: N818 - the end of a recipe is not always an error
    """The recipe ends before its last step; the message is a sentence for people."""


@dataclass(frozen=True, slots=True)
class Calls:
    """Calls to make now; none: calls are running."""

    calls: Sequence[ToolCall] = ()


@dataclass(frozen=True, slots=True)
class Done:
    """A call that is over, and whether it succeeded."""

    output: str
    succeeded: bool = True


@dataclass(slots=True)
class Progress:
    """How far a recipe has come: `calls` to make now, `None` at its end; `problem`: why it ended early."""

    variables: dict[str, Any]
    marks: dict[str, str] = field(default_factory=dict)
    calls: Sequence[ToolCall] | None = None
    problem: str = ""


def calls_agent(recipe: Recipe, call_id: str) -> bool:
    """Return whether the call with this id asks an agent."""
    step_id = call_id.partition("-")[0]
    return any(step.id == step_id and isinstance(step, AgentStep | JudgeStep) for step in recipe.steps)


class Planner:
    """Plans one answer.

    Ids of calls follow from the step, its item (`i`), its round with a judge (`r`) and the attempt (`a`), such as
    `review-i2-a2`: after a restart, the same call has the same id.

    Args:
        tools: names of the tools that can be called; `None`: unknown.
    """

    def __init__(
        self, recipe: Recipe, inputs: Mapping[str, Any], transcript: Transcript, tools: Collection[str] | None
    ) -> None:
        self._recipe = recipe
        self._transcript = transcript
        self._tools = tools
        self._steps: dict[str, dict[str, Any]] = {}
        self._variables: dict[str, Any] = {"inputs": inputs, "steps": self._steps, "recipe": {"name": recipe.name}}

    def next(self) -> Progress:
        """Return the calls to make now, or the end of the recipe."""
        progress = Progress(self._variables)
        try:
            for place, step in enumerate(self._recipe.steps):
                following = self._recipe.steps[place + 1] if place + 1 < len(self._recipe.steps) else None
                if isinstance(step, JudgeStep) and step.id in self._steps:
                    continue  # done, with the step that it judges
                progress.marks[step.id] = "in_progress"
                judge = following if isinstance(following, JudgeStep) else None
                found = self._judged(step, judge) if judge and isinstance(step, AgentStep) else self._step(step)
                if found is not None:
                    progress.calls = found.calls
                    return progress
                progress.marks |= dict.fromkeys(self._steps, "done")
        except Ended as e:
            progress.problem = str(e)
        except TemplateError as e:
            progress.problem = f"Step '{step.id}': {e}"
        return progress

    def _step(self, step: Step) -> Calls | None:
        """Return the calls of a step; None if it is over."""
        if self._is_skipped(step):
            return None
        if step.for_each is not None:
            return self._loop(step)
        found = self._attempt(step, self._variables, step.id)
        if isinstance(found, Done):
            self._finish(step, [found], found.output)
            return None
        return found

    def _loop(self, step: Step) -> Calls | None:
        """Return the calls for the next items of a step; None if all are over."""
        items = self._items(step)
        done: list[Done] = []
        waiting: list[Calls] = []
        for number, item in enumerate(items, 1):
            here = {**self._variables, "item": item, "index": number}
            found = self._attempt(step, here, f"{step.id}-i{number}")
            if isinstance(found, Done):
                done.append(found)
            else:
                waiting.append(found)
                if len(waiting) == step.parallel:
                    break
        may_go_on = step.on_failure == "continue" or all(each.succeeded for each in done)
        if waiting and (may_go_on or not all(each.calls for each in waiting)):
            return Calls([call for each in waiting for call in each.calls if may_go_on])
        each_of = zip(items, done, strict=False)
        more = {"results": [{"item": item, **_result(each.output, [each])} for item, each in each_of]}
        self._finish(step, done, [each.output for each in done], more)
        return None

    def _judged(self, step: AgentStep, judge: JudgeStep) -> Calls | None:
        """Return the calls of a step and its judge, round after round; None if both are over."""
        skipped = {"output": "", "status": "skipped", "error": f"Step '{step.id}' has no output."}
        if self._is_skipped(step):
            self._steps[judge.id] = skipped
            return None
        again = ""
        for number in range(1, judge.retries + 2):
            name = "" if number == 1 else f"-r{number}"
            answer = self._attempt(step, self._variables, f"{step.id}{name}", again)
            if isinstance(answer, Calls):
                return answer
            self._finish(step, [answer], answer.output)
            if not answer.succeeded:
                self._steps[judge.id] = skipped
                return None
            judged = self._attempt(judge, self._variables, f"{judge.id}{name}")
            if isinstance(judged, Calls):
                return judged
            if (verdict := verdict_in(judged.output)) is None or not judged.succeeded:
                result = Done(f"It gave no score. {judged.output}", succeeded=False)
                break
            self._steps[judge.id] = {"score": verdict.score, "comment": verdict.comment, "rounds": number}
            result = Done(judged.output)
            at_least = self._at_least(judge)  # may read the judged step
            if verdict.score >= at_least:
                break
            facts = {"score": verdict.score, "comment": verdict.comment, "at_least": at_least}
            text = TEMPLATES.render(step.instruction, self._variables)
            again = _AGAIN.format(instruction=text, output=answer.output, **facts)
            result = Done(f"The score of '{step.id}' is {verdict.score:g}. {verdict.comment}", succeeded=False)
        self._finish(judge, [result], result.output)
        return None

    def _attempt(self, step: Step, variables: Mapping[str, Any], name: str, instruction: str = "") -> Calls | Done:
        """Return the result of the last attempt of a call, or the next attempt.

        Raises:
            Ended: people denied it.
        """
        failures, lost, number = 0, 0, 0
        # A judge's own `retries` are rounds; a judge that gives no score is asked again once.
        retries = 1 if isinstance(step, JudgeStep) else step.retries
        while True:
            number += 1
            call_id = name if number == 1 else f"{name}-a{number}"
            call = self._transcript.calls.get(call_id)
            if call is None:
                return Calls([self._call(step, variables, call_id, instruction)])
            if call.outcome is None:
                return Calls()
            if call.outcome == "finished" and not (isinstance(step, JudgeStep) and verdict_in(call.text) is None):
                if isinstance(step, ApprovalStep):
                    _check_approval(step, call)
                return Done(answer_in(call.text))
            if call.outcome in ("unknown", "lost") and not step.repeatable:
                text = f"{call.text}\nThe step is not marked repeatable."
                return Done(text, succeeded=False)
            match call.outcome:
                case "cancelled":  # a call that a stop of an earlier run prevented had no effect
                    failures += call.run >= self._transcript.runs
                case "lost":
                    lost += 1
                    failures += lost > _MAX_LOST
                case _:
                    failures += 1
            if failures > retries:
                return Done(call.text, succeeded=False)

    def _call(self, step: Step, variables: Mapping[str, Any], call_id: str, instruction: str) -> ToolCall:
        def text(template: str) -> str:
            return TEMPLATES.render(template, variables)

        match step:
            case AgentStep():
                return self._ask_agent(call_id, text(step.agent), instruction or text(step.instruction))
            case JudgeStep():
                judged = next(each for each in self._recipe.steps if each.id == step.judge)
                asked = text(judged.instruction) if isinstance(judged, AgentStep) else ""
                request = judge_request(judged.id, asked, self._steps[judged.id]["output"], text(step.criteria))
                return self._ask_agent(call_id, text(step.agent), request)
            case ToolStep():
                name, arguments = step.tool, _evaluated(step.arguments, variables)
            case WorkerStep():
                agent = {"agent": text(step.agent)} if step.agent else {}
                order = {"task": self._with_messages(text(step.instruction)), "title": text(step.worker)}
                name, arguments = _DISPATCH, {**order, **agent}
            case ApprovalStep():
                options = {"options": [APPROVE, DENY], "free_text": False, "default": DENY}
                limit = {} if step.minutes is None else {"minutes": step.minutes}
                name, arguments = _ASK, {"question": text(step.approval), **options, **limit}
        if not self._has(name):
            raise Ended(f"Step '{step.id}' needs the tool `{name}`, which this agent does not have.")
        return ToolCall(id=call_id, name=name, arguments=arguments)

    def _ask_agent(self, call_id: str, agent: str, instruction: str) -> ToolCall:
        for name, agent_key, text_key in AGENT_TOOLS:
            if self._has(name):
                arguments = {agent_key: agent, text_key: self._with_messages(instruction)}
                return ToolCall(id=call_id, name=name, arguments=arguments)
        raise Ended("A step asks an agent, and this agent has no tool `delegate` or `call_agent`.")

    def _has(self, tool: str) -> bool:
        return self._tools is None or tool in self._tools

    def _with_messages(self, instruction: str) -> str:
        messages = [f"- {each}" for each in self._transcript.unread]
        return "\n".join((instruction, "", _MESSAGES, *messages)) if messages else instruction

    def _at_least(self, judge: JudgeStep) -> float:
        given = _evaluated(judge.at_least, self._variables)
        if not isinstance(given, int | float) or not 0 <= given <= 1:
            raise Ended(f"Step '{judge.id}': 'at_least' is {given!r}, not a number from 0 to 1.")
        return given

    def _is_skipped(self, step: Step) -> bool:
        if step.when is None:
            return False
        value = TEMPLATES.evaluate(step.when, self._variables) if isinstance(step.when, str) else step.when
        if value.strip().lower() not in _NO if isinstance(value, str) else value:
            return False
        self._steps[step.id] = {"output": "", "status": "skipped", "error": "", "results": []}
        if step.output is not None:
            self._variables[step.output] = ""
        return True

    def _items(self, step: Step) -> list[Any]:
        items = _evaluated(step.for_each, self._variables)
        if isinstance(items, str):
            parsed = _json(items)
            items = parsed if isinstance(parsed, list) else [line for line in items.splitlines() if line.strip()]
        if not isinstance(items, list) or len(items) > _MAX_ITEMS:
            raise Ended(f"Step '{step.id}': 'for_each' gives no list of at most {_MAX_ITEMS} items.")
        return items

    def _finish(self, step: Step, done: Sequence[Done], output: Any, more: Mapping[str, Any] | None = None) -> None:
        """Keep the result of a step for templates.

        Raises:
            Ended: it failed, and the recipe ends with it.
        """
        result = _result(output, done)
        self._steps[step.id] = {**self._steps.get(step.id, {}), **result, **(more or {})}
        if step.output is not None:
            self._variables[step.output] = output
        if result["error"] and step.on_failure == "stop":
            raise Ended(f"Step '{step.id}' failed: {result['error']}")


def _result(output: Any, done: Sequence[Done]) -> dict[str, Any]:
    """Return what templates read of a step or an item: its output, its status, and its JSON if it is one."""
    failed = [each.output or "It gives no reason." for each in done if not each.succeeded]
    parsed = _json(output) if isinstance(output, str) else None
    more = {} if parsed is None else {"json": parsed}
    return {"output": output, "status": "failed" if failed else "done", "error": failed[0] if failed else "", **more}


def _check_approval(step: ApprovalStep, call: RecipeCall) -> None:
    """Check an answer to a question; the decision in the log counts, since names in a text can be anything.

    Raises:
        Ended: the people did not approve.
    """
    chosen = call.approval.get("chosen")
    approved = chosen == [0] if isinstance(chosen, list) else call.text.rpartition(": ")[2].strip() == APPROVE
    if not approved:
        raise Ended(f"Step '{step.id}' was not approved: {call.text}")


def _evaluated(value: Any, variables: Mapping[str, Any]) -> Any:
    match value:
        case str() if "{" in value:  # jinja2 drops a line break at the end of a text
            return TEMPLATES.evaluate(value, variables)
        case list():
            return [_evaluated(each, variables) for each in value]
        case dict():
            return {name: _evaluated(each, variables) for name, each in value.items()}
    return value


def _json(text: str) -> Any:
    """Return the JSON array or object of a text; None for other texts."""
    try:
        parsed = parse_json(text) if text.lstrip()[:1] in ("[", "{") else None
    except ValueError:
        return None
    return parsed
