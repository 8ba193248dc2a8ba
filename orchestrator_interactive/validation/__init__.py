"""Check a module against the contract of its type: structure first, then behaviour.

`validate` is the entry point. `rules.md` lists the rules; a `ValidationFinding` is the outcome of one, a `Report` has
all findings. Each module runs in a subprocess (`process`). In it, `module` imports and mounts the module and detects
its type; `orchestrator`, `context`, `provider` and `tools_and_hooks` run the scenarios of the types; `runner` provides
their sessions and time limits. `pytest_plugin` offers the same in a test.
"""

from orchestrator_interactive.validation.process import TIME_LIMIT_S, validate
from orchestrator_interactive.validation.report import (
    MODULE_TYPES,
    ModuleType,
    Outcome,
    Report,
    ValidatedModule,
    ValidationFinding,
    rendered,
)

__all__ = [
    "MODULE_TYPES",
    "TIME_LIMIT_S",
    "ModuleType",
    "Outcome",
    "Report",
    "ValidatedModule",
    "ValidationFinding",
    "rendered",
    "validate",
]
