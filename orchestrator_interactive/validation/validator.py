"""Validate one module, from its import to its behaviour, in the validation process."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel.loading.importing import import_module
from orchestrator_interactive.validation import structure
from orchestrator_interactive.validation.context.rules import examine_context
from orchestrator_interactive.validation.hook.rules import examine_hook
from orchestrator_interactive.validation.orchestrator.rules import examine_orchestrator
from orchestrator_interactive.validation.protocol_check import implements
from orchestrator_interactive.validation.provider.catching_server import CatchingServer
from orchestrator_interactive.validation.provider.rules import examine_provider
from orchestrator_interactive.validation.report import WITH_ARTICLE, Check, ValidatedModule, ValidationFinding
from orchestrator_interactive.validation.runner import Validator, told
from orchestrator_interactive.validation.sandbox import SandboxSession
from orchestrator_interactive.validation.structure import Imported
from orchestrator_interactive.validation.tool.rules import examine_tool
from orchestrator_interactive.validation.type_detection import (
    also,
    mount_once,
    mounts_its_type,
    others,
    recognise,
    type_by_name,
    type_it_says,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from orchestrator_interactive.kernel.loading.location import ModuleLocation
    from orchestrator_interactive.validation.report import ModuleType
    from orchestrator_interactive.validation.runner import ValidationStep

    Tell = Callable[[ValidationStep | ValidationFinding | ValidatedModule], None]

# Some modules import a lot.
_IMPORT_S = 60.0

_BEHAVIOUR = Check(rule="its behaviour", section="Validation Checklist", fix="Correct the error.")


_FIRST = "Fix the problems above, then validate again."


class _Enough(Exception):  # noqa: N818 - a stop is no error
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


async def examine(order: Order, tell: Tell, home: Path) -> None:
    """Check every rule and emit each finding immediately; the sandbox folders are created in `home`."""
    examination = Validator(order.location, tell, order.limit_s)
    tell(_named(order))
    try:
        imported = await _imported(examination)
        with CatchingServer() as server:
            await _examined(order, examination, imported, server, home)
    except _Enough as e:
        tell(ValidationFinding.not_checked(_BEHAVIOUR, str(e), _FIRST))
    except Exception as e:  # noqa: BLE001 - third-party code: reported, not handled
        tell(ValidationFinding.broken(_BEHAVIOUR, f"Checking it raises {told(e, order.location)}."))


async def _imported(examination: Validator) -> Imported:
    location = examination.location
    _require(await examination.check(structure.importable, location, _IMPORT_S), "It cannot be imported.")
    imported = Imported(location, import_module(location))
    for rule in structure.BEFORE_MOUNTING:
        _require(await examination.check(rule, imported), "It cannot be mounted.")
    if location.project is not None:
        await examination.check(structure.is_declared, location)
    if imported.on_session_ready is not None:
        await examination.check(structure.ready_is_async, imported)
    return imported


async def _examined(
    order: Order, examination: Validator, imported: Imported, server: CatchingServer, home: Path
) -> None:
    theatre = SandboxSession(imported.mount, imported.ready, order.config, home)
    mounting = await mount_once(examination, theatre, server.url)
    _require(await examination.check(structure.mounts, mounting.ended), "It cannot be mounted.")

    called = type_it_says(imported.module) or type_by_name(order.location.module_id)
    recognised = recognise(mounting, called, order.module_type)
    besides = others(mounting, recognised) if recognised else ()
    if recognised is not None:
        told_others = tuple((each.module_type, each.by) for each in besides)
        known = replace(_named(order), module_type=recognised.module_type, recognised_by=recognised.by)
        examination.tell(replace(known, others=told_others))
    _require(
        await examination.check(mounts_its_type(recognised, configured=bool(order.config)), mounting),
        "It has mounted nothing that can be checked.",
    )
    if recognised is None:
        return
    theatre = await _ready_theatre(examination, imported, mounting.theatre)
    for rule in structure.AFTER_MOUNTING:
        _require(await examination.check(rule, theatre), "It cannot be mounted again for every check.")
    examine_as = partial(_examine_type, order, examination, theatre, server)
    await examine_as(recognised.module_type)
    for each in besides:
        if order.module_type is None:
            await examine_as(each.module_type)
        else:
            fix = "Validate without --type."
            examination.tell(
                ValidationFinding.not_checked(_behaviour_as(each.module_type), also(each.module_type), fix)
            )


async def _ready_theatre(examination: Validator, imported: Imported, theatre: SandboxSession) -> SandboxSession:
    if imported.ready is None:
        return theatre
    finding = await examination.check(structure.ready_runs, (imported, theatre))
    return theatre if finding.outcome == "passed" else theatre.unready()


async def _examine_type(
    order: Order, examination: Validator, theatre: SandboxSession, server: CatchingServer, module_type: ModuleType
) -> None:
    examination.module_type = module_type
    try:
        if module_type != "hook":
            async with theatre.stage() as stage:
                finding = await examination.check(implements(module_type), stage.all(module_type))
            _require(finding, "It lacks members of the protocol.")
        match module_type:
            case "orchestrator":
                await examine_orchestrator(examination, theatre)
            case "context":
                await examine_context(examination, theatre)
            case "provider":
                await examine_provider(examination, theatre, server)
            case "tool":
                await examine_tool(examination, theatre, order.given)
            case "hook":
                await examine_hook(examination, theatre)
    except _Enough as e:
        examination.tell(ValidationFinding.not_checked(_behaviour_as(module_type), str(e), _FIRST))
    finally:
        examination.module_type = None


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
        raise _Enough(otherwise)
