"""Tools made from functions, with validated input and output."""

from __future__ import annotations

import inspect
import json
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog
from pydantic import BaseModel, create_model

from orchestrator_interactive.config import Options, schema, validate
from orchestrator_interactive.kernel.blocking import run_blocking
from orchestrator_interactive.kernel.error_boundary import ErrorBoundary, error_text
from orchestrator_interactive.loop.tool_results import as_result, failure
from orchestrator_interactive.registries.effects import run_effects
from orchestrator_interactive.registries.tool_context import ToolContext

if TYPE_CHECKING:
    from collections.abc import Callable

    from orchestrator_interactive.kernel.contracts.models import ToolResult
    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator
    from orchestrator_interactive.registries.result_cache import ResultCache
    from orchestrator_interactive.registries.schemas import ToolConfig

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class ToolFunction:
    """A function with its configuration as a tool; it stays callable."""

    function: Callable[..., Any]
    config: ToolConfig

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs)


def tool(config: ToolConfig) -> Callable[[Callable[..., Any]], ToolFunction]:
    """Make a tool from a function, async or not; a sync one runs in `run_blocking`.

    The function takes keyword arguments and returns the output or a `ToolResult`; an exception is a failed call.
    """
    return partial(ToolFunction, config=config)


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """A registered function as the contracts' Tool; `mounted` binds it to a session."""

    config: ToolConfig
    _function: Callable[..., Any]
    _cache: ResultCache
    _input_model: type[BaseModel]
    input_schema: dict[str, Any] = field(repr=False)
    _coordinator: ModuleCoordinator | None = None

    @classmethod
    def of(cls, made: ToolFunction, kept: ResultCache) -> FunctionTool:
        """Make the tool of a function.

        Raises:
            TypeError: the function's signature cannot be converted to a schema.
        """
        takes = made.config.input_schema or _signature_of(made)
        return cls(made.config, made.function, kept, takes, schema(takes))

    @property
    def name(self) -> str:
        return self.config.name

    @property
    def description(self) -> str:
        return self.config.description

    @property
    def side_effect_free(self) -> bool:
        return self.config.side_effect_free

    @property
    def reflect(self) -> bool:
        return self.config.reflect

    def get_schema(self) -> dict[str, Any]:
        return self.input_schema

    def mounted(self, coordinator: ModuleCoordinator) -> FunctionTool:
        """Return the tool bound to the session of this coordinator; all sessions share its cached results."""
        return replace(self, _coordinator=coordinator)

    async def execute(self, input: dict[str, Any]) -> ToolResult:  # noqa: A002 - the name is the contract's
        """Call the function and return its result; never raises."""
        try:
            given = validate(self._input_model, input, self.name)
        except ValueError as e:
            return failure(str(e))
        context = ToolContext.of(self._coordinator) if self._coordinator else None
        if context is None and self.config.requires_context:
            return failure(f"{self.name} works in a session only: mount it there with mount_tools().")
        return await self._cache.result_of(self._key(given, context), partial(self._run, given, context))

    def _key(self, given: BaseModel, context: ToolContext | None) -> str:
        """Return the cache key of a call; includes the conversation if the tool depends on it."""
        parts: list[Any] = [given.model_dump(mode="json", fallback=repr)]
        if context is not None and (self.config.requires_context or self.config.post_effects):
            parts += [context.conversation_id, context.agent_id]
        return json.dumps(parts, sort_keys=True)

    async def _run(self, given: BaseModel, context: ToolContext | None) -> ToolResult:
        with ErrorBoundary(log, "tool.failed", tool=self.name) as boundary:
            result = self._checked(as_result(await self._called(given, context)))
        if boundary.error is not None:
            return failure(f"{type(boundary.error).__name__}: {error_text(boundary.error)}")
        if not result.success or not self.config.post_effects:
            return result
        return await run_effects(result, self.config.post_effects, context)

    async def _called(self, given: BaseModel, context: ToolContext | None) -> Any:
        arguments = {name: getattr(given, name) for name in type(given).model_fields}
        if self.config.requires_context:
            arguments["context"] = context
        if inspect.iscoroutinefunction(self._function):
            return await self._function(**arguments)
        key = context.conversation_id if context else self.name
        returned = await run_blocking(key, partial(self._function, **arguments))
        return await returned if inspect.isawaitable(returned) else returned

    def _checked(self, result: ToolResult) -> ToolResult:
        """Return the result with its output as JSON data; a failed one if it does not match `output_schema`."""
        if not result.success:
            return result
        output: Any = result.output
        if isinstance(output, BaseModel):
            output = output.model_dump(mode="json")
        if self.config.output_schema is not None:
            try:
                output = validate(self.config.output_schema, output, f"The output of {self.name} is not as declared")
            except ValueError as e:
                log.warning("tool.output_invalid", tool=self.name, error=str(e))
                return failure(str(e))
            output = output.model_dump(mode="json")
        return result.model_copy(update={"output": output})


def _signature_of(made: ToolFunction) -> type[BaseModel]:
    """Return the function's parameters as a pydantic model."""
    name, function = made.config.name, made.function
    fields: dict[str, Any] = {}
    for each in inspect.signature(function).parameters.values():
        if each.name == "context" and made.config.requires_context:
            continue
        if each.kind not in {each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY}:
            raise TypeError(f"{name}: '{each}' cannot be passed by keyword: write input_schema, or another signature.")
        fields[each.name] = (
            Any if each.annotation is each.empty else each.annotation,
            ... if each.default is each.empty else each.default,
        )
    try:
        model = create_model(name, __base__=Options, __module__=function.__module__, **fields)
        model.model_rebuild()
    except NameError as e:
        raise TypeError(f"{name}: the signature cannot be read, {e.name!r} is unknown: write input_schema.") from e
    return model
