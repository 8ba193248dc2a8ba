"""Rows and texts of the loop that tests compare with."""

from orchestrator_interactive.loop.injection_queue import injection_row, notice_row
from orchestrator_interactive.loop.tool_results import (
    MAX_CHARS,
    MAX_KEPT_CHARS,
    NOT_STARTED,
    PROCESS_ENDED,
    STILL_RUNNING,
    UNKNOWN_OUTCOME,
    late_results_row,
    still_running_row,
    unknown_row,
)

__all__ = [
    "MAX_CHARS",
    "MAX_KEPT_CHARS",
    "NOT_STARTED",
    "PROCESS_ENDED",
    "STILL_RUNNING",
    "UNKNOWN_OUTCOME",
    "injection_row",
    "late_results_row",
    "notice_row",
    "still_running_row",
    "unknown_row",
]
