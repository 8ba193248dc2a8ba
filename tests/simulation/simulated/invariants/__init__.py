"""What must hold in every schedule, each with a judge of its own; `Invariants` is all of them."""

from .all_invariants import Invariants
from .loop_options import Terms
from .runs import RunRecord, StopRecord
from .tool_executions import Use

__all__ = ["Invariants", "RunRecord", "StopRecord", "Terms", "Use"]
