"""The sandbox in which one template is rendered.

It forbids access to unsafe attributes, and bounds time and memory: every loop iteration, call and include counts as a
step, and no value may exceed a size limit.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sized
from functools import wraps
from typing import TYPE_CHECKING, Any

from jinja2 import DictLoader, FileSystemLoader, StrictUndefined, Template, nodes
from jinja2.exceptions import SecurityError
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from orchestrator_interactive.registries.templates.errors import TemplateTooLarge

if TYPE_CHECKING:
    from pathlib import Path

    from jinja2.runtime import Context

MAX_CHARS = 200_000
MAX_STEPS = 50_000
# Limit of a number in an argument: real widths, counts and indents are far smaller.
_MAX_OF_A_NUMBER = 100_000
_MAX_BITS = 10_000
# Limit of the product of two argument sizes: each character of one text may be replaced by the other text.
_MAX_OF_A_PRODUCT = 20_000_000
# Total size of the texts in a nested list.
_MAX_CHARS_INSIDE = 2_000_000
# Number of items that a filter processes in about the time of a loop iteration.
_ITEMS_OF_A_STEP = 200

# Filters that prompts do not need, and that produce large or random output.
_NO_FILTERS = ("center", "format", "random", "slice", "urlize", "xmlattr")
_NO_GLOBALS = ("lipsum",)
_NO_METHODS_OF_TEXT = ("format", "format_map", "translate")

_COUNTED, _JOINED = "counted by the sandbox", "joined by the sandbox"


class Sandbox(ImmutableSandboxedEnvironment):
    """An environment for one rendering."""

    intercepted_binops = frozenset({"*", "**", "%", "+"})

    def __init__(self, folder: Path | None) -> None:
        loader = FileSystemLoader(folder) if folder else DictLoader({})
        # `optimized` would evaluate constant expressions at compile time, before steps are counted.
        super().__init__(
            loader=loader, undefined=StrictUndefined, optimized=False, trim_blocks=True, lstrip_blocks=True
        )
        self._steps = 0
        for name in _NO_FILTERS:
            del self.filters[name]
        for name in _NO_GLOBALS:
            del self.globals[name]
        self.filters["tojson"] = _as_json
        self.filters = {name: self._bounded(each) for name, each in self.filters.items()}
        self.filters[_COUNTED], self.filters[_JOINED] = self._counted, _joined

    def _parse(self, source: str, name: str | None, filename: str | None) -> nodes.Template:
        tree: nodes.Template = _Watched().visit(super()._parse(source, name, filename))
        return tree

    def get_template(self, *args: Any, **kwargs: Any) -> Template:
        self._step()
        return super().get_template(*args, **kwargs)

    def call(self, context: Context, called: Any, /, *args: Any, **kwargs: Any) -> Any:
        self._charge((getattr(called, "__self__", None), *args, *kwargs.values()))
        return _checked(super().call(context, called, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        match operator, left, right:
            case "*", int() as times, Sized() as many:
                _check_size(len(many) * times)
            case "*", Sized() as many, int() as times:
                _check_size(len(many) * times)
            case "*", int(), int() if left.bit_length() + right.bit_length() > _MAX_BITS:
                raise TemplateTooLarge("The template multiplies numbers with thousands of digits: use smaller ones.")
            case "**", int(), int() if left.bit_length() * right > _MAX_BITS:
                raise TemplateTooLarge(f"The template raises a number to the power of {right}: use smaller numbers.")
            case "%", str(), _:
                raise SecurityError("Texts cannot be formatted by % here: join them with ~")
        return _checked(super().call_binop(context, operator, left, right))

    def wrap_str_format(self, value: Any) -> None:
        """Disable str.format, also jinja2's safe version: a few characters can request any width."""

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        is_formatting = isinstance(obj, str) and attr in _NO_METHODS_OF_TEXT
        return not is_formatting and super().is_safe_attribute(obj, attr, value)

    def _counted(self, values: Iterable[Any]) -> Iterator[Any]:
        for value in values:
            self._step()
            yield value

    def _bounded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)  # keeps the attributes that tell jinja2 to pass the context or the environment
        def within_bounds(*args: Any, **kwargs: Any) -> Any:
            self._charge((*args, *kwargs.values()))
            return _checked(function(*args, **kwargs))

        return within_bounds

    def _charge(self, values: Iterable[Any]) -> None:
        """Count the steps of a call or a filter by the size of its arguments, which it may iterate over."""
        sizes = []
        for value in values:
            if isinstance(value, int) and abs(value) > _MAX_OF_A_NUMBER:
                raise TemplateTooLarge(f"The template passes the number {value}: {_MAX_OF_A_NUMBER} is the limit.")
            sizes.append(_size(value))
        *_, one, other = sorted([1, 1, *sizes])
        if one * other > _MAX_OF_A_PRODUCT:
            raise TemplateTooLarge("The template makes a call that could produce too much output: use shorter values.")
        self._step(1 + sum(sizes) // _ITEMS_OF_A_STEP)

    def _step(self, steps: int = 1) -> None:
        self._steps += steps
        if self._steps > MAX_STEPS:
            raise TemplateTooLarge(f"The template runs more than {MAX_STEPS} loop iterations and calls: use fewer.")


class _Watched(NodeTransformer):
    """Instruments a template: loops count their iterations, and `~` checks its size."""

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - jinja2's name
        self.generic_visit(node)
        node.iter = _filtered(node.iter, _COUNTED)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802
        self.generic_visit(node)
        return _filtered(nodes.List(node.nodes, lineno=node.lineno), _JOINED)


def _filtered(value: Any, name: str) -> nodes.Filter:
    return nodes.Filter(value, name, [], [], None, None, lineno=value.lineno)


def _as_json(value: Any, indent: int | None = None) -> str:
    """Serialize to JSON without jinja2's HTML escapes."""
    return json.dumps(value, ensure_ascii=False, indent=indent)


def _joined(values: Iterable[Any]) -> Any:
    return _checked("".join(map(str, values)))


def _size(value: Any) -> int:
    """Return the length of a value, or the absolute value of a number."""
    if isinstance(value, int):
        return abs(value)
    return len(value) if isinstance(value, str | list | tuple | dict | range) else 0


def _checked(value: Any) -> Any:
    if isinstance(value, str | list | tuple):
        _check_size(len(value))
    if isinstance(value, list | tuple | dict):
        _count_inside(value, _MAX_CHARS_INSIDE)
    return value


def _count_inside(value: Any, left: int) -> int:
    """Subtract the characters in a nested value from `left`, and return the rest."""
    match value:
        case dict():
            inside: Iterable[Any] = (*value.keys(), *value.values())
        case list() | tuple():
            inside = value
        case _:
            left -= len(value) if isinstance(value, str) else 1
            inside = ()
    for each in inside:
        left = _count_inside(each, left)
    if left < 0:
        raise TemplateTooLarge("The template makes lists that are too large: make them smaller.")
    return left


def _check_size(size: int) -> None:
    if size > MAX_CHARS:
        raise TemplateTooLarge(f"The template makes a value of size {size}: {MAX_CHARS} is the limit.")
