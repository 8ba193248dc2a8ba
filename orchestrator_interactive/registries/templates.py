"""Render templates of agents' instructions, such as `behavior_template`, in jinja2's sandbox."""

from __future__ import annotations

import json
import re
import traceback
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import jinja2
from jinja2 import meta, nodes
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from jinja2.compiler import Frame

_MAX_CHARS = 200_000
_ENDINGS = (".jinja", ".jinja2", ".j2", ".md", ".txt")
_NAME = re.compile(r"[^\s{}]+")
_EXPRESSION = re.compile(r"\s*\{\{-?((?:(?!\{\{|\}\}).)*?)-?\}\}\s*", re.DOTALL)


class TemplateError(ValueError):
    """The template cannot be rendered. The message gives the line and the reason."""


class TemplateManager:
    """Renders jinja2 templates without HTML escapes: the output is for a model.

    A template is given by its text or by its file name in the folder: one word that ends in `.jinja`, `.jinja2`, `.j2`,
    `.md` or `.txt` is a file name. Templates may include and extend other templates in the folder. The sandbox forbids
    access to Python's internals and changes to the variables, and the output is limited to 200,000 characters; the
    time of a rendering is not limited, because templates are part of the configuration.

    Args:
        folder: folder of the template files; without it, templates are given by their text only.
        has_names: whether a text such as `notes.md` is a file name.
    """

    def __init__(self, folder: Path | str | None = None, *, has_names: bool = True) -> None:
        self._folder = Path(folder) if folder is not None else None
        self._has_names = has_names
        self._environment = ImmutableSandboxedEnvironment(
            loader=jinja2.FileSystemLoader(self._folder) if self._folder else jinja2.DictLoader({}),
            undefined=jinja2.StrictUndefined,
            trim_blocks=True,
            lstrip_blocks=True,
            cache_size=0,  # changed files are read again
        )
        self._environment.filters["tojson"] = _as_json

    def names(self) -> list[str]:
        """Return the names of the templates in the folder."""
        if self._folder is None:
            return []
        files = (each for each in self._folder.rglob("*") if each.suffix in _ENDINGS and each.is_file())
        return sorted(each.relative_to(self._folder).as_posix() for each in files)

    def check(self, template: str) -> None:
        """Check that the template exists and has no syntax error.

        Raises:
            TemplateError
        """
        with self._converted_errors(template, {}):
            self._loaded(template)

    def render(self, template: str, variables: Mapping[str, Any] | None = None) -> str:
        """Render a template with these variables.

        Raises:
            TemplateError: no such template, a syntax error, an undefined variable, something that the sandbox forbids,
                too much output, or any other failure.
        """
        given = dict(variables or {})
        with self._converted_errors(template, given):
            pieces, size = [], 0
            for piece in self._loaded(template).generate(given):
                pieces.append(piece)
                size += len(piece)
                if size > _MAX_CHARS:
                    raise TemplateError(f"The template makes more than {_MAX_CHARS} characters: make it shorter.")
            return "".join(pieces)

    def evaluate(self, template: str, variables: Mapping[str, Any]) -> Any:
        """Return the value of a template that is one expression, `{{ … }}`, as JSON data; of others, their text.

        Raises:
            TemplateError: as in `render`, or the value cannot be represented in JSON.
        """
        if (found := _EXPRESSION.fullmatch(template)) is None:
            return self.render(template, variables)
        with self._converted_errors(template, variables):
            value = self._environment.compile_expression(found[1], undefined_to_none=False)(**variables)
            if isinstance(value, jinja2.Undefined):
                str(value)  # raises: it is strict
            return json.loads(json.dumps(value, default=list))

    def references(self, template: str) -> set[tuple[str, ...]]:
        """Return the variables of a template: `("inputs", "path")` for `inputs.path`, `("item",)` for `item` itself.

        Raises:
            TemplateError: it has a syntax error.
        """
        with self._converted_errors(template, {}):
            tree = self._environment.parse(template)
            names = _Names(self._environment)
            names.optimizer = None
            names.visit(tree)
            free = names.undeclared_identifiers
        found: set[tuple[str, ...]] = {(name,) for name in free}
        for node in tree.find_all((nodes.Getattr, nodes.Getitem)):
            match node:
                case nodes.Getattr(node=nodes.Name(name=name), attr=part) if name in free:
                    found.add((name, part))
                case nodes.Getitem(node=nodes.Name(name=name), arg=nodes.Const(value=str(part))) if name in free:
                    found.add((name, part))
        return found

    def _is_name(self, template: str) -> bool:
        return self._has_names and template.endswith(_ENDINGS) and _NAME.fullmatch(template) is not None

    def _loaded(self, template: str) -> jinja2.Template:
        load = self._environment.get_template if self._is_name(template) else self._environment.from_string
        return load(template)

    @contextmanager
    def _converted_errors(self, template: str, given: Mapping[str, Any]) -> Iterator[None]:
        which = f"The template {template}" if self._is_name(template) else "The template"
        try:
            yield
        except TemplateError:
            raise
        except jinja2.TemplateNotFound as e:
            name, there = str(e.name or template), ", ".join(self.names()) or "none"
            where = f" in {self._folder}; there are: {there}."
            if self._folder is None:
                where = ": no template folder is set. Set one, or pass the template's text."
            raise TemplateError(f"There is no template {name!r}{where}") from e
        except jinja2.TemplateSyntaxError as e:
            place = f"line {e.lineno}" + (f" of {e.name}" if e.name and e.name != template else "")
            raise TemplateError(f"{which} cannot be read, {place}: {e.message}") from e
        except jinja2.UndefinedError as e:
            known = ", ".join(sorted(given)) or "nothing"
            raise TemplateError(f"{which} fails{_line(e)}: {e.message}. It was given: {known}.") from e
        except SecurityError as e:
            raise TemplateError(f"{which} may not do this{_line(e)}: {str(e.message).rstrip('.')}.") from e
        except (RecursionError, MemoryError, OverflowError) as e:
            raise TemplateError(f"{which} exceeds a limit{_line(e)}: {e}.") from e
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


class _Names(meta.TrackingCodeGenerator):
    """Finds the variables of a template without computing its constants, such as `9**9**9`."""

    def _output_child_to_const(self, node: nodes.Expr, frame: Frame, finalize: Any) -> str:  # noqa: ARG002 - the base's
        raise nodes.Impossible

    def visit_EvalContextModifier(self, node: nodes.EvalContextModifier, frame: Frame) -> None:  # noqa: N802 - the base's
        """Skip the options of `{% autoescape … %}`, which the base computes."""


def _as_json(value: Any, indent: int | None = None) -> str:
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _line(error: BaseException) -> str:
    """Return the template line of the error; jinja2 adds template lines to the traceback."""
    lines = [
        f.lineno
        for f in traceback.extract_tb(error.__traceback__)
        if f.name.startswith(("top-level template", "block ", "template"))
    ]
    return f" in line {lines[-1]}" if lines else ""
