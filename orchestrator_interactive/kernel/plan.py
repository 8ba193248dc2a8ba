"""The mount plan: which modules a session is made of, read from its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_REQUIRED = ("orchestrator", "context")
_LISTS = ("providers", "tools", "hooks")


@dataclass(frozen=True, slots=True)
class ModuleSpec:
    """One module of a plan; `point` is where it belongs: a mount point, or `hooks`."""

    point: str
    module: str
    config: dict[str, Any]
    source: Any


@dataclass(frozen=True, slots=True)
class MountPlan:
    """The modules of a session, in the order in which they are mounted."""

    required: tuple[ModuleSpec, ...]
    optional: tuple[ModuleSpec, ...]
    hook_timeout_s: float | None

    @classmethod
    def read(cls, config: Any) -> MountPlan:
        """Read a configuration.

        Raises:
            ValueError: it names no orchestrator or no context, or a part has the wrong form; the message says which.
        """
        whole = _mapping(config, "config")
        session = _mapping(whole.get("session") or {}, "session")
        for limit in ("injection_budget_per_turn", "injection_size_limit", "hook_timeout_s"):
            _check_limit(session.get(limit), f"session.{limit}")
        required = tuple(_required(whole, session, point) for point in _REQUIRED)
        optional = tuple(spec for point in _LISTS for spec in _listed(whole.get(point), point))
        return cls(required, optional, session.get("hook_timeout_s"))


def merged(base: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """Lay one configuration over another.

    Dictionaries are merged key by key. Lists of modules are merged by module: one that both name gets both configs,
    others are added. Everything else is replaced.
    """
    result = dict(base)
    for key, value in overlay.items():
        result[key] = _merged_value(result.get(key), value)
    return result


def _merged_value(base: Any, overlay: Any) -> Any:
    if isinstance(base, Mapping) and isinstance(overlay, Mapping):
        return merged(base, overlay)
    if _lists_modules(base) and _lists_modules(overlay):
        modules = {_module_of(entry): entry for entry in base}
        for entry in overlay:
            modules[_module_of(entry)] = _merged_value(modules.get(_module_of(entry)), entry)
        return list(modules.values())
    return overlay


def _lists_modules(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(map(_module_of, value))


def _module_of(entry: Any) -> Any:
    return entry.get("module") if isinstance(entry, Mapping) else entry if isinstance(entry, str) else None


def _required(config: Mapping[str, Any], session: Mapping[str, Any], point: str) -> ModuleSpec:
    entry = session.get(point)
    if not entry:
        raise ValueError(f"The configuration must specify session.{point}.")
    beside = _mapping(config.get(point) or {}, point)
    if isinstance(entry, str):
        entry = {"module": entry, "source": session.get(f"{point}_source")}
    return _spec({"config": beside.get("config"), **_mapping(entry, f"session.{point}")}, point, f"session.{point}")


def _listed(entries: Any, point: str) -> list[ModuleSpec]:
    if entries is None:
        return []
    if not isinstance(entries, list | tuple):
        raise ValueError(f"{point} must be a list of modules, not {type(entries).__name__}.")  # noqa: TRY004 - the contract's
    named = [{"module": entry} if isinstance(entry, str) else entry for entry in entries]
    return [_spec(_mapping(entry, f"{point}[{i}]"), point, f"{point}[{i}]") for i, entry in enumerate(named)]


def _spec(entry: Mapping[str, Any], point: str, where: str) -> ModuleSpec:
    module = entry.get("module")
    if not isinstance(module, str) or not module:
        raise ValueError(f"{where} names no module; give it a `module`, such as 'tool-todo'.")
    config = _mapping(entry.get("config") or {}, f"{where}.config")
    return ModuleSpec(point, module, dict(config), entry.get("source"))


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise ValueError(f"{where} must be a mapping, not {type(value).__name__}.")  # noqa: TRY004 - the contract's
    return value


def _check_limit(value: Any, where: str) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float) or value < 0):
        raise ValueError(f"{where} must be a number, 0 or more, or left out for no limit; it is {value!r}.")
