"""Check a module against the contract of its type: structure first, then behaviour.

`validate` is the entry point. Each `Check` is one rule of a contract; a `ValidationFinding` is its outcome; a `Report`
holds all findings, and `rendering` prints it. Each module runs in a subprocess: `subprocess` starts it and reads its
messages (`ipc`), `__main__` is its main function. In it, `validator` runs `structure` and `protocol_check`, then the
rules for the module's type; `sandbox` provides a session, `runner` the time limits.
"""

from orchestrator_interactive.validation.rendering import rendered
from orchestrator_interactive.validation.report import (
    MODULE_TYPES,
    Check,
    ModuleType,
    Outcome,
    Report,
    ValidatedModule,
    ValidationFinding,
)
from orchestrator_interactive.validation.subprocess import TIME_LIMIT_S, validate

__all__ = [
    "MODULE_TYPES",
    "TIME_LIMIT_S",
    "Check",
    "ModuleType",
    "Outcome",
    "Report",
    "ValidatedModule",
    "ValidationFinding",
    "rendered",
    "validate",
]
