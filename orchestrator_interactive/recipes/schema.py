"""A recipe: its inputs, its steps and its report, read from YAML and checked as a whole before it runs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, Literal

import yaml
from pydantic import Field, model_validator

from orchestrator_interactive.config import Options, validate
from orchestrator_interactive.json_limits import MAX_NESTING, expanded_size, nesting
from orchestrator_interactive.recipes.inputs import RecipeInput  # noqa: TC001 - pydantic reads it at run time
from orchestrator_interactive.registries.templates import TemplateError, TemplateManager

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

TEMPLATES = TemplateManager(has_names=False)
MAX_CHARS = 200_000
# What every template can read; no step and no `output` has such a name.
RESERVED = frozenset({"inputs", "steps", "item", "index", "recipe"})
_ID = r"[a-z][a-z0-9_]{0,39}"


class Step(Options):
    """What all steps have in common.

    Args:
        id: its name in `{{ steps.id.output }}` and in the ids of its calls.
        title: its line in the to-do list; by default the id.
        when: a template; the step is skipped if its value is false, empty or 0, or a text that means no.
        for_each: a list, or a template of one; the step runs once for each `{{ item }}`.
        parallel: how many items run at once.
        retries: how often a failed call is repeated.
        repeatable: whether the step may run again if the outcome of a call is unknown.
        on_failure: whether the recipe ends if the step fails.
        output: another name for the step's output in templates.
    """

    id: str = Field(pattern=rf"^{_ID}$")
    title: str = ""
    when: str | bool | None = None
    for_each: str | list[Any] | None = None
    parallel: int = Field(4, ge=1, le=16)
    retries: int = Field(0, ge=0, le=10)
    repeatable: bool = False
    on_failure: Literal["stop", "continue"] = "stop"
    output: str | None = Field(None, pattern=rf"^{_ID}$")

    def templates(self) -> Iterator[str]:
        """Return the texts of the step that are templates, also within `arguments`."""
        for name in sorted(type(self).model_fields.keys() - _PLAIN):
            yield from texts_in(getattr(self, name))


# The fields of steps that are no templates.
_PLAIN = Step.model_fields.keys() - {"title", "when", "for_each"} | {"tool", "judge"}


class AgentStep(Step):
    """Asks an agent."""

    agent: str = Field(min_length=1)
    instruction: str = Field(min_length=1)


class ToolStep(Step):
    """Calls a tool of the session."""

    tool: str = Field(min_length=1)
    arguments: dict[str, Any] = Field(default_factory=dict)


class WorkerStep(Step):
    """Starts a worker, by its title, and does not wait for it; its report reaches the thread by itself."""

    worker: str = Field(min_length=1)
    instruction: str = Field(min_length=1)
    agent: str = ""


class ApprovalStep(Step):
    """Asks the people in the thread; without their approval the recipe ends."""

    approval: str = Field(min_length=1, max_length=1_000)
    minutes: float | None = Field(None, gt=0, le=7 * 24 * 60)


class JudgeStep(Step):
    """Lets an agent score the output of the agent step before it, which runs again while the score is too low.

    Args:
        judge: id of that step.
        criteria: the purpose that the output is to serve.
        at_least: the lowest sufficient score, from 0 to 1, or a template of it.
        retries: how often the step runs again, with the comment.
    """

    judge: str
    agent: str = Field(min_length=1)
    criteria: str = "the purpose of the recipe"
    at_least: Annotated[float, Field(ge=0, le=1)] | str = 0.7
    retries: int = Field(1, ge=0, le=10)

    @model_validator(mode="after")
    def _judges_one(self) -> JudgeStep:
        if self.for_each is not None or self.when is not None:
            raise ValueError("a judge has neither 'for_each' nor 'when': it follows the step that it judges")
        return self


_KINDS: dict[str, type[Step]] = {
    "judge": JudgeStep,
    "worker": WorkerStep,
    "tool": ToolStep,
    "approval": ApprovalStep,
    "agent": AgentStep,
}


class _Document(Options):
    name: str = Field(pattern=rf"^{_ID}$")
    description: str = ""
    inputs: dict[str, RecipeInput] = Field(default_factory=dict)
    steps: list[dict[str, Any]] = Field(min_length=1, max_length=100)
    report: str | None = None


@dataclass(frozen=True, slots=True)
class Recipe:
    """A checked recipe; `source` is the mapping that it was read from, in JSON types."""

    name: str
    description: str
    inputs: Mapping[str, RecipeInput]
    steps: tuple[Step, ...]
    report: str | None
    source: Mapping[str, Any]


class _Loader(yaml.SafeLoader):
    """A YAML loader without merges (`<<`): merges of merges grow tenfold a line."""

    def flatten_mapping(self, node: yaml.MappingNode) -> None:
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:merge":
                problem = "a recipe has no merges (<<): write the keys out"
                raise yaml.constructor.ConstructorError(None, None, problem, key.start_mark)
        super().flatten_mapping(node)


def read_recipe(text: str, subject: str) -> Recipe:
    """Read a recipe from YAML; `subject` names it in errors.

    Raises:
        ValueError: one sentence for each problem, with its place.
    """
    if len(text) > MAX_CHARS:
        raise ValueError(f"{subject}: it has more than {MAX_CHARS:,} characters. Divide it.")
    try:
        document = _Loader(text).get_single_data()
    except (yaml.YAMLError, ValueError, RecursionError) as e:
        mark = getattr(e, "problem_mark", None)
        place = f", line {mark.line + 1}" if mark else ""
        raise ValueError(f"{subject}{place}: this is not YAML: {getattr(e, 'problem', None) or e}.") from e
    return checked_recipe(document, subject)


def checked_recipe(document: Any, subject: str) -> Recipe:
    """Return the recipe of a mapping.

    Raises:
        ValueError: as in `read_recipe`.
    """
    if not isinstance(document, dict) or not all(isinstance(each, str) for each in document):
        raise ValueError(f"{subject}: a recipe is a mapping with 'name', 'steps' and more.")
    if nesting(document, MAX_NESTING) > MAX_NESTING or expanded_size(document, MAX_CHARS) > MAX_CHARS:
        raise ValueError(f"{subject}: it is nested too deeply, or its aliases make it too large.")
    read = validate(_Document, document, subject)
    problems: list[str] = []
    steps = tuple(step for number, each in enumerate(read.steps, 1) if (step := _step(each, number, problems)))
    if not problems:
        problems = [*_names_used_twice(read, steps), *_judged(steps), *_unknown_references(read, steps)]
    if problems:
        raise ValueError(" ".join(f"{subject}, {each}" for each in problems))
    return Recipe(read.name, read.description, read.inputs, steps, read.report, document)


def texts_in(value: Any) -> Iterator[str]:
    """Return the texts in JSON data, without the keys of objects."""
    match value:
        case str():
            yield value
        case list():
            for each in value:
                yield from texts_in(each)
        case dict():
            for each in value.values():
                yield from texts_in(each)


def _step(given: Mapping[str, Any], number: int, problems: list[str]) -> Step | None:
    place = f"step '{given['id']}'" if "id" in given else f"step {number}"
    kind = next((kind for key, kind in _KINDS.items() if key in given), None)
    if kind is None:
        problems.append(f"{place}: it needs one of {', '.join(sorted(_KINDS))}.")
        return None
    try:
        return validate(kind, given, place)
    except ValueError as e:
        problems.append(str(e))
        return None


def _names_used_twice(document: _Document, steps: tuple[Step, ...]) -> Iterator[str]:
    taken = {name: f"a variable of every recipe; there are: {', '.join(sorted(RESERVED))}" for name in RESERVED}
    ids: set[str] = set()
    for step in steps:
        if step.id in ids:
            yield f"step '{step.id}': the id is used twice."
        ids.add(step.id)
        if step.output is not None:
            if step.output in taken:
                yield f"step '{step.id}': the output '{step.output}' is {taken[step.output]}."
            taken[step.output] = f"that of step '{step.id}', too"
    for name in document.inputs:
        if not name.isidentifier():
            yield f"input '{name}': use letters, digits and underscores."


def _judged(steps: tuple[Step, ...]) -> Iterator[str]:
    for before, step in zip((None, *steps), steps, strict=False):
        is_right = isinstance(before, AgentStep) and before.for_each is None
        if isinstance(step, JudgeStep) and not (is_right and before is not None and before.id == step.judge):
            yield f"step '{step.id}': '{step.judge}' must be the step before it, of an agent, without 'for_each'."


def _unknown_references(document: _Document, steps: tuple[Step, ...]) -> Iterator[str]:
    known, outputs = set[str](), set[str]()
    for step in steps:
        for text in step.templates():
            local = {"item", "index"} if step.for_each is not None else set()
            yield from _unknown(text, f"step '{step.id}'", document, known, outputs | local)
        known.add(step.id)
        if step.output is not None:
            outputs.add(step.output)
    if document.report is not None:
        yield from _unknown(document.report, "report", document, known, outputs)


def _unknown(text: str, place: str, document: _Document, known: set[str], names: set[str]) -> Iterator[str]:
    try:
        found = TEMPLATES.references(text)
    except TemplateError as e:
        yield f"{place}: {e}"
        return
    for reference in sorted(found):
        match reference:
            case ("inputs", name) if name not in document.inputs:
                yield f"{place}: there is no input '{name}'; there are: {', '.join(document.inputs) or 'none'}."
            case ("steps", name) if name not in known:
                yield f"{place}: there is no step '{name}' before it; there are: {', '.join(sorted(known)) or 'none'}."
            case (name,) if name not in {"inputs", "steps", "recipe", *names}:
                yield f"{place}: '{name}' is unknown; there are: {', '.join(sorted({'inputs', 'steps', *names}))}."
