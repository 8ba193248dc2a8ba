"""A base class of tools that validates their input."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, ClassVar, Generic, TypeVar

from orchestrator_interactive.config import Options, schema, validate
from orchestrator_interactive.kernel.contracts.models import ToolResult

InputT = TypeVar("InputT", bound=Options)


class ValidatedTool(ABC, Generic[InputT]):
    """Base class of tools: subclasses need `name`, `description`, `input_kind` (a model of the input) and `_work`.

    An exception in `refusals` becomes a failed result with its text; a ValueError also reports invalid input.
    """

    name: ClassVar[str]
    input_kind: type[InputT]
    refusals: ClassVar[tuple[type[Exception], ...]] = (ValueError,)

    @property
    def input_schema(self) -> dict[str, Any]:
        return schema(self.input_kind)

    def get_schema(self) -> dict[str, Any]:
        return self.input_schema

    async def execute(self, input: dict[str, Any]) -> ToolResult:  # noqa: A002 - the name is the contract's
        try:
            done = await self._work(validate(self.input_kind, input, self.name))
        except self.refusals as e:
            return ToolResult(success=False, error={"message": str(e)})
        return done if isinstance(done, ToolResult) else ToolResult(output=done)

    @abstractmethod
    async def _work(self, wanted: InputT) -> str | ToolResult:
        """Carry out a call; a text is the output of a successful result."""
