"""Render templates of agents' instructions, such as `behavior_template`."""

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
from orchestrator_interactive.registries.templates.sandbox import MAX_CHARS, Sandbox

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_ENDINGS = (".jinja", ".jinja2", ".j2", ".md", ".txt")
_NAME = re.compile(r"[^\s{}]+")


class TemplateManager:
    """Renders jinja2 templates in a sandbox, without HTML escapes: the output is for a model.

    A template is given by its text or by its file name in the folder: one word that ends in `.jinja`, `.jinja2`, `.j2`,
    `.md` or `.txt` is a file name. Templates may include and extend other templates in the folder.

    Args:
        folder: folder of the template files; without it, templates are given by their text only.
    """

    def __init__(self, folder: Path | str | None = None) -> None:
        self._folder = Path(folder) if folder is not None else None

    def names(self) -> list[str]:
        """Return the names of the templates in the folder."""
        if self._folder is None:
            return []
        files = (each for each in self._folder.rglob("*") if each.suffix in _ENDINGS and each.is_file())
        return sorted(each.relative_to(self._folder).as_posix() for each in files)

    def check(self, template: str) -> None:
        """Check that the template exists and has no syntax error.

        Raises:
            UnknownTemplate, BrokenTemplate
        """
        with self._converted_errors(template, {}):
            self._loaded(template)

    def render(self, template: str, variables: Mapping[str, Any] | None = None) -> str:
        """Render a template with these variables.

        Raises:
            TemplateError: UnknownTemplate, BrokenTemplate, UndefinedVariable, ForbiddenTemplate, TemplateTooLarge, or
                the base class for any other failure.
        """
        given = dict(variables or {})
        with self._converted_errors(template, given):
            return _within_bounds(self._loaded(template).generate(given))

    def _loaded(self, template: str) -> jinja2.Template:
        sandbox = Sandbox(self._folder)
        return sandbox.get_template(template) if _is_name(template) else sandbox.from_string(template)

    @contextmanager
    def _converted_errors(self, template: str, given: Mapping[str, Any]) -> Iterator[None]:
        """Convert errors of jinja2 into TemplateErrors."""
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
            raise TemplateTooLarge(f"{which} exceeds a limit{_line(e)}: {e}.") from e
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
            return f"There is no template {name!r}: no template folder is set. Set one, or pass the template's text."
        there = ", ".join(self.names()) or "none"
        return f"There is no template {name!r} in {self._folder}; there are: {there}."


def _is_name(template: str) -> bool:
    return template.endswith(_ENDINGS) and _NAME.fullmatch(template) is not None


def _within_bounds(pieces: Iterator[str]) -> str:
    kept, size = [], 0
    for piece in pieces:
        kept.append(piece)
        size += len(piece)
        if size > MAX_CHARS:
            raise TemplateTooLarge(f"The template makes more than {MAX_CHARS} characters: make it shorter.")
    return "".join(kept)


def _line(error: BaseException) -> str:
    """Return the template line of the error; jinja2 adds template lines to the traceback."""
    lines = [
        f.lineno
        for f in traceback.extract_tb(error.__traceback__)
        if f.name.startswith(("top-level template", "block ", "template"))
    ]
    return f" in line {lines[-1]}" if lines else ""
