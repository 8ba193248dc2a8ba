"""Mount plan: the modules of a session, parsed from its configuration."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
from typing import Any, NamedTuple

_REQUIRED = ("orchestrator", "context")
_MAPPINGS = (dict, Mapping)  # a dict is recognised several times faster than a Mapping
_LISTS = ("providers", "tools", "hooks")


class ModuleSpec(NamedTuple):
    """One module of a plan; `point` is its mount point, or `hooks`.

    `instance_id` is the name of a provider in place of its own, so that a plan can have several of one module.
    """

    point: str
    module: str
    config: dict[str, Any]
    source: Any
    instance_id: str | None = None


class MountPlan(NamedTuple):
    """Modules of a session, in mount order."""

    required: tuple[ModuleSpec, ...]
    optional: tuple[ModuleSpec, ...]
    hook_timeout_s: float | None

    @classmethod
    def from_config(cls, config: Any) -> MountPlan:
        """Parse a configuration.

        Raises:
            ValueError: no orchestrator or no context is configured, or a part has the wrong type; the message names it.
        """
        whole = _mapping(config, "config")
        session = _mapping(whole.get("session") or {}, "session")
        for limit in ("injection_budget_per_turn", "injection_size_limit"):
            value = session.get(limit)
            if value is not None and (not _is_number(value) or not value >= 0):
                raise ValueError(
                    f"session.{limit} must be a number, 0 or more, or left out for no limit; it is {value!r}."
                )
        timeout_s = session.get("hook_timeout_s")
        if timeout_s is not None and (not _is_number(timeout_s) or not timeout_s > 0):
            raise ValueError(f"session.hook_timeout_s must be a number of seconds above 0; it is {timeout_s!r}.")
        required = []
        for point in _REQUIRED:
            if not (entry := session.get(point)):
                raise ValueError(f"The configuration must specify session.{point}.")
            inherited = {"config": _mapping(whole.get(point) or {}, point).get("config")}
            if isinstance(entry, str):
                inherited["source"] = session.get(f"{point}_source")
            required.append(_spec(entry, point, f"session.{point}", inherited))
        optional = []
        for point in _LISTS:
            entries = whole.get(point)
            if entries is not None and not isinstance(entries, list | tuple):
                raise ValueError(f"{point} must be a list of modules, not {type(entries).__name__}.")
            optional += [_spec(entry, point, f"{point}[{i}]", {}) for i, entry in enumerate(entries or ())]
        return cls(tuple(required), tuple(optional), timeout_s)


def merge_configs(base: Mapping[str, Any], overlay: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with `overlay` merged into a deep copy.

    Dictionaries are merged by key, but a module that replaces another does not inherit its options. Lists of modules
    are merged by module: configs of the same module are merged, other modules are appended. Other values are replaced.
    """
    base, overlay = _collect_modules(base), _collect_modules(overlay)
    result: dict[str, Any] = dict(base)
    for key, value in overlay.items():
        if key in _LISTS and isinstance(value, list) and isinstance(result.get(key), list):
            result[key] = _merge_modules(result[key], value)
        else:
            result[key] = _merge_value(result.get(key), value)
    return result


def _collect_modules(config: Mapping[str, Any]) -> dict[str, Any]:
    """Return a copy with all settings of the orchestrator and of the context under `session`."""
    result: dict[str, Any] = deepcopy(dict(config))
    session = result.get("session")
    for point in _REQUIRED:
        at_top = result.pop(point, None)
        if at_top is None and not isinstance(session, dict):
            continue
        session = result.setdefault("session", {})
        named = {"module": entry} if isinstance(entry := session.get(point), str) else entry or {}
        source = session.pop(f"{point}_source", None)
        settings = {**({"source": source} if source is not None else {}), **(at_top or {}), **named}
        if settings:
            session[point] = settings
    return result


def _merge_value(base: Any, overlay: Any) -> Any:
    if not isinstance(overlay, Mapping) or not isinstance(base, Mapping):
        return deepcopy(overlay)
    if "module" in overlay and overlay["module"] != base.get("module"):
        return deepcopy(dict(overlay))
    return {**base, **{key: _merge_value(base.get(key), value) for key, value in overlay.items()}}


def _merge_modules(base: list[Any], overlay: list[Any]) -> list[Any]:
    """Merge entries of the same module in order, the second with the second. An empty overlay removes all."""
    result = [_full_entry(entry) for entry in base] if overlay else []
    matched: set[int] = set()
    for entry in map(_full_entry, overlay):
        same = (i for i, there in enumerate(result) if i not in matched and _identity(there) == _identity(entry))
        place = next(same, None)
        if place is None:
            place = len(result)
            result.append(deepcopy(entry))
        else:
            result[place] = _merge_value(result[place], entry)
        matched.add(place)
    return result


def _full_entry(entry: Any) -> Any:
    return {"module": entry} if isinstance(entry, str) else entry


def _identity(entry: Any) -> tuple[Any, Any]:
    return (entry.get("module"), entry.get("instance_id")) if isinstance(entry, Mapping) else (entry, None)


def _spec(given: Any, point: str, where: str, inherited: dict[str, Any]) -> ModuleSpec:
    """Return the module of an entry, its name or a mapping; `inherited` fields apply unless the entry has them."""
    entry = {**inherited, **_mapping(_full_entry(given), where)}
    module = entry.get("module")
    if not isinstance(module, str) or not module.strip():
        raise ValueError(f"{where} names no module; give it a `module`, such as 'tool-todo'.")
    config = _mapping(entry.get("config") or {}, f"{where}.config")
    instance_id = entry.get("instance_id") if point == "providers" else None
    if instance_id is not None and (not isinstance(instance_id, str) or not instance_id.strip()):
        raise ValueError(f"{where}.instance_id must be a name, not {instance_id!r}.")
    return ModuleSpec(point, module, dict(config), entry.get("source"), instance_id)


def _mapping(value: Any, where: str) -> Mapping[str, Any]:
    if not isinstance(value, _MAPPINGS):
        raise ValueError(f"{where} must be a mapping, not {type(value).__name__}.")  # noqa: TRY004 - the contract's
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
