"""The configuration: a YAML file for what the agents are, the environment for secrets and addresses."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import yaml
from pydantic import BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

_DEFAULT_WORKSPACES = Path.home() / ".local/share/amplifier-slack/workspaces"


class ConfigError(Exception):
    """The configuration cannot be used; the message names the key and what to do."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ModuleConfig(_Part):
    """A module of the mount plan: its name and its own options."""

    module: str
    source: str | None = None
    config: dict[str, Any] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, given: Any) -> Any:
        return {"module": given} if isinstance(given, str) else given


class PersonaConfig(_Part):
    name: str = Field(min_length=1, max_length=80)
    emoji: str = Field(pattern=r"^:[a-z0-9_+'-]+:$")


class InstanceConfig(_Part):
    """One agent. Without `providers` it runs on Anthropic where a key is set, else on the offline demo."""

    persona: PersonaConfig
    instructions: str = (
        "You work with people in a Slack thread. They may write to you while you work; take that in and go on. "
        "Answer in Markdown, short and concrete."
    )
    providers: tuple[ModuleConfig, ...] | None = None
    tools: tuple[ModuleConfig, ...] = (ModuleConfig(module="tool-filesystem"), ModuleConfig(module="tool-todo"))
    hooks: tuple[ModuleConfig, ...] = ()
    orchestrator: ModuleConfig = ModuleConfig(module="loop-interactive")
    context: ModuleConfig = ModuleConfig(module="context-simple")


class WorkspaceConfig(_Part):
    """Where conversations keep their files: a folder each under `root`, new ones copied from `template`."""

    root: Path = _DEFAULT_WORKSPACES
    template: Path | None = None


class LogConfig(_Part):
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "human", "json"] = "auto"


class ServiceConfig(_Part):
    instances: dict[str, InstanceConfig] = Field(
        default_factory=lambda: {"alpha": InstanceConfig(persona=PersonaConfig(name="Alpha", emoji=":owl:"))},
        min_length=1,
    )
    workspace: WorkspaceConfig = WorkspaceConfig()
    log: LogConfig = LogConfig()


class Environment(BaseSettings):
    """What comes from the environment. Provider modules read their own keys there too."""

    model_config = SettingsConfigDict(frozen=True, env_ignore_empty=True)

    slack_app_token: SecretStr | None = None
    slack_bot_token: SecretStr | None = None
    slack_api_url: str = "https://slack.com/api/"
    anthropic_api_key: SecretStr | None = None


def load_config(path: Path | None) -> ServiceConfig:
    """Read a configuration file; without one, the default: one instance called alpha.

    Paths in the file are relative to the file.

    Raises:
        ConfigError: the file cannot be read, is no YAML, or has a key that is unknown or wrong.
    """
    if path is None:
        return ServiceConfig()
    try:
        given = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as e:
        raise ConfigError(f"{path}: cannot be read: {e.strerror}. Check the path given to --config.") from e
    except (yaml.YAMLError, UnicodeDecodeError) as e:
        raise ConfigError(f"{path}: is not valid YAML: {' '.join(str(e).split())}") from e
    if not isinstance(given, dict):
        raise ConfigError(f"{path}: holds no keys; it begins with `instances:`, see docs/configuration.md.")
    try:
        config = ServiceConfig.model_validate(given)
    except ValidationError as e:
        raise ConfigError(f"{path}: " + " ".join(_sentence(error) for error in e.errors())) from e
    return config.model_copy(update={"workspace": _anchored(config.workspace, path.parent)})


def _anchored(workspace: WorkspaceConfig, folder: Path) -> WorkspaceConfig:
    template = workspace.template and (folder / workspace.template.expanduser()).resolve()
    if template is not None and not template.is_dir():
        raise ConfigError(f"workspace.template: there is no folder {template}.")
    return WorkspaceConfig(root=(folder / workspace.root.expanduser()).resolve(), template=template)


def _sentence(error: Any) -> str:
    key = ".".join(str(part) for part in error["loc"])
    if error["type"] == "extra_forbidden":
        return f"{key}: unknown key; {_siblings(error['loc'])}."
    if error["type"] == "missing":
        return f"{key}: is missing."
    return f"{key}: {error['msg'][0].lower()}{error['msg'][1:]} (got {error['input']!r})."


def _siblings(loc: tuple[int | str, ...]) -> str:
    """The keys that may stand where an unknown one stood."""
    kinds: dict[str, type[BaseModel]] = {
        "persona": PersonaConfig,
        "workspace": WorkspaceConfig,
        "log": LogConfig,
        "providers": ModuleConfig,
        "tools": ModuleConfig,
        "hooks": ModuleConfig,
        "orchestrator": ModuleConfig,
        "context": ModuleConfig,
    }
    named = [kinds[part] for part in loc[:-1] if part in kinds]
    kind = named[-1] if named else (InstanceConfig if len(loc) > 1 else ServiceConfig)
    return "there are: " + ", ".join(kind.model_fields)
