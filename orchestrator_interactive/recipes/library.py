"""Recipes by name: those that ship with the project, and those of files and folders."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from pydantic import Field, field_validator

from orchestrator_interactive.config import Options
from orchestrator_interactive.recipes.schema import read_recipe

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from orchestrator_interactive.recipes.schema import Recipe

MODULE = "tool-recipes"
_SHIPPED = Path(__file__).parent / "shipped"
_ENDINGS = (".yaml", ".yml")


class RecipesOptions(Options):
    """Configuration of `tool-recipes`.

    Args:
        recipes: files and folders of recipes; one of the same name replaces one that ships.
        shipped: whether the recipes that ship can be run.
        timeout_s: time limit of a recipe, in seconds; `None`: that of workers.
    """

    recipes: tuple[str, ...] = ()
    shipped: bool = True
    timeout_s: float | None = Field(None, gt=0)

    @field_validator("recipes", mode="before")
    @classmethod
    def _one_or_several(cls, given: object) -> object:
        return (given,) if isinstance(given, str) else given


def read_file(path: Path) -> Recipe:
    """Read the recipe in a file.

    Raises:
        ValueError: the file cannot be read, or its recipe is invalid.
    """
    try:
        return read_recipe(path.read_text(encoding="utf-8"), str(path))
    except (OSError, UnicodeDecodeError) as e:
        raise ValueError(f"{path} cannot be read: {getattr(e, 'strerror', None) or 'it is no text'}.") from e


def recipes_of(options: RecipesOptions) -> Mapping[str, Recipe]:
    """Return the recipes by name.

    Raises:
        ValueError: a file cannot be read, a recipe is invalid, or two have the same name.
    """
    shipped = _read(sorted(_SHIPPED.glob("*.yaml"))) if options.shipped else {}
    return {**shipped, **_read([path for each in options.recipes for path in _files(Path(each).expanduser())])}


def recipe_named(recipes: Mapping[str, Recipe], name: str) -> Recipe:
    """Return the recipe of this name; a dash counts as an underscore.

    Raises:
        ValueError: there is none.
    """
    if (found := recipes.get(name.replace("-", "_"))) is None:
        raise ValueError(f"There is no recipe '{name}'; there are: {', '.join(sorted(recipes)) or 'none'}.")
    return found


def _files(path: Path) -> list[Path]:
    return sorted(each for each in path.iterdir() if each.suffix in _ENDINGS) if path.is_dir() else [path]


def _read(paths: Sequence[Path]) -> dict[str, Recipe]:
    found: dict[str, Recipe] = {}
    for path in paths:
        recipe = read_file(path)
        if recipe.name in found:
            raise ValueError(f"{path}: there are two recipes '{recipe.name}'. Rename one.")
        found[recipe.name] = recipe
    return found
