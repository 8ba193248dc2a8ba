"""From an instance's configuration to the mount plan of one conversation's session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

    from service.config import InstanceConfig, ModuleConfig


def mount_plan(instance: InstanceConfig, default_provider: str, workspace: Path) -> dict[str, Any]:
    """The plan for a conversation whose files lie in `workspace`."""
    providers = [_entry(m) for m in instance.providers] if instance.providers else [{"module": default_provider}]
    return {
        "session": {
            "orchestrator": _entry(instance.orchestrator),
            "context": _entry(instance.context, _if_simple(instance)),
            **instance.session.model_dump(exclude_none=True),
        },
        "providers": providers,
        "tools": [_entry(tool, _rooted(tool, workspace)) for tool in instance.tools],
        "hooks": [_entry(hook) for hook in instance.hooks],
    }


def _entry(module: ModuleConfig, defaults: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"module": module.module, "source": module.source, "config": {**(defaults or {}), **module.config}}


def _if_simple(instance: InstanceConfig) -> dict[str, Any]:
    return {"system_prompt": instance.instructions} if instance.context.module == "context-simple" else {}


def _rooted(tool: ModuleConfig, workspace: Path) -> dict[str, Any]:
    """Files are confined to the conversation's own folder."""
    return {"root": str(workspace)} if tool.module == "tool-filesystem" else {}
