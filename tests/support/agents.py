"""Parts for tests of agents: a provider that follows a script, tools of several tempers, recorders, and `make_agent`."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from orchestrator_interactive.kernel import AmplifierSession, HookResult, ModelInfo, ModuleLoader, ProviderInfo, ToolResult
from orchestrator_interactive.kernel.errors import InvalidRequestError
from orchestrator_interactive.kernel.messages import (
    ChatRequest,
    ChatResponse,
    ContentBlock,
    TextBlock,
    ThinkingBlock,
    ToolCall,
    ToolCallBlock,
    Usage,
)
from orchestrator_interactive.modules import context_simple

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Iterable, Sequence

    from orchestrator_interactive.injection import Injection
    from orchestrator_interactive.kernel import CancellationToken, HookRegistry, ModuleCoordinator, ResponseStream
    from orchestrator_interactive.kernel.interfaces import ApprovalSystem, DisplaySystem, Tool

    Row = dict[str, Any]
    Step = Callable[[ChatRequest, ResponseStream], Awaitable[ChatResponse]]
    OnRow = Callable[[Row], Awaitable[None]]

# A test that waits longer than this has found a hang; no test depends on the number.
HANG_S = 3.0


async def soon[T](awaitable: Awaitable[T]) -> T:
    """The outcome of what must end by itself; a hang is a failure rather than a stuck test run."""
    async with asyncio.timeout(HANG_S):
        return await awaitable
