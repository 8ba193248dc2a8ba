"""Living beside `amplifier_core`, the public Amplifier kernel: its objects become ours, and ours its, here only.

`conversion` turns values. `guests` are its things in our sessions, and `abroad` are ours in its sessions; `at_home` is
all that a module of ours needs to work in either. Nothing here imports amplifier_core: as long as it is not loaded,
nothing of it can have come our way.
"""

from orchestrator_interactive.kernel.contracts.conversion import own, own_error, own_errors
from orchestrator_interactive.kernel.interop.adapters import at_home, bilingual, own_provider, own_tool
from orchestrator_interactive.kernel.interop.foreign import ForeignProvider, own_hooks

__all__ = [
    "ForeignProvider",
    "at_home",
    "bilingual",
    "own",
    "own_error",
    "own_errors",
    "own_hooks",
    "own_provider",
    "own_tool",
]
