"""Tools by name: functions as tools, with cached results, the context of a call and effects after a success."""

from __future__ import annotations

import inspect
import json
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable
from copy import copy
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import structlog
from pydantic import BaseModel, create_model

from orchestrator_interactive.config import Options, schema, validate
from orchestrator_interactive.kernel import run_blocking
from orchestrator_interactive.kernel.contracts.messages import TextBlock
from orchestrator_interactive.kernel.contracts.models import ToolResult
from orchestrator_interactive.kernel.contracts.protocols import Tool
from orchestrator_interactive.kernel.error_boundary import ErrorBoundary, error_text
from orchestrator_interactive.kernel.interop import to_local_coordinator
from orchestrator_interactive.loop.tasks import CancellableTask
from orchestrator_interactive.loop.tool_results import as_result, failure, size_of
from orchestrator_interactive.registries.schemas import AlreadyRegistered, not_registered

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable

    from orchestrator_interactive.interactions import InteractionStack
    from orchestrator_interactive.kernel.coordinator import ModuleCoordinator
    from orchestrator_interactive.registries.schemas import ToolConfig

    Run = Callable[[], Coroutine[Any, Any, ToolResult]]

log = structlog.get_logger(__name__)

# Entries per tool, evicted least recently used first; and the size of a result above which it is not cached.
_MAX_KEPT = 256
_MAX_CHARS = 100_000


class ResultCache:
    """The results of one tool, by the arguments of its calls. Failures are not cached.

    Args:
        cache_s: lifetime of a result, in seconds.
        dedup_s: like `cache_s`, and identical calls that overlap share one execution. `None`: they run in parallel.
        clock: returns a monotonic time in seconds.
    """

    def __init__(self, cache_s: float | None, dedup_s: float | None, clock: Callable[[], float]) -> None:
        self._ttl_s = max(cache_s or 0, dedup_s or 0)
        self._shares_calls = dedup_s is not None
        self._clock = clock
        self._results: OrderedDict[str, tuple[float, ToolResult]] = OrderedDict()
        self._running: dict[str, CancellableTask[ToolResult]] = {}
        self._waiting: Counter[CancellableTask[ToolResult]] = Counter()

    async def result_of(self, key: str, run: Run) -> ToolResult:
        """Return the cached result, the result of an identical running call, or that of `run`."""
        until, result = self._results.get(key, (0.0, None))
        if result is not None and self._clock() < until:
            self._results.move_to_end(key)
            return result.model_copy(deep=True)  # callers may change their result, as hooks do
        if self._shares_calls:
            return (await self._join(key, run)).model_copy(deep=True)
        return await self._run(key, run)

    async def _run(self, key: str, run: Run) -> ToolResult:
        result = await run()
        if result.success and self._ttl_s and size_of(result, _MAX_CHARS) <= _MAX_CHARS:
            self._results[key] = (self._clock() + self._ttl_s, result.model_copy(deep=True))
            self._results.move_to_end(key)
            if len(self._results) > _MAX_KEPT:
                self._results.popitem(last=False)
        return result

    async def _join(self, key: str, run: Run) -> ToolResult:
        """Join the running call, or start it. It is cancelled when its last waiting caller is cancelled."""
        call = self._running.get(key)
        if call is None or call.is_over:
            call = self._running[key] = CancellableTask(self._run(key, run))
        self._waiting[call] += 1
        try:
            return await call.shared()
        finally:
            self._waiting[call] -= 1
            if not self._waiting[call]:
                del self._waiting[call]
                if self._running.get(key) is call:
                    del self._running[key]
                call.cancel()
                await call.wait()


@dataclass(frozen=True, slots=True)
class ToolContext:
    """The conversation in which a tool is called.

    Args:
        conversation_id: id of the conversation; without a stack, the session's id.
        agent_id: id of the agent; without a stack, blank.
        stack: the conversation's log; `None` if the session's context has no log.
    """

    conversation_id: str
    agent_id: str
    stack: InteractionStack | None
    coordinator: ModuleCoordinator

    @classmethod
    def of(cls, coordinator: ModuleCoordinator) -> ToolContext:
        """Return the context of calls in this session."""
        stack: InteractionStack | None = coordinator.get_capability("interactions.stack")
        if stack is None:
            return cls(coordinator.session_id, "", None, coordinator)
        return cls(stack.key.conversation_id, stack.key.agent_id, stack, coordinator)


# A function that runs after a success. It takes the result and the call's context; `None`: outside a session.
Effect = Callable[[ToolResult, ToolContext | None], Awaitable[None] | None]

_EFFECTS: dict[str, Effect] = {}


def register_effect(name: str) -> Callable[[Effect], Effect]:
    """Register a function `(result, context)`, async or not, as an effect for the `post_effects` of tools.

    Raises:
        AlreadyRegistered: the name is taken.
    """

    def registered(effect: Effect) -> Effect:
        if name in _EFFECTS:
            raise AlreadyRegistered(f"There is an effect '{name}' already: give this one another name.")
        _EFFECTS[name] = effect
        return effect

    return registered


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


class FunctionTool:
    """A registered function as the contracts' Tool; `mounted` binds it to a session.

    Args:
        clock: returns a monotonic time in seconds, for the cached results.

    Raises:
        NotRegistered: one of the effects is unknown; the message lists the registered effects.
        TypeError: the function's signature cannot be converted to a schema.
    """

    def __init__(self, made: ToolFunction, clock: Callable[[], float]) -> None:
        self.config = config = made.config
        for effect in config.post_effects or ():
            if effect not in _EFFECTS:
                raise not_registered("effect", effect, _EFFECTS)
        self.name, self.description = config.name, config.description
        self.side_effect_free, self.reflect = config.side_effect_free, config.reflect
        self._function = made.function
        self._input_model = config.input_schema or _signature_of(made)
        self.input_schema = schema(self._input_model)
        self._cache = ResultCache(config.cache_ttl, config.dedup_ttl, clock)
        self.coordinator: ModuleCoordinator | None = None

    def get_schema(self) -> dict[str, Any]:
        return self.input_schema

    def mounted(self, coordinator: ModuleCoordinator) -> FunctionTool:
        """Return the tool bound to the session of this coordinator; all sessions share its cached results."""
        bound = copy(self)
        bound.coordinator = coordinator
        return bound

    async def execute(self, input: dict[str, Any]) -> ToolResult:  # noqa: A002 - the name is the contract's
        """Call the function and return its result; never raises."""
        try:
            given = validate(self._input_model, input, self.name)
        except ValueError as e:
            return failure(str(e))
        context = ToolContext.of(self.coordinator) if self.coordinator else None
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
            result = as_result(await self._call(given, context))
            if result.success:
                result = self._with_json_output(result)
        if boundary.error is not None:
            return failure(f"{type(boundary.error).__name__}: {error_text(boundary.error)}")
        return await self._with_effects(result, context) if result.success else result

    async def _call(self, given: BaseModel, context: ToolContext | None) -> Any:
        arguments = {name: getattr(given, name) for name in type(given).model_fields}
        if self.config.requires_context:
            arguments["context"] = context
        if inspect.iscoroutinefunction(self._function):
            return await self._function(**arguments)
        key = context.conversation_id if context else self.name
        returned = await run_blocking(key, partial(self._function, **arguments))
        return await returned if inspect.isawaitable(returned) else returned

    def _with_json_output(self, result: ToolResult) -> ToolResult:
        """Return the result with its output as JSON data; a failed one if it does not match `output_schema`."""
        output: Any = result.output
        if isinstance(output, BaseModel):
            output = output.model_dump(mode="json")
        if self.config.output_schema is not None:
            try:
                output = validate(self.config.output_schema, output, f"The output of {self.name} is not as declared")
            except ValueError as e:
                log.warning("tool.output_invalid", tool=self.name)
                log.debug("tool.output_error", tool=self.name, error=str(e))
                return failure(str(e))
            output = output.model_dump(mode="json")
        return result.model_copy(update={"output": output})

    async def _with_effects(self, result: ToolResult, context: ToolContext | None) -> ToolResult:
        """Run the effects in order. One that fails does not prevent the others; a note after the output reports it."""
        notes = []
        for name in self.config.post_effects or ():
            with ErrorBoundary(log, "tool.effect_failed", effect=name) as boundary:
                running = _EFFECTS[name](result, context)
                if inspect.isawaitable(running):
                    await running
            if boundary.error is not None:
                text = f"[The call succeeded, but its effect '{name}' failed: {error_text(boundary.error)}]"
                notes.append(TextBlock(text=text))
        if not notes:
            return result
        blocks = result.content or [TextBlock(text=result.get_serialized_output())]
        return result.model_copy(update={"content": [*blocks, *notes]})


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


class ToolRegistry:
    """Tools by name, with their own result caches; `clock` returns a monotonic time in seconds, their age."""

    def __init__(self, tools: Iterable[Tool | ToolFunction] = (), clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tools: dict[str, Tool] = {}
        for each in tools:
            self.register(each)

    def register(self, tool: Tool | ToolFunction) -> None:
        """Add a tool of the contracts, or a function with the decorator `@tool`.

        Raises:
            AlreadyRegistered: its name is taken.
            NotRegistered: one of its effects is not registered.
            TypeError: it is not a tool.
        """
        made = FunctionTool(tool, self._clock) if isinstance(tool, ToolFunction) else tool
        if not isinstance(made, Tool) or not isinstance(made.name, str):
            raise TypeError(
                f"{tool!r} is no tool: give a tool of the contracts, or put @tool(ToolConfig(…)) before it."
            )
        if made.name in self._tools:
            raise AlreadyRegistered(f"There is a tool '{made.name}' already: give this one another name.")
        self._tools[made.name] = made

    def get_tool_by_name(self, name: str) -> Tool:
        """Return the tool with this name.

        Raises:
            NotRegistered: there is none; the message lists the registered names.
        """
        if name not in self._tools:
            raise not_registered("tool", name, self._tools)
        return self._tools[name]

    def get_tools(self) -> list[Tool]:
        """Return all tools in order of registration."""
        return list(self._tools.values())

    def list_tools(self) -> dict[str, str]:
        """Return the descriptions of all tools, by name."""
        return {name: tool.description for name, tool in self._tools.items()}


# The shared registry; `agent_calls` adds `call_agent`.
tool_registry = ToolRegistry()


async def mount_tools(coordinator: ModuleCoordinator, names: Iterable[str], registry: ToolRegistry) -> None:
    """Mount tools of a registry into a session, which becomes part of their `ToolContext`.

    Raises:
        NotRegistered: a name is unknown; no tool is mounted.
    """
    coordinator = to_local_coordinator(coordinator)
    for each in [registry.get_tool_by_name(name) for name in names]:
        await coordinator.mount("tools", each.mounted(coordinator) if isinstance(each, FunctionTool) else each)
