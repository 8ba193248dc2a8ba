"""`tool-recipes`: the agent runs a recipe as a worker, follows it, and checks recipes."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, ClassVar, Literal
from uuid import uuid4

from pydantic import Field, model_validator

from orchestrator_interactive.config import Options, validate
from orchestrator_interactive.kernel.interop import to_local_coordinator
from orchestrator_interactive.kernel.tool_support import current_call
from orchestrator_interactive.recipes.library import MODULE, RecipesOptions, recipe_named, recipes_of
from orchestrator_interactive.recipes.orders import RecipeOrders
from orchestrator_interactive.recipes.schema import read_recipe
from orchestrator_interactive.validated_tool import ValidatedTool

if TYPE_CHECKING:
    from collections.abc import Mapping

    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator
    from orchestrator_interactive.recipes.schema import Recipe


class _Input(Options):
    operation: Literal["run", "status", "cancel", "validate", "list"] = Field(
        description="'list' shows the recipes and their inputs; 'run' starts one and returns at once."
    )
    recipe: str | None = Field(None, description="Name of the recipe. For 'run' and 'validate'.")
    inputs: dict[str, Any] = Field(default_factory=dict, description="The inputs. For 'run'.")
    id: str | None = Field(None, description="Id of the worker that runs it. For 'cancel', and 'status' of one.")
    yaml: str | None = Field(
        None, max_length=20_000, description="A recipe in YAML, which is checked, never run. For 'validate'."
    )

    @model_validator(mode="after")
    def _is_complete(self) -> _Input:
        if self.operation == "cancel" and self.id is None:
            raise ValueError("'cancel' needs 'id'")
        if self.operation == "run" and self.recipe is None:
            raise ValueError("'run' needs 'recipe'")
        if self.operation == "validate" and (self.recipe is None) == (self.yaml is None):
            raise ValueError("'validate' needs either 'recipe' or 'yaml'")
        return self


class RecipesTool(ValidatedTool[_Input]):
    """Runs, follows and checks recipes. A repeated call finds the worker that it started."""

    name = "recipes"
    description = (
        "Run a recipe: a prepared workflow of several steps, which runs as a worker and reports into the "
        "thread by itself. 'run' returns at once; do not wait for it."
    )
    input_kind = _Input
    repeatable: ClassVar[bool] = True
    destructive: ClassVar[bool] = False

    def __init__(self, coordinator: ModuleCoordinator, recipes: Mapping[str, Recipe], options: RecipesOptions) -> None:
        self._coordinator = coordinator
        self._recipes = recipes
        self._orders = RecipeOrders(recipes, options, self._call_workers)

    def label(self, input: dict[str, Any]) -> str:  # noqa: A002 - the name is the contract's
        match input:
            case {"operation": "run", "recipe": str(name)}:
                return f"Starting the recipe {name}"
        return "Looking at the recipes"

    async def _work(self, wanted: _Input) -> str:
        call = current_call.get()
        call_id = uuid4().hex if call is None else call.id
        match wanted.operation:
            case "run":
                return await self._orders.run(wanted.recipe or "", wanted.inputs, call_id)
            case "status":
                return await self._orders.status(wanted.id)
            case "cancel":
                return await self._orders.cancel(wanted.id or "", call_id)
            case "validate":
                if wanted.yaml is None:
                    recipe = recipe_named(self._recipes, wanted.recipe or "")
                else:  # a thread: hostile YAML takes seconds
                    recipe = await asyncio.to_thread(read_recipe, wanted.yaml, "yaml")
                return f"The recipe {recipe.name} is valid: {len(recipe.steps)} steps."
        return self._orders.list()

    async def _call_workers(self, function: str, /, **arguments: Any) -> Any:
        call = self._coordinator.get_capability(f"workers.{function}")
        if call is None:
            raise ValueError("There are no workers here, so no recipe can be run.")
        return await call(**arguments)


async def mount(coordinator: ModuleCoordinator, config: dict[str, Any]) -> RecipesTool:
    """Mount `recipes`. It starts workers through the capabilities `workers.…`, which the service registers.

    Raises:
        ValueError: an unknown option, or a recipe is invalid.
    """
    coordinator = to_local_coordinator(coordinator)
    options = validate(RecipesOptions, config, MODULE)
    tool = RecipesTool(coordinator, recipes_of(options), options)
    await coordinator.mount("tools", tool, name=tool.name)
    return tool
