"""Validate one module, from its import to its behaviour, in the validation process."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.loading.importing import import_module
from orchestrator_interactive.validation import structure
from orchestrator_interactive.validation.context.rules import check_context
from orchestrator_interactive.validation.hook.rules import check_hook
from orchestrator_interactive.validation.orchestrator.rules import check_orchestrator
from orchestrator_interactive.validation.protocol_check import implements
from orchestrator_interactive.validation.provider.catching_server import CatchingServer
from orchestrator_interactive.validation.provider.rules import check_provider
from orchestrator_interactive.validation.report import WITH_ARTICLE, Check, ValidatedModule, ValidationFinding
from orchestrator_interactive.validation.runner import Validator, error_text
from orchestrator_interactive.validation.sandbox import SandboxSession
from orchestrator_interactive.validation.structure import Imported
from orchestrator_interactive.validation.tool.rules import check_tool
from orchestrator_interactive.validation.type_detection import (
    also,
    declared_type,
    detect_type,
    mount_once,
    mounts_its_type,
    others,
    type_by_name,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from orchestrator_interactive.kernel.loading.location import ModuleLocation
    from orchestrator_interactive.validation.report import ModuleType
    from orchestrator_interactive.validation.runner import ValidationStep

    Emit = Callable[[ValidationStep | ValidationFinding | ValidatedModule], None]

# Some modules import a lot.
_IMPORT_S = 60.0

_BEHAVIOUR = Check(rule="its behaviour", section="Validation Checklist", fix="Correct the error.")


_FIX_FIRST = "Fix the problems above, then validate again."


class _Aborted(Exception):  # noqa: N818 - a stop is no error
    """No further checks are possible. The message is the reason."""


@dataclass(frozen=True, slots=True)
class Order:
    """Arguments of a validation.

    Args:
        module_type: the expected type; detected by default.
        config: the module's configuration.
        limit_s: time limit of one check, in seconds.
        given: a valid input of its tool; for several tools, a dict by tool name.
    """

    location: ModuleLocation
    module_type: ModuleType | None = None
    config: dict[str, Any] = field(default_factory=dict)
    limit_s: float = 10.0
    given: dict[str, Any] | None = None


async def run_checks(order: Order, emit: Emit, home: Path) -> None:
    """Check every rule and emit each finding immediately; the sandbox folders are created in `home`."""
    validator = Validator(order.location, emit, order.limit_s)
    emit(_named(order))
    try:
        imported = await _imported(validator)
        with CatchingServer() as server:
            await _run_checks(order, validator, imported, server, home)
    except _Aborted as e:
        emit(ValidationFinding.not_checked(_BEHAVIOUR, str(e), _FIX_FIRST))
    except Exception as e:  # noqa: BLE001 - third-party code: reported, not handled
        emit(ValidationFinding.broken(_BEHAVIOUR, f"Checking it raises {error_text(e, order.location)}."))


async def _imported(validator: Validator) -> Imported:
    location = validator.location
    _require(await validator.check(structure.importable, location, _IMPORT_S), "It cannot be imported.")
    imported = Imported(location, import_module(location))
    for rule in structure.BEFORE_MOUNTING:
        _require(await validator.check(rule, imported), "It cannot be mounted.")
    if location.project is not None:
        await validator.check(structure.is_declared, location)
    if imported.on_session_ready is not None:
        await validator.check(structure.ready_is_async, imported)
    return imported


async def _run_checks(
    order: Order, validator: Validator, imported: Imported, server: CatchingServer, home: Path
) -> None:
    sandboxes = SandboxSession(imported.mount, imported.ready, order.config, home)
    mounting = await mount_once(validator, sandboxes, server.url)
    _require(await validator.check(structure.mounts, mounting.ended), "It cannot be mounted.")

    called = declared_type(imported.module) or type_by_name(order.location.module_id)
    detected = detect_type(mounting, called, order.module_type)
    additional = others(mounting, detected) if detected else ()
    if detected is not None:
        other_types = tuple((each.module_type, each.by) for each in additional)
        known = replace(_named(order), module_type=detected.module_type, detected_by=detected.by)
        validator.emit(replace(known, others=other_types))
    _require(
        await validator.check(mounts_its_type(detected, configured=bool(order.config)), mounting),
        "It has mounted nothing that can be checked.",
    )
    if detected is None:
        return
    sandboxes = await _ready_sandboxes(validator, imported, mounting.sandboxes)
    for rule in structure.AFTER_MOUNTING:
        _require(await validator.check(rule, sandboxes), "It cannot be mounted again for every check.")
    check_as = partial(_check_type, order, validator, sandboxes, server)
    await check_as(detected.module_type)
    for each in additional:
        if order.module_type is None:
            await check_as(each.module_type)
        else:
            fix = "Validate without --type."
            validator.emit(ValidationFinding.not_checked(_behaviour_as(each.module_type), also(each.module_type), fix))


async def _ready_sandboxes(validator: Validator, imported: Imported, sandboxes: SandboxSession) -> SandboxSession:
    if imported.ready is None:
        return sandboxes
    finding = await validator.check(structure.ready_runs, (imported, sandboxes))
    return sandboxes if finding.outcome == "passed" else sandboxes.unready()


async def _check_type(
    order: Order, validator: Validator, sandboxes: SandboxSession, server: CatchingServer, module_type: ModuleType
) -> None:
    validator.module_type = module_type
    try:
        if module_type != "hook":
            async with sandboxes.open() as sandbox:
                finding = await validator.check(implements(module_type), sandbox.all(module_type))
            _require(finding, "It lacks members of the protocol.")
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
    except _Aborted as e:
        validator.emit(ValidationFinding.not_checked(_behaviour_as(module_type), str(e), _FIX_FIRST))
    finally:
        validator.module_type = None


def _behaviour_as(module_type: ModuleType) -> Check:
    return replace(_BEHAVIOUR, rule=f"its behaviour as {WITH_ARTICLE[module_type]}")


def _named(order: Order) -> ValidatedModule:
    """Return the module with the type known before its import: the requested one, or the one in its name."""
    path, name = str(order.location.path), order.location.module_id
    if order.module_type is not None:
        return ValidatedModule(path, name, order.module_type, "as you asked")
    return ValidatedModule(path, name, type_by_name(name), "by its name")


def _require(finding: ValidationFinding, otherwise: str) -> None:
    if finding.outcome in {"failed", "not checked"}:
        raise _Aborted(otherwise)
