"""Interoperate with `amplifier_core`, the public Amplifier kernel, in both directions.

`contracts.conversion` converts values. `foreign` wraps amplifier_core's objects for our sessions; `adapters` wraps our
modules for its sessions. A module of ours that mounts through `to_local_coordinator` works in both. Nothing here
imports amplifier_core: if it is not in `sys.modules`, none of its objects can exist.
"""

from orchestrator_interactive.kernel.contracts.conversion import local_errors, to_local, to_local_error
from orchestrator_interactive.kernel.interop.adapters import (
    accepts_both,
    to_local_coordinator,
    to_local_provider,
    to_local_tool,
)
from orchestrator_interactive.kernel.interop.foreign import ForeignProvider, to_local_hooks

__all__ = [
    "ForeignProvider",
    "accepts_both",
    "local_errors",
    "to_local",
    "to_local_coordinator",
    "to_local_error",
    "to_local_hooks",
    "to_local_provider",
    "to_local_tool",
]
