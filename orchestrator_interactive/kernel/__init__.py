"""The agent kernel: sessions, modules, hooks, and the contracts between them. It knows no module by name."""

from orchestrator_interactive.kernel.blocking import run_blocking
from orchestrator_interactive.kernel.cancellation import CancellationToken
from orchestrator_interactive.kernel.coordinator import ModuleCoordinator
from orchestrator_interactive.kernel.hooks import HookRegistry
from orchestrator_interactive.kernel.loader import ModuleLoader
from orchestrator_interactive.kernel.models import HookResult, ModelInfo, ProviderInfo, ToolResult
from orchestrator_interactive.kernel.report import report, reporting
from orchestrator_interactive.kernel.session import AmplifierSession
from orchestrator_interactive.kernel.stream import ResponseStream

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
    "report",
    "reporting",
    "run_blocking",
]
