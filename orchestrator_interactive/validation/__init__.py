"""Whether a module keeps to the contract of its type, in its structure and in its behaviour.

`validate` is the entry point. `report` defines the result: a `Check` is one rule of a contract, a `ValidationFinding` its outcome,
a `Report` all of them, and `text` writes that down. A module is examined in a process of its own: `validating` starts
it and listens, `__main__` is its main function, `wire` what they tell each other. There, `examination` goes from
`structure` and `members` to the rules for the type; `stage` gives a module a session, `running` the time limits.
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
