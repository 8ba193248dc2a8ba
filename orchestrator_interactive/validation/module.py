"""Validate one module in this process: import, mount, type and protocol, then the behaviour of each of its types."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.loading.location import ENTRY_POINT_GROUP, import_module, locate
from orchestrator_interactive.validation.context import check_context
from orchestrator_interactive.validation.orchestrator import check_orchestrator
from orchestrator_interactive.validation.provider import CatchingServer, check_provider
from orchestrator_interactive.validation.report import MODULE_TYPES, ValidatedModule, ValidationFinding, article
from orchestrator_interactive.validation.runner import (
    MOUNT_POINTS,
    NotCheckedError,
    Sandboxes,
    Validator,
    form_problems,
    kind,
)
from orchestrator_interactive.validation.tools_and_hooks import check_hook, check_tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path
    from types import ModuleType as PythonModule

    from orchestrator_interactive.validation.report import ModuleType
    from orchestrator_interactive.validation.runner import CallResult, Message, Sandbox, Verdict

_IMPORT_LIMIT_S = 60.0  # some modules import a lot
_FIX_FIRST = "Fix the problems above, then validate again."
_DUMMY_KEY = "sk-validation"

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


class AbortedError(Exception):
    """No further rules of the module can be checked. The message is the reason."""


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

    def subject(self) -> ValidatedModule:
        """Return the module with the type known before its import: the requested one, or the one in its name."""
        name = locate(self.path).module_id
        if self.module_type is not None:
            return ValidatedModule(str(self.path), name, self.module_type, "as you asked")
        return ValidatedModule(str(self.path), name, _type_by_name(name), "by its name")


async def run_checks(order: ValidationOrder, emit: Callable[[Message], None], home: Path) -> None:
    """Check every rule and emit each finding immediately; the sandbox folders are created in `home`."""
    validator = Validator(locate(order.path), emit, order.limit_s)
    emit(order.subject())
    try:
        module = await _import(validator)
        with CatchingServer() as server:
            await _check_module(order, validator, module, server, home)
    except AbortedError as e:
        emit(_unchecked(None, str(e)))
    except Exception as e:  # noqa: BLE001 - third-party code: reported, not handled
        problem = f"Checking it raises {validator.error_text(e)}."
        emit(replace(_unchecked(None, problem, "Correct the error."), outcome="failed"))


def _unchecked(module_type: ModuleType | None, reason: str, fix: str = _FIX_FIRST) -> ValidationFinding:
    rule = f"its behaviour as {article(module_type)}" if module_type else "its behaviour"
    return ValidationFinding(rule, "not checked", reason, fix, module_type=module_type)


def _require(ok: bool, reason: str) -> None:
    if not ok:
        raise AbortedError(reason)


def _type_by_name(module_id: str) -> ModuleType | None:
    """Return the type in a name such as `tool-todo`."""
    words = module_id.lower().replace("_", "-").split("-")
    return next((_TYPES_BY_NAME[word] for word in words if word in _TYPES_BY_NAME), None)


async def _import(validator: Validator) -> PythonModule:
    location = validator.location

    async def imported() -> PythonModule:
        return import_module(location)

    ended = await validator.perform(f"importing {location.name}", imported(), _IMPORT_LIMIT_S)
    failed = [f"Importing {location.name} fails: {ended.error}."] if ended.error else []
    _require(validator.check("importable", failed), "It cannot be imported.")
    mount = getattr(ended.value, location.attribute, None)
    form = form_problems("It", mount, "coordinator, config")
    missing = f"There is no function {location.attribute}() in {location.file.name}."
    _require(validator.check("has_mount", form if callable(mount) else [missing]), "It cannot be mounted.")
    if location.project is not None:
        lack = f"no entry point in the group '{ENTRY_POINT_GROUP}' that leads to {location.name}"
        validator.check("is_declared", [] if location.entry_point else [f"{location.project} has {lack}."])
    module: PythonModule = ended.value
    return module


async def _check_module(
    order: ValidationOrder, validator: Validator, module: PythonModule, server: CatchingServer, home: Path
) -> None:
    ready = getattr(module, "on_session_ready", None)
    if ready is not None and not validator.check("ready_is_async", form_problems("It", ready, "coordinator")):
        ready = None
    mount = getattr(module, validator.location.attribute)
    sandboxes, ended = await _mount_once(validator, Sandboxes(mount, ready, home, order.config), server.url)
    whose = "It" if ended.error and not ended.cancelled else "mount()"
    failed = [f"{whose} {ended.problem}."] if ended.problem else []
    _require(validator.check("mounts", failed), "It cannot be mounted.")
    types = _detect_types(order, validator, module, ended.value)
    is_found = validator.check("mounts_its_type", _type_verdicts(order, types, ended.value))
    _require(is_found, "It has mounted nothing that can be checked.")
    if ready is not None:
        ended = await validator.perform("on_session_ready()", _call_ready(sandboxes))
        if not validator.check("ready_runs", ended.problems):
            sandboxes = replace(sandboxes, ready=None)
    ended = await validator.perform("its clean-up", _clean_up(sandboxes))
    is_repeatable = validator.check("cleans_up", ended.problems)
    ended = await validator.perform("mount() in two sessions", _differences(sandboxes))
    is_repeatable &= validator.check("mounts_twice", [*ended.problems, *(ended.value or ())])
    _require(is_repeatable, "It cannot be mounted again for every check.")
    for number, module_type in enumerate(types):
        if number and order.module_type:
            also = f"It also {_mounts(module_type)}."
            validator.emit(_unchecked(module_type, also, "Validate without --type."))
        else:
            await _check_as(module_type, order, validator, sandboxes, server)


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
) -> list[ModuleType]:
    """Return the type to check, then the other mounted ones, and emit how they were detected.

    The first is the requested type, else the one that the module declares or has in its name, else the first mounted.
    """
    declared = getattr(module, "__amplifier_module_type__", None)
    named = _TYPES_BY_NAME.get(declared) if isinstance(declared, str) else None
    named = named or _type_by_name(validator.location.module_id)
    found = {
        each: f"detected: it mounts at '{MOUNT_POINTS[each]}'" if each != "hook" else "detected: it registers handlers"
        for each in MODULE_TYPES
        if each in mounted.types
    }
    detected = order.module_type or (named if named in found else next(iter(found), named))
    if detected is None:
        return []
    by = "as you asked" if order.module_type else found.get(detected, "by its name")
    found.pop(detected, None)
    subject = replace(order.subject(), module_type=detected, detected_by=by, others=tuple(found.items()))
    validator.emit(subject)
    return [detected, *found]


def _mounts(module_type: ModuleType) -> str:
    return "registers handlers" if module_type == "hook" else f"mounts {article(module_type)}"


def _type_verdicts(order: ValidationOrder, types: list[ModuleType], mounted: Sandbox) -> Iterator[Verdict]:
    if mounted.types and types[0] not in mounted.types:
        found = " and ".join(_mounts(each) for each in MODULE_TYPES if each in mounted.types)
        yield f"It {found}. If that is intended, validate it without --type."
    elif not mounted.types and mounted.returned is None:
        reason = "mount() returned None and mounted nothing, as modules do that lack configuration."
        options = "the missing options" if order.config else "its configuration"
        yield NotCheckedError(reason, f"Pass {options} with --config.")
    elif not mounted.types:
        yield f"mount() mounts nothing and registers no handler; it returns {kind(mounted.returned)}."


async def _call_ready(sandboxes: Sandboxes) -> None:
    async with replace(sandboxes, ready=None).open() as sandbox:
        await sandboxes.ready(sandbox) if sandboxes.ready else None


async def _clean_up(sandboxes: Sandboxes) -> None:
    async with sandboxes.open() as sandbox:
        await sandbox.clean_up()


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
    if module_type != "hook":
        async with sandboxes.open() as sandbox:
            problems = list(_protocol_problems(module_type, sandbox))
        if not validator.check("implements_protocol", problems):
            validator.emit(_unchecked(module_type, "It does not implement the protocol."))
            return
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


def _protocol_problems(module_type: ModuleType, sandbox: Sandbox) -> Iterator[str]:
    """Yield missing parts of the protocol, and methods that the kernel cannot call."""
    mounted, absent = sandbox.all(module_type), object()
    for one in mounted:
        its = f"{one.name}: " if len(mounted) > 1 else ""
        for name in _TEXTS.get(module_type, ()):
            value = getattr(one.instance, name, absent)
            if value is absent:
                yield f"{its}There is no {name}."
            elif not isinstance(value, str) or not value.strip():
                yield f"{its}Its {name} is {repr(value) if isinstance(value, str) else kind(value)}, not a text."
        for name, arguments in _METHODS[module_type].items():
            method = getattr(one.instance, name, absent)
            if method is absent:
                yield f"{its}There is no {name}()."
            elif not callable(method):
                yield f"{its}Its {name} is no method but {kind(method)}."
            else:
                is_async = name not in _PLAIN_METHODS
                yield from form_problems(f"{its}Its {name}()", method, arguments, is_async=is_async)
