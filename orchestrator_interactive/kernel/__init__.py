"""The agent kernel: sessions, modules, hooks, and the contracts between them. It knows no module by name."""

from orchestrator_interactive.kernel.cancellation import CancellationToken
from orchestrator_interactive.kernel.contracts.messages import ResponseStream
from orchestrator_interactive.kernel.contracts.models import HookResult, ModelInfo, ProviderInfo, ToolResult
from orchestrator_interactive.kernel.coordinator import ModuleCoordinator
from orchestrator_interactive.kernel.hooks import HookRegistry
from orchestrator_interactive.kernel.loading.loader import ModuleLoader
from orchestrator_interactive.kernel.session import AmplifierSession
from orchestrator_interactive.kernel.tool_support import report_progress, reporting, run_blocking

__all__ = [
    "AmplifierSession",
    "CancellationToken",
    "HookRegistry",
    "HookResult",
    "ModelInfo",
    "ModuleCoordinator",
    "ModuleLoader",
    "ProviderInfo",
    "ResponseStream",
    "ToolResult",
    "report_progress",
    "reporting",
    "run_blocking",
]
