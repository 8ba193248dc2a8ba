"""From an instance's configuration to the mount plan of one conversation's session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from service.config.config import ModuleConfig

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from orchestrator_interactive.interactions.records import Key
    from service.config.config import InstanceConfig

_WITH_LOG = "context-stack"
_WITH_INSTRUCTIONS = ("context-simple", _WITH_LOG)
_OF_ANTHROPIC = "provider-anthropic"


def mount_plan(  # noqa: PLR0913 - the last three have defaults
    instance: InstanceConfig,
    default_provider: str,
    workspace: Path,
    conversation: Key | None = None,
    limits: Mapping[str, int] | None = None,
    *,
    anthropic_api_key: str = "",
) -> dict[str, Any]:
    """The plan for a conversation whose files lie in `workspace`; `conversation` is what its log is kept under.

    `limits` are the options of `tool-filesystem` that limit this folder. `anthropic_api_key` is for each provider of
    Anthropic's that has none of its own.
    """
    providers = instance.providers or [ModuleConfig(module=default_provider)]
    return {
        "session": {
            "orchestrator": _entry(instance.orchestrator),
            "context": _entry(instance.context, _of_context(instance, conversation)),
            **instance.session.model_dump(exclude_none=True),
        },
        "providers": [_provider(each, anthropic_api_key) for each in providers],
        "tools": [_entry(tool, _rooted(tool, workspace, limits or {})) for tool in instance.tools],
        "hooks": [_entry(hook) for hook in instance.hooks],
    }


def keeps_log(instance: InstanceConfig) -> bool:
    """Whether what is said to this instance is in the store, so that it outlives the process."""
    return instance.context.module == _WITH_LOG


def _entry(module: ModuleConfig, defaults: dict[str, Any] | None = None) -> dict[str, Any]:
    return {"module": module.module, "source": module.source, "config": {**(defaults or {}), **module.config}}


def _of_context(instance: InstanceConfig, conversation: Key | None) -> dict[str, Any]:
    name = instance.context.module
    options: dict[str, Any] = {"system_prompt": instance.instructions} if name in _WITH_INSTRUCTIONS else {}
    if keeps_log(instance) and conversation is not None:
        options |= {"conversation_id": conversation.conversation_id, "agent_id": conversation.agent_id}
    return options


def _provider(module: ModuleConfig, anthropic_api_key: str) -> dict[str, Any]:
    """Pass the key on as an option: the environment of this process does not have it any more."""
    entry = _entry(module)
    if module.module == _OF_ANTHROPIC and anthropic_api_key and not entry["config"].get("api_key"):
        entry["config"]["api_key"] = anthropic_api_key
    return entry


def _rooted(tool: ModuleConfig, workspace: Path, limits: Mapping[str, int]) -> dict[str, Any]:
    """Files are confined to the conversation's own folder. The limits are of that, not of a folder of the user's."""
    if tool.module != "tool-filesystem" or "root" in tool.config:
        return {}
    return {"root": str(workspace), **limits}
