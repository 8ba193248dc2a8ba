"""Renders the templates of what agents are told, such as an agent's `behavior_template`."""

from __future__ import annotations

import re
import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
from jinja2.exceptions import SecurityError

from orchestrator_interactive.registries.templates.errors import (
    BrokenTemplate,
    ForbiddenTemplate,
    TemplateError,
    TemplateTooLarge,
    UndefinedVariable,
    UnknownTemplate,
)
from orchestrator_interactive.registries.templates.sandbox import MOST_CHARS, Sandbox

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_ENDINGS = (".jinja", ".jinja2", ".j2", ".md", ".txt")
_NAME = re.compile(r"[^\s{}]+")


class TemplateManager:
    """Renders jinja2 templates in a sandbox, without HTML escapes: what comes out is read by a model.

    A template is given as its text, or by the name of a file in the folder: one word that ends in `.jinja`, `.jinja2`,
    `.j2`, `.md` or `.txt` is a name. Templates may include and extend the others of the folder.

    Args:
        folder: where the files are; without one there are no names.
    """

    def __init__(self, folder: Path | str | None = None) -> None:
        self._folder = Path(folder) if folder is not None else None

    def names(self) -> list[str]:
        """The templates of the folder."""
        if self._folder is None:
            return []
        files = (each for each in self._folder.rglob("*") if each.suffix in _ENDINGS and each.is_file())
        return sorted(each.relative_to(self._folder).as_posix() for each in files)

    def check(self, template: str) -> None:
        """Whether there is such a template, and it is written as templates are.

        Raises:
            UnknownTemplate, BrokenTemplate
        """
        with self._told(template, {}):
            self._loaded(template)

    def render(self, template: str, variables: Mapping[str, Any] | None = None) -> str:
        """The text of a template with these variables.

        Raises:
            TemplateError: UnknownTemplate, BrokenTemplate, UndefinedVariable, ForbiddenTemplate, TemplateTooLarge, or
                itself where a step of the template fails.
        """
        given = dict(variables or {})
        with self._told(template, given):
            return _within_bounds(self._loaded(template).generate(given))

    def _loaded(self, template: str) -> jinja2.Template:
        sandbox = Sandbox(self._folder)
        return sandbox.get_template(template) if _is_name(template) else sandbox.from_string(template)

    @contextmanager
    def _told(self, template: str, given: Mapping[str, Any]) -> Iterator[None]:
        """What goes wrong, in our own words."""
        which = f"The template {template}" if _is_name(template) else "The template"
        try:
            yield
        except jinja2.TemplateNotFound as e:
            raise UnknownTemplate(self._unknown(str(e.name or template))) from e
        except jinja2.TemplateSyntaxError as e:
            place = f"line {e.lineno}" + (f" of {e.name}" if e.name and e.name != template else "")
            raise BrokenTemplate(f"{which} cannot be read, {place}: {e.message}") from e
        except jinja2.UndefinedError as e:
            known = ", ".join(sorted(given)) or "nothing"
            raise UndefinedVariable(f"{which} fails{_line(e)}: {e.message}. It was given: {known}.") from e
        except SecurityError as e:
            raise ForbiddenTemplate(f"{which} may not do this{_line(e)}: {str(e.message).rstrip('.')}.") from e
        except TemplateError:
            raise
        except (RecursionError, MemoryError, OverflowError) as e:
            raise TemplateTooLarge(f"{which} goes too far{_line(e)}: {e}.") from e
        except (
            jinja2.TemplateError,
            ArithmeticError,
            AttributeError,
            LookupError,
            TypeError,
            ValueError,
            OSError,
        ) as e:
            raise TemplateError(f"{which} fails{_line(e)}: {type(e).__name__}: {e}.") from e

    def _unknown(self, name: str) -> str:
        if self._folder is None:
            return f"There is no template {name!r}, for there is no folder of templates: name one, or write its text."
        there = ", ".join(self.names()) or "none at all"
        return f"There is no template {name!r} in {self._folder}; there are: {there}."


def _is_name(template: str) -> bool:
    return template.endswith(_ENDINGS) and _NAME.fullmatch(template) is not None


def _within_bounds(pieces: Iterator[str]) -> str:
    kept, size = [], 0
    for piece in pieces:
        kept.append(piece)
        size += len(piece)
        if size > MOST_CHARS:
            raise TemplateTooLarge(f"The template makes more than {MOST_CHARS} characters: make it shorter.")
    return "".join(kept)


def _line(error: BaseException) -> str:
    """Where in the template it happened; jinja2 puts the template's own lines into the traceback."""
    lines = [
        f.lineno
        for f in traceback.extract_tb(error.__traceback__)
        if f.name.startswith(("top-level template", "block ", "template"))
    ]
    return f" in line {lines[-1]}" if lines else ""
