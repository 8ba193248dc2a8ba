"""Validate one module in this process: import, mount, type and protocol, then the behaviour of each of its types."""

from __future__ import annotations

import inspect
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.contracts.errors import ModuleLoadError
from orchestrator_interactive.kernel.loading.location import ENTRY_POINT_GROUP, import_module, locate
from orchestrator_interactive.validation.catching_server import CatchingServer
from orchestrator_interactive.validation.context import check_context
from orchestrator_interactive.validation.orchestrator import check_orchestrator
from orchestrator_interactive.validation.provider import check_provider
from orchestrator_interactive.validation.report import MODULE_TYPES, WITH_ARTICLE, ValidatedModule, ValidationFinding
from orchestrator_interactive.validation.runner import AbortedError, NotCheckedError, Validator, called, kind
from orchestrator_interactive.validation.sandbox import MOUNT_POINTS, Sandboxes
from orchestrator_interactive.validation.tools_and_hooks import check_hook, check_tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from types import ModuleType as PythonModule

    from orchestrator_interactive.kernel.loading.location import ModuleLocation
    from orchestrator_interactive.validation.report import ModuleType
    from orchestrator_interactive.validation.runner import CallResult, Message
    from orchestrator_interactive.validation.sandbox import Sandbox

_IMPORT_LIMIT_S = 60.0  # some modules import a lot
_UNMOUNTABLE, _UNREPEATABLE = "It cannot be mounted.", "It cannot be mounted again for every check."
_FIX_FIRST = "Fix the problems above, then validate again."
_DUMMY_KEY = "sk-validation"
_ABSENT = object()

_TYPES_BY_NAME: Mapping[str, ModuleType] = {
    **{module_type: module_type for module_type in MODULE_TYPES},
    "loop": "orchestrator",
    "hooks": "hook",
}
# Methods of each protocol with the arguments that the kernel passes; "=…" follows the named ones.
_METHODS: Mapping[ModuleType, Mapping[str, str]] = {
    "orchestrator": {"execute": "prompt=…, context=…, providers=…, tools=…, hooks=…, coordinator=…"},
    "context": {
        "add_message": "message",
        "get_messages_for_request": "token_budget=…, provider=…",
        "get_messages": "",
        "set_messages": "messages",
        "clear": "",
    },
    "provider": {"get_info": "", "list_models": "", "complete": "request, stream=…", "parse_tool_calls": "response"},
    "tool": {"execute": "input"},
}
_PLAIN_METHODS = ("get_info", "parse_tool_calls")
_TEXTS: Mapping[ModuleType, tuple[str, ...]] = {"provider": ("name",), "tool": ("name", "description")}


@dataclass(frozen=True, slots=True)
class ValidationOrder:
    """Arguments of a validation.

    Args:
        module_type: the expected type; detected by default.
        config: the module's configuration.
        limit_s: time limit of one check, in seconds.
        given: a valid input of its tool; for several tools, a dict by tool name.
    """

    path: Path
    module_type: ModuleType | None = None
    config: dict[str, Any] = field(default_factory=dict)
    limit_s: float = 10.0
    given: dict[str, Any] | None = None


async def run_checks(order: ValidationOrder, emit: Callable[[Message], None], home: Path) -> None:
    """Check every rule and emit each finding immediately; the sandbox folders are created in `home`."""
    validator = Validator(locate(order.path), emit, order.limit_s)
    emit(subject_of(order))
    try:
        module = _import(validator)
        with CatchingServer() as server:
            await _check_module(order, validator, module, server, home)
    except AbortedError as e:
        emit(_unchecked(None, str(e), _FIX_FIRST))
    except Exception as e:  # noqa: BLE001 - third-party code: reported, not handled
        finding = _unchecked(None, f"Checking it raises {validator.error_text(e)}.", "Correct the error.")
        emit(replace(finding, outcome="failed"))


def subject_of(order: ValidationOrder) -> ValidatedModule:
    """Return the module with the type known before its import: the requested one, or the one in its name."""
    name = locate(order.path).module_id
    if order.module_type is not None:
        return ValidatedModule(str(order.path), name, order.module_type, "as you asked")
    return ValidatedModule(str(order.path), name, _type_by_name(name), "by its name")


def _type_by_name(module_id: str) -> ModuleType | None:
    """Return the type in a name such as `tool-todo`."""
    words = module_id.lower().replace("_", "-").split("-")
    return next((_TYPES_BY_NAME[word] for word in words if word in _TYPES_BY_NAME), None)


def _import(validator: Validator) -> PythonModule:
    location, limit_s = validator.location, validator.limit_s
    validator.limit_s = _IMPORT_LIMIT_S
    validator.check("importable", _import_problems(location), "It cannot be imported.")
    validator.limit_s = limit_s
    module = import_module(location)
    mount = getattr(module, location.attribute, None)
    missing = f"There is no function {location.attribute}() in {location.file.name}."
    validator.check("has_mount", [] if callable(mount) else [missing], _UNMOUNTABLE)
    is_async = inspect.iscoroutinefunction(mount)
    validator.check("mount_is_async", [] if is_async else ["It is a plain function."], _UNMOUNTABLE)
    validator.check("mount_takes_both", _call_problems("It", mount, "coordinator, config"), _UNMOUNTABLE)
    if location.project is not None:
        lack = f"no entry point in the group '{ENTRY_POINT_GROUP}' that leads to {location.name}"
        validator.check("is_declared", [] if location.entry_point else [f"{location.project} has {lack}."])
    if (ready := getattr(module, "on_session_ready", None)) is not None:
        validator.check("ready_is_async", _ready_problems(ready))
    return module


def _import_problems(location: ModuleLocation) -> Iterator[str]:
    try:
        import_module(location)
    except ModuleLoadError as e:
        yield f"Importing {location.name} fails: {e}."


def _ready_problems(ready: Any) -> list[str]:
    if not inspect.iscoroutinefunction(ready):
        return ["It is no async function."]
    return _call_problems("It", ready, "coordinator")


def _call_problems(method: str, function: Any, arguments: str) -> list[str]:
    """Return why a function cannot be called with arguments such as "request, stream=…"."""
    names = [name for name in arguments.split(", ") if name]
    try:
        inspect.signature(function).bind(
            *(name for name in names if not name.endswith("=…")),
            **{name.removesuffix("=…"): None for name in names if name.endswith("=…")},
        )
    except TypeError as e:
        return [f"{method} cannot be called with ({arguments}): {e}."]
    return []


async def _check_module(
    order: ValidationOrder, validator: Validator, module: PythonModule, server: CatchingServer, home: Path
) -> None:
    ready = getattr(module, "on_session_ready", None)
    usable = None if ready is None or _ready_problems(ready) else ready
    mount = getattr(module, validator.location.attribute)
    sandboxes, ended = await _mount_once(validator, Sandboxes(mount, usable, home, order.config), server.url)
    whose = "It" if ended.error and not ended.cancelled else "mount()"
    validator.check("mounts", [f"{whose} {ended.problem}."] if ended.problem else [], _UNMOUNTABLE)
    detected, others = _detect_types(order, validator, module, ended.value)
    _check_mounted_type(order, validator, detected, ended.value)
    if usable is not None and not await validator.scenario("ready_runs", _ready_errors(sandboxes)):
        sandboxes = replace(sandboxes, ready=None)
    await validator.scenario("cleans_up", _cleanup_errors(sandboxes), _UNREPEATABLE)
    await validator.scenario("mounts_twice", _differences(sandboxes), _UNREPEATABLE)
    for number, module_type in enumerate([detected, *others] if detected else []):
        if number == 0 or order.module_type is None:
            await _check_as(module_type, order, validator, sandboxes, server)
        else:
            validator.emit(_unchecked(module_type, f"It also {_mounts(module_type)}.", "Validate without --type."))


async def _mount_once(validator: Validator, sandboxes: Sandboxes, service_url: str) -> tuple[Sandboxes, CallResult]:
    """Mount a module with the given options; for a provider also with a dummy key and the mock server's URL."""

    async def mount(sandboxes: Sandboxes) -> Sandbox:
        async with sandboxes.open() as sandbox:
            return sandbox

    plain = await validator.perform("mount()", mount(sandboxes))
    if plain.value and plain.value.types and "provider" not in plain.value.types:
        return sandboxes, plain
    key = {"api_key": sandboxes.config.get("api_key") or _DUMMY_KEY}
    for options in ({**key, "base_url": service_url}, {"base_url": service_url}, key):
        configured = replace(sandboxes, config=sandboxes.config | options)
        ended = await validator.perform("mount()", mount(configured))
        if ended.value and "provider" in ended.value.types:
            return configured, ended
    return sandboxes, plain


def _detect_types(
    order: ValidationOrder, validator: Validator, module: PythonModule, mounted: Sandbox
) -> tuple[ModuleType | None, list[ModuleType]]:
    """Return the type to check and the other mounted ones, and emit how they were detected.

    It is the requested type, else the one that the module declares or has in its name, else the first mounted one.
    """
    declared = getattr(module, "__amplifier_module_type__", None)
    named = _TYPES_BY_NAME.get(declared) if isinstance(declared, str) else None
    named = named or _type_by_name(validator.location.module_id)
    found = {each: _mounts_at(each) for each in MODULE_TYPES if each in mounted.types}
    detected = order.module_type or (named if named in found else next(iter(found), named))
    if detected is None:
        return None, []
    by = "as you asked" if order.module_type else found.pop(detected, "by its name")
    others = tuple((each, how) for each, how in found.items() if each != detected)
    validator.emit(replace(subject_of(order), module_type=detected, detected_by=by, others=others))
    return detected, [each for each, _ in others]


def _mounts_at(module_type: ModuleType) -> str:
    if module_type == "hook":
        return "detected: it registers handlers"
    return f"detected: it mounts at '{MOUNT_POINTS[module_type]}'"


def _mounts(module_type: ModuleType | None) -> str:
    if module_type is None:
        return "mounts something"
    return "registers handlers" if module_type == "hook" else f"mounts {WITH_ARTICLE[module_type]}"


def _check_mounted_type(
    order: ValidationOrder, validator: Validator, module_type: ModuleType | None, mounted: Sandbox
) -> None:
    call = "coordinator.mount()"
    if module_type == "hook":
        call = "coordinator.hooks.register('tool:pre', handler, priority=50, name='my-hook')"
    elif module_type is not None:
        call = f"`await coordinator.mount('{MOUNT_POINTS[module_type]}', …, name=…)`"
    found = [_mounts(each) for each in MODULE_TYPES if each in mounted.types]

    def problems() -> Iterator[str]:
        if found and module_type not in mounted.types:
            yield f"It {' and '.join(found)}. If that is intended, validate it without --type."
        elif not found and mounted.returned is None:
            reason = "mount() returned None and mounted nothing, as modules do that lack configuration."
            options = "the missing options" if order.config else "its configuration"
            raise NotCheckedError(reason, f"Pass {options} with --config.")
        elif not found:
            yield f"mount() mounts nothing and registers no handler; it returns {kind(mounted.returned)}."

    nothing = "It has mounted nothing that can be checked."
    validator.check("mounts_its_type", problems(), nothing, mounts=_mounts(module_type), call=call)


async def _ready_errors(sandboxes: Sandboxes) -> list[str]:
    async with replace(sandboxes, ready=None).open() as sandbox:
        await sandboxes.ready(sandbox.coordinator) if sandboxes.ready else None
    return []


async def _cleanup_errors(sandboxes: Sandboxes) -> list[str]:
    async with sandboxes.open() as sandbox:
        for clean_up in sandbox.cleanups():
            await called(clean_up)
    return []


async def _differences(sandboxes: Sandboxes) -> list[str]:
    """Return how two sessions differ, and the objects with session state that they share."""
    async with sandboxes.open() as one, sandboxes.open() as other:
        names = [", ".join(f"the {m.module_type} '{m.name}'" for m in s.mounted) or "nothing" for s in (one, other)]
        if names[0] != names[1] or one.types != other.types:
            return [f"The first session gets {names[0]}, the second {names[1]}."]
        return [
            f"Both sessions get the same {mounted.module_type}."
            for mounted, again in zip(one.mounted, other.mounted, strict=True)
            if mounted.instance is again.instance and mounted.module_type in ("orchestrator", "context")
        ]


async def _check_as(
    module_type: ModuleType, order: ValidationOrder, validator: Validator, sandboxes: Sandboxes, server: CatchingServer
) -> None:
    validator.module_type = module_type
    try:
        if module_type != "hook":
            async with sandboxes.open() as sandbox:
                problems = list(_protocol_problems(module_type, sandbox))
            validator.check("implements_protocol", problems, "It does not implement the protocol.")
        match module_type:
            case "orchestrator":
                await check_orchestrator(validator, sandboxes)
            case "context":
                await check_context(validator, sandboxes)
            case "provider":
                await check_provider(validator, sandboxes, server)
            case "tool":
                await check_tool(validator, sandboxes, order.given)
            case "hook":
                await check_hook(validator, sandboxes)
    except AbortedError as e:
        validator.emit(_unchecked(module_type, str(e), _FIX_FIRST))
    finally:
        validator.module_type = None


def _protocol_problems(module_type: ModuleType, sandbox: Sandbox) -> Iterator[str]:
    """Yield missing parts of the protocol, and methods that the kernel cannot call."""
    mounted = sandbox.all(module_type)
    for one in mounted:
        its = f"{one.name}: " if len(mounted) > 1 else ""
        for name in _TEXTS.get(module_type, ()):
            value = getattr(one.instance, name, _ABSENT)
            if value is _ABSENT:
                yield f"{its}There is no {name}."
            elif not isinstance(value, str) or not value.strip():
                yield f"{its}Its {name} is {repr(value) if isinstance(value, str) else kind(value)}, not a text."
        for name, arguments in _METHODS[module_type].items():
            method = getattr(one.instance, name, _ABSENT)
            is_async = inspect.iscoroutinefunction(method)
            if method is _ABSENT:
                yield f"{its}There is no {name}()."
            elif not callable(method):
                yield f"{its}Its {name} is no method but {kind(method)}."
            elif inspect.isroutine(method) and is_async == (name in _PLAIN_METHODS):
                yield f"{its}Its {name}() is {'async' if is_async else 'a plain function'}."
            else:
                yield from _call_problems(f"{its}Its {name}()", method, arguments)


def _unchecked(module_type: ModuleType | None, reason: str, fix: str) -> ValidationFinding:
    rule = f"its behaviour as {WITH_ARTICLE[module_type]}" if module_type else "its behaviour"
    return ValidationFinding(rule, "not checked", reason, fix, module_type=module_type)
