"""`provider-recipe`: runs a recipe as the provider of a session, without a model.

Each answer is a function of the conversation: the calls that come next, or the report. Another process continues with
the same calls.
"""

from __future__ import annotations

from decimal import Decimal
from functools import partial
from typing import TYPE_CHECKING, Any

from pydantic import Field

from orchestrator_interactive.config import Options, validate
from orchestrator_interactive.kernel.contracts import events
from orchestrator_interactive.kernel.contracts.messages import ChatResponse, TextBlock, ToolCall, ToolCallBlock, Usage
from orchestrator_interactive.kernel.contracts.models import HookResult, ModelInfo, ProviderInfo
from orchestrator_interactive.kernel.hooks import CONTINUE
from orchestrator_interactive.kernel.interop import accepts_both, to_local_coordinator
from orchestrator_interactive.recipes.inputs import checked_inputs
from orchestrator_interactive.recipes.plan import Planner, calls_agent
from orchestrator_interactive.recipes.schema import TEMPLATES, JudgeStep, checked_recipe
from orchestrator_interactive.recipes.transcript import read_transcript
from orchestrator_interactive.registries.agent_calls import verdict_in
from orchestrator_interactive.registries.templates import TemplateError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from orchestrator_interactive.kernel.contracts.messages import ChatRequest, ContentBlock
    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator
    from orchestrator_interactive.recipes.plan import Progress
    from orchestrator_interactive.recipes.schema import Recipe
    from orchestrator_interactive.recipes.transcript import Transcript

_TODO = "todo"
# No conversation is shortened for it: the transcript is the state.
_WINDOW = 10**9
_NOTHING = Usage(input_tokens=0, output_tokens=0, total_tokens=0, cost_usd=Decimal(0))
# The loop asks again after an answer with this reason.
_ASK_AGAIN = "pause_turn"
_MODEL = ModelInfo(
    id="recipe",
    display_name="Recipe: no language model",
    context_window=_WINDOW,
    max_output_tokens=8_192,
    capabilities=["tools", "tool_choice"],
)


class RecipeProviderOptions(Options):
    """Configuration of `provider-recipe`: the mapping of a recipe, and its inputs."""

    recipe: dict[str, Any]
    inputs: dict[str, Any] = Field(default_factory=dict)


class RecipeProvider:
    """Answers with the next calls of a recipe, or its report."""

    name = "recipe"

    def __init__(self, recipe: Recipe, inputs: Mapping[str, Any], coordinator: ModuleCoordinator) -> None:
        self._recipe = recipe
        self._inputs = inputs
        self._coordinator = coordinator
        self._was_barred = False

    def get_info(self) -> ProviderInfo:
        limits = {"context_window": _WINDOW, "max_output_tokens": _MODEL.max_output_tokens}
        defaults = {"model": _MODEL.id, **limits}
        return ProviderInfo(
            id=self.name, display_name=self._recipe.name, capabilities=_MODEL.capabilities, defaults=defaults
        )

    async def list_models(self) -> list[ModelInfo]:
        return [_MODEL.model_copy()]

    @accepts_both
    async def complete(self, request: ChatRequest, **_: Any) -> ChatResponse:
        """Return the next calls or the report.

        It reads the session's whole conversation: the request may be shortened, and has no outcomes of calls.
        """
        context = self._coordinator.get("context")
        rows = [each.model_dump() for each in request.messages] if context is None else await context.get_messages()
        transcript = read_transcript(rows, partial(calls_agent, self._recipe))
        tools = set() if request.tool_choice == "none" else {tool.name for tool in request.tools or ()}
        progress = Planner(self._recipe, self._inputs, transcript, tools or None).next()
        if progress.calls is None:
            return _response([TextBlock(text=_ending(self._recipe, progress, transcript))])
        if not progress.calls:
            return _response([])  # the loop asks again when a call has ended
        if tools:
            self._was_barred = False
            calls = [*_todo(self._recipe, progress, transcript, tools), *progress.calls]
            return _response([ToolCallBlock(id=each.id, name=each.name, input=each.arguments) for each in calls])
        if not self._was_barred:  # a tool that forces a response has ended, or the run has reached a limit
            self._was_barred = True
            return _response([], _ASK_AGAIN)
        progress.problem = "The run has reached a limit. Write a message to continue."
        return _response([TextBlock(text=_ending(self._recipe, progress, transcript))])

    def parse_tool_calls(self, response: ChatResponse) -> list[ToolCall]:
        calls = [block for block in response.content if isinstance(block, ToolCallBlock)]
        return [ToolCall(id=each.id, name=each.name, arguments=each.input) for each in calls]


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> RecipeProvider:
    """Mount the provider as `recipe`. The log gets the scores of judges as the rewards of their calls.

    Raises:
        ValueError: the recipe or an input is invalid.
    """
    coordinator = to_local_coordinator(coordinator)
    options = validate(RecipeProviderOptions, config, "provider-recipe")
    recipe = checked_recipe(options.recipe, "provider-recipe")
    provider = RecipeProvider(recipe, checked_inputs(recipe.inputs, options.inputs), coordinator)
    await coordinator.mount("providers", provider, name=provider.name)
    judges = {step.id for step in recipe.steps if isinstance(step, JudgeStep)}

    async def reward(_event: str, data: dict[str, Any]) -> HookResult:
        call_id = str(data.get("tool_call_id"))
        keep = coordinator.get_capability("interactions.reward")
        if keep is not None and call_id.partition("-")[0] in judges and (found := verdict_in(str(data["tool_result"]))):
            keep(call_id, found.score)
        return CONTINUE

    if judges:
        coordinator.hooks.register(events.TOOL_POST, reward, name="provider-recipe")
    return provider


def _response(content: Sequence[ContentBlock], finish_reason: str = "end_turn") -> ChatResponse:
    return ChatResponse(content=list(content), usage=_NOTHING, finish_reason=finish_reason)


def _todo(recipe: Recipe, progress: Progress, transcript: Transcript, tools: Collection[str]) -> list[ToolCall]:
    """Return the call that shows the progress as a to-do list, if that tool is mounted."""
    if _TODO not in tools:
        return []
    items = [{"text": step.title or step.id, "status": progress.marks.get(step.id, "pending")} for step in recipe.steps]
    # No step has this id: theirs have a letter after the dash.
    number = sum(call_id.startswith(f"{_TODO}-0") for call_id in transcript.calls) + 1
    return [ToolCall(id=f"{_TODO}-0{number}", name=_TODO, arguments={"items": items})]


def _ending(recipe: Recipe, progress: Progress, transcript: Transcript) -> str:
    """Return the report; after the report, only the messages since."""
    unread = [f"- {each}" for each in transcript.unread]
    messages = "\n".join(("No agent has read these messages:", *unread)) if unread else ""
    if transcript.has_reported:
        return f"The recipe {recipe.name} has ended; its report is above.\n\n{messages}".strip()
    if progress.problem:
        said = f"**The recipe {recipe.name} has ended early.** {progress.problem}"
        report = "\n\n".join((said, *_outputs(recipe, progress)))
    elif recipe.report is None:
        report = "\n\n".join((f"**The recipe {recipe.name} is done.**", *_outputs(recipe, progress)))
    else:
        try:
            report = TEMPLATES.render(recipe.report, progress.variables).strip() or f"{recipe.name} is done."
        except TemplateError as e:
            report = "\n\n".join((f"The report of {recipe.name} cannot be made. {e}", *_outputs(recipe, progress)))
    return f"{report}\n\n{messages}".strip()


def _outputs(recipe: Recipe, progress: Progress) -> list[str]:
    """Return a paragraph for each step that was reached."""
    found = []
    for step in recipe.steps:
        if (result := progress.variables["steps"].get(step.id)) is not None:
            output = result["output"]
            text = "\n".join(output) if isinstance(output, list) else output
            found.append(f"**{step.title or step.id}** ({result['status']})\n{text}".strip())
    return found
