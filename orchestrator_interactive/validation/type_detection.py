"""Detect the type of a module, and find a configuration with which it mounts something."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.validation.report import Check
from orchestrator_interactive.validation.runner import NotChecked, Returned, ValidationRule, kind
from orchestrator_interactive.validation.sandbox import MOUNT_POINTS

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from orchestrator_interactive.validation.report import ModuleType
    from orchestrator_interactive.validation.runner import Ending, Problems, Validator
    from orchestrator_interactive.validation.sandbox import SandboxSession, ValidationSandbox

# A module may mount several types: its type is the one in its name, else the first mounted one in this order.
_ORDER: tuple[ModuleType, ...] = ("orchestrator", "context", "provider", "tool", "hook")
_CALLED: Mapping[str, ModuleType] = {
    "orchestrator": "orchestrator",
    "loop": "orchestrator",
    "context": "context",
    "provider": "provider",
    "tool": "tool",
    "hook": "hook",
    "hooks": "hook",
}
_MOUNTED: Mapping[ModuleType, str] = {
    "orchestrator": "mounts an orchestrator",
    "context": "mounts a context",
    "provider": "mounts a provider",
    "tool": "mounts a tool",
    "hook": "registers handlers",
}
_DUMMY_KEY = "sk-validation"


@dataclass(frozen=True, slots=True)
class MountSignature:
    """Result of mounting a module once. `types` are the types that it mounted."""

    sandboxes: SandboxSession
    ended: Ending
    types: frozenset[ModuleType] = frozenset()
    returned: Any = None


@dataclass(frozen=True, slots=True)
class DetectedType:
    module_type: ModuleType
    by: str


def type_by_name(module_id: str) -> ModuleType | None:
    """Return the type in a name such as `tool-todo`."""
    return next((_CALLED[word] for word in module_id.lower().replace("_", "-").split("-") if word in _CALLED), None)


def declared_type(module: object) -> ModuleType | None:
    """Return the type that a module declares in `__amplifier_module_type__`."""
    said = getattr(module, "__amplifier_module_type__", None)
    return _CALLED.get(said) if isinstance(said, str) else None


def detect_type(mounting: MountSignature, called: ModuleType | None, wanted: ModuleType | None) -> DetectedType | None:
    """Return the requested type, else the type in the module's name, else the first type that it mounted."""
    if wanted is not None:
        return DetectedType(wanted, "as you asked")
    if called in mounting.types:
        return DetectedType(called, _mounts(called))
    for module_type in _ORDER:
        if module_type in mounting.types:
            return DetectedType(module_type, _mounts(module_type))
    return DetectedType(called, "by its name") if called else None


def others(mounting: MountSignature, detected: DetectedType) -> tuple[DetectedType, ...]:
    """Return the other types that the module mounts."""
    types = (each for each in _ORDER if each in mounting.types and each != detected.module_type)
    return tuple(DetectedType(each, _mounts(each)) for each in types)


def also(module_type: ModuleType) -> str:
    """Return a sentence that names another type of the module."""
    return f"It also {_MOUNTED[module_type]}."


def _mounts(module_type: ModuleType) -> str:
    if module_type == "hook":
        return "detected: it registers handlers"
    return f"detected: it mounts at '{MOUNT_POINTS[module_type]}'"


def mounts_its_type(detected: DetectedType | None, *, configured: bool) -> ValidationRule[MountSignature]:
    """Return the rule that a module mounts an instance of its type."""
    module_type = detected.module_type if detected else None
    rule, fix = "it mounts something", "Call coordinator.mount() in mount()."
    if module_type is not None:
        rule = f"it {_MOUNTED[module_type]}"
    if module_type == "hook":
        fix = "Call coordinator.hooks.register('tool:pre', handler, priority=50, name='my-hook') in mount()."
    elif module_type is not None:
        fix = f"Call `await coordinator.mount('{MOUNT_POINTS[module_type]}', …, name=…)` in mount()."
    check = Check(rule, "Entry Point Pattern, mount() Function", fix, part="structure")

    def find_problems(mounting: MountSignature) -> Problems:
        if module_type in mounting.types:
            return []
        if mounting.types:
            found = " and ".join(_MOUNTED[each] for each in _ORDER if each in mounting.types)
            return [f"It {found}. If that is intended, validate it without --type."]
        if mounting.returned is None:
            raise NotChecked(
                "mount() returned None and mounted nothing, as modules do that lack configuration.",
                "Pass the missing options with --config." if configured else "Pass its configuration with --config.",
            )
        return [f"mount() mounts nothing and registers no handler; it returns {kind(mounting.returned)}."]

    return ValidationRule(check, find_problems)


async def mount_once(validator: Validator, sandboxes: SandboxSession, service_url: str) -> MountSignature:
    """Mount a module with the given configuration; for a provider also with a dummy key and the mock server's URL."""
    plain = await _try(validator, sandboxes)
    if plain.types and "provider" not in plain.types:
        return plain
    for config in _provider_configs(sandboxes.config, service_url):
        mounting = await _try(validator, sandboxes.configured(config))
        if "provider" in mounting.types:
            return mounting
    return plain


def _provider_configs(given: dict[str, Any], service_url: str) -> Iterator[dict[str, Any]]:
    """Yield configurations with a dummy API key and the mock server's URL, then with one of the two options."""
    key = {"api_key": given.get("api_key") or _DUMMY_KEY}
    yield {**given, **key, "base_url": service_url}
    yield {**given, "base_url": service_url}
    yield {**given, **key}


async def _try(validator: Validator, sandboxes: SandboxSession) -> MountSignature:
    async def mount() -> ValidationSandbox:
        async with sandboxes.open() as sandbox:
            return sandbox

    ended = await validator.perform("mount()", mount())
    if not isinstance(ended, Returned):
        return MountSignature(sandboxes, ended)
    sandbox: ValidationSandbox = ended.value
    return MountSignature(sandboxes, ended, sandbox.types, sandbox.returned)
