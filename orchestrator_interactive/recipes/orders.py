"""Start and follow recipes as workers, for the tool and for the commands of people."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from orchestrator_interactive.recipes.inputs import checked_inputs, parsed_inputs, usage
from orchestrator_interactive.recipes.library import recipe_named

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from orchestrator_interactive.recipes.library import RecipesOptions
    from orchestrator_interactive.recipes.schema import Recipe

# The titles of workers that run a recipe begin with it.
_TITLE = "Recipe "
# A recipe is bounded by its steps and items; the usual limit is for models.
_LOOP = {"max_iterations": 10_000}
_WORD_CHARS = 60


class CallWorkers(Protocol):
    """Calls a function of the workers by its name: `dispatch`, `list`, `show` or `stop`."""

    async def __call__(self, function: str, /, **arguments: Any) -> Any: ...


class RecipeOrders:
    """Starts recipes of a library, and follows them.

    All methods raise ValueError with a sentence for the person or the model.
    """

    def __init__(self, recipes: Mapping[str, Recipe], options: RecipesOptions, workers: CallWorkers) -> None:
        self._recipes = recipes
        self._options = options
        self._workers = workers

    def parsed(self, name: str, words: Iterable[str]) -> dict[str, Any]:
        """Return the inputs of a recipe from words `key=value`."""
        return parsed_inputs(recipe_named(self._recipes, name).inputs, words)

    def usage(self, name: str) -> str:
        """Return how to write the inputs of a recipe."""
        recipe = recipe_named(self._recipes, name)
        return usage(recipe.name, recipe.inputs)

    async def run(self, name: str, inputs: Mapping[str, Any], call_id: str) -> str:
        """Start a recipe; a repeated `call_id` finds the worker that it started."""
        recipe = recipe_named(self._recipes, name)
        checked = checked_inputs(recipe.inputs, inputs)
        provider = {"module": "provider-recipe", "config": {"recipe": dict(recipe.source), "inputs": checked}}
        words = ", ".join(_word(key, value) for key, value in checked.items() if value is not None)
        worker = await self._workers(
            "dispatch",
            instruction=f"Run the recipe {recipe.name}" + (f" with {words}." if words else "."),
            title=f"{_TITLE}{recipe.name}",
            call_id=call_id,
            overlay={"providers": [provider], "session": {"orchestrator": {"config": _LOOP}}},
            timeout_s=self._options.timeout_s,
        )
        return f"The recipe {recipe.name} has started as worker {worker['id']}. Its report comes into the thread."

    async def status(self, worker_id: str | None = None) -> str:
        """Return the state of one recipe, or of all of the thread."""
        if worker_id is not None:
            return _line(await self._of_recipe(worker_id))
        workers = (await self._workers("list"))["workers"]
        lines = [_line(each) for each in workers if _is_recipe(each)]
        return "\n".join(lines) or "No recipe has been started here."

    async def cancel(self, worker_id: str, call_id: str) -> str:
        """Stop a recipe that is at work; a second request stops it at once."""
        worker = await self._of_recipe(worker_id)
        name = f"{worker['title']} ({worker_id})"
        if worker.get("ended_s"):
            return f"{name} has ended already: {worker['status']}."
        await self._workers("stop", id=worker_id, call_id=call_id)
        return f"I am stopping {name}."

    def list(self) -> str:
        """Return the recipes, with their inputs."""
        recipes = (self._recipes[name] for name in sorted(self._recipes))
        lines = [f"{usage(each.name, each.inputs)}: {each.description.strip()}" for each in recipes]
        return "\n".join(lines) or "There are no recipes."

    async def _of_recipe(self, worker_id: str) -> Mapping[str, Any]:
        worker: Mapping[str, Any] = await self._workers("show", id=worker_id)
        if not _is_recipe(worker):
            raise ValueError(f"{worker_id} is no recipe.")
        return worker


def _word(name: str, value: Any) -> str:
    text = str(value)
    return f"{name}={text if len(text) <= _WORD_CHARS else f'{text[:_WORD_CHARS]}…'}"


def _is_recipe(worker: Mapping[str, Any]) -> bool:
    return str(worker.get("title", "")).startswith(_TITLE)


def _line(worker: Mapping[str, Any]) -> str:
    return f"{worker['id']}: {worker['title']}, {worker.get('status') or 'at work'}"
