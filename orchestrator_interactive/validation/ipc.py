"""Serialize messages between the validation process and its parent as JSON, one message at a time."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from orchestrator_interactive.kernel.loading.location import EntryPoint, ModuleLocation
from orchestrator_interactive.validation.report import Check, ValidatedModule, ValidationFinding
from orchestrator_interactive.validation.runner import ValidationStep
from orchestrator_interactive.validation.validator import Order

Message = ValidationStep | ValidationFinding | ValidatedModule

_KINDS: dict[str, type[Message]] = {
    kind.__name__: kind for kind in (ValidationStep, ValidationFinding, ValidatedModule)
}


def dump(message: Message) -> bytes:
    return json.dumps({"kind": type(message).__name__, **asdict(message)}).encode(errors="replace")


def parse(data: bytes) -> Message:
    fields: dict[str, Any] = json.loads(data)
    kind = _KINDS[fields.pop("kind")]
    if "others" in fields:
        fields["others"] = tuple((module_type, by) for module_type, by in fields["others"])
    if fields.get("check") is not None:
        fields["check"] = Check(**fields["check"])
    return kind(**fields)


def dump_order(order: Order) -> bytes:
    return json.dumps(asdict(order), default=str).encode()


def parse_order(data: bytes) -> Order:
    fields = json.loads(data)
    location = fields["location"]
    for name in ("path", "root", "file", "project"):
        location[name] = None if location[name] is None else Path(location[name])
    if location["entry_point"] is not None:
        location["entry_point"] = EntryPoint(**location["entry_point"])
    return Order(**{**fields, "location": ModuleLocation(**location)})
