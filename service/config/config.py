"""The configuration: a YAML file for what the agents are, the environment for secrets and addresses."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from service.config.config_errors import sentence
from service.config.slack import SlackConfig

_DEFAULT_WORKSPACES = Path("~/.local/share/amplifier-slack/workspaces")
_DEFAULT_STORE = "sqlite:~/.local/share/amplifier-slack/conversations.db"
# What a message can name as the one it is for.
_INSTANCE_NAME = re.compile(r"\w[\w-]*")
# A session's place in the store is for the service to say.
_GIVEN_BY_THE_SERVICE = frozenset({"store", "conversation_id", "agent_id"})


class ConfigError(Exception):
    """The configuration cannot be used; the message names the key and what to do."""


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ModuleConfig(_Part):
    """A module of the mount plan: its name and its own options; `source` is a path, for one that is not installed."""

    module: str = Field(min_length=1)
    source: str | None = None
    config: dict[str, Any] = Field(default_factory=dict)

    @field_validator("source")
    @classmethod
    def _on_this_machine(cls, source: str | None, info: ValidationInfo) -> str | None:
        if source is None:
            return None
        if "://" in source or source.startswith("git@"):
            raise ValueError("must be a path on this machine; fetch the module first, then name its folder")
        path = (info.context or {}).get("folder", Path()) / Path(source).expanduser()
        if not path.exists():
            raise ValueError(
                f"there is nothing at {path.absolute()}; write the path of the module's project, package or file"
            )
        return str(path.resolve())

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, given: Any) -> Any:
        if not isinstance(given, str | dict):
            raise ValueError("must be the name of a module, or a mapping with `module`")  # noqa: TRY004 - pydantic's way
        return {"module": given} if isinstance(given, str) else given


class PersonaConfig(_Part):
    name: str = Field(min_length=1, max_length=80)
    emoji: str = Field(pattern=r"^:[a-z0-9_+'-]+:$")


class SessionConfig(_Part):
    """Limits on what hooks may do in a conversation: their time, and how much they may tell the model."""

    hook_timeout_s: float | None = Field(default=None, gt=0)
    injection_size_limit: int | None = Field(default=None, ge=0)
    injection_budget_per_turn: int | None = Field(default=None, ge=0)


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
    context: ModuleConfig = ModuleConfig(module="context-stack")
    session: SessionConfig = SessionConfig()

    @field_validator("context")
    @classmethod
    def _is_in_the_store(cls, context: ModuleConfig) -> ModuleConfig:
        taken = sorted(_GIVEN_BY_THE_SERVICE & context.config.keys()) if context.module == "context-stack" else []
        if taken:
            raise ValueError(
                f"the service gives {context.module} its {taken[0]!r}; leave it out, and name the store of all "
                "conversations by `store:` at the top of the file"
            )
        return context

    def modules(self) -> tuple[ModuleConfig, ...]:
        return (self.orchestrator, self.context, *(self.providers or ()), *self.tools, *self.hooks)


class WorkspaceConfig(_Part):
    """Where conversations keep their files: a folder each under `root`, new ones copied from `template`.

    Args:
        quota_mb: total size of the files in one folder, in megabytes.
        quota_files: number of files and folders in one.
        reserve_mb: free space that agents leave on the disk, in megabytes.
    """

    root: Path = _DEFAULT_WORKSPACES
    template: Path | None = None
    quota_mb: int = Field(default=512, gt=0)
    quota_files: int = Field(default=10_000, gt=0)
    reserve_mb: int = Field(default=256, ge=0)

    def limits(self) -> dict[str, int]:
        """Return the options of `tool-filesystem` that limit a folder."""
        return self.model_dump(include={"quota_mb", "quota_files", "reserve_mb"})


class LimitsConfig(_Part):
    """How many runs may be at work at once in one process: in total, in one channel, of one person."""

    runs: int = Field(default=200, ge=1)
    runs_per_channel: int = Field(default=50, ge=1)
    runs_per_person: int = Field(default=10, ge=1)


class LogConfig(_Part):
    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "human", "json"] = "auto"


class ServiceConfig(_Part):
    """The whole file.

    Args:
        idle_evict_s: how long an agent's session stays in memory when nothing runs in it.
        shutdown_grace_s: within how long the service ends; runs may come to a boundary for most of it.
        shutdown_tools_s: time for running tools after SIGTERM; `None`: `shutdown_grace_s` less 3.5 s for the hand-over.
        lease_s: how long a conversation stays with a service of which nothing is heard.
    """

    instances: dict[str, InstanceConfig] = Field(
        default_factory=lambda: {"alpha": InstanceConfig(persona=PersonaConfig(name="Alpha", emoji=":owl:"))},
        min_length=1,
    )
    slack: SlackConfig = SlackConfig()
    workspace: WorkspaceConfig = WorkspaceConfig()
    store: SecretStr = SecretStr(_DEFAULT_STORE)
    limits: LimitsConfig = LimitsConfig()
    log: LogConfig = LogConfig()
    idle_evict_s: float = Field(default=900, gt=0, allow_inf_nan=False)
    shutdown_grace_s: float = Field(default=10, ge=0, allow_inf_nan=False)
    shutdown_tools_s: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    # Less would take conversations from services that are just busy.
    lease_s: float = Field(default=10, ge=2, allow_inf_nan=False)

    @field_validator("instances")
    @classmethod
    def _can_be_addressed(cls, instances: dict[str, InstanceConfig]) -> dict[str, InstanceConfig]:
        seen: dict[str, str] = {}
        for name in instances:
            if not _INSTANCE_NAME.fullmatch(name):
                raise ValueError(f"the name {name!r} must be one word of letters, digits, `_` and `-`")
            if name.lower() in seen:
                raise ValueError(f"{seen[name.lower()]} and {name} are the same name; give one of them another")
            seen[name.lower()] = name
        return instances


class Environment(_Part):
    """What comes from the environment. The modules of other providers read their own keys there."""

    slack_app_token: SecretStr | None = None
    slack_bot_token: SecretStr | None = None
    slack_signing_secret: SecretStr | None = None
    slack_config_token: SecretStr | None = None
    slack_api_url: str = "https://slack.com/api/"
    anthropic_api_key: SecretStr | None = None
    amplifier_slack_store: SecretStr | None = None

    @property
    def anthropic_key(self) -> str:
        """The key itself; blank if there is none."""
        return self.anthropic_api_key.get_secret_value() if self.anthropic_api_key else ""

    @classmethod
    def read(cls) -> Self:
        """What the variables of these names say; a blank one is as good as none."""
        return cls(**{name: said for name in cls.model_fields if (said := os.environ.get(name.upper()))})

    @classmethod
    def take(cls) -> Self:
        """As `read`, and remove the secrets: no child process of a module inherits them."""
        environment = cls.read()
        for name, value in environment:
            if isinstance(value, SecretStr):
                os.environ.pop(name.upper(), None)
        return environment


def load_config(path: Path | None) -> ServiceConfig:
    """Read a configuration file; without one, the default: one instance called alpha.

    Paths in the file are relative to the file.

    Raises:
        ConfigError: the file cannot be read, is no YAML, or has a key that is unknown or wrong.
    """
    if path is None:
        return _anchored(ServiceConfig(), Path())
    given = _read(path)
    if not isinstance(given, dict):
        raise ConfigError(f"{path}: holds no keys; it begins with `instances:`, see docs/configuration.md.")
    try:
        config = ServiceConfig.model_validate(given, context={"folder": path.parent})
    except ValidationError as e:
        sentences = " ".join(sentence(error, ServiceConfig) for error in e.errors())
        raise ConfigError(f"{path}: {' '.join(sentences.split())}") from e
    return _anchored(config, path.parent)


class _Loader(yaml.SafeLoader):
    """YAML whose every fault is a `YAMLError` with its place, and in which no key stands twice."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError, TypeError) as e:  # a 13th month, a number of 5000 digits
            problem = "found a value that cannot be read; put it into quotes"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from e

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, "found a key for the second time", key.start_mark)
            seen.add(key.value)
        return node


def _read(path: Path) -> Any:
    try:
        data = _Loader(path.read_text(encoding="utf-8")).get_single_data()
    except OSError as e:
        raise ConfigError(f"{path}: cannot be read: {e.strerror}. Check the path given to --config.") from e
    except yaml.MarkedYAMLError as e:
        # Without the excerpt of the file that PyYAML adds.
        where = f" (line {e.problem_mark.line + 1}, column {e.problem_mark.column + 1})" if e.problem_mark else ""
        raise ConfigError(f"{path}: is not valid YAML: {e.problem or e.context}{where}.") from e
    except (yaml.YAMLError, UnicodeDecodeError) as e:
        raise ConfigError(f"{path}: is not valid YAML: {' '.join(str(e).split())}.") from e
    except RecursionError as e:
        raise ConfigError(f"{path}: is nested too deeply to be read.") from e
    from orchestrator_interactive.outside_json import MAX_NESTING, nesting  # noqa: PLC0415 - not every command has a file

    if nesting(data, MAX_NESTING) > MAX_NESTING:  # an alias can contain itself
        raise ConfigError(f"{path}: is nested more than {MAX_NESTING} levels deep, or contains itself.")
    return data


def _anchored(config: ServiceConfig, folder: Path) -> ServiceConfig:
    root = _path("workspace.root", config.workspace.root, folder)
    template = config.workspace.template and _path("workspace.template", config.workspace.template, folder)
    if template is not None and not template.is_dir():
        raise ConfigError(f"workspace.template: there is no folder {template}.")
    store = SecretStr(store_url("store", config.store, folder))
    workspace = config.workspace.model_copy(update={"root": root, "template": template})
    return config.model_copy(update={"workspace": workspace, "store": store})


def store_url(key: str, given: SecretStr, folder: Path = Path()) -> str:
    """The URL of a store; the path of a file is relative to `folder`. `key` is where it was given.

    Raises:
        ConfigError: no file can be called so, or it keeps nothing.
    """
    url = given.get_secret_value()
    if url == "memory:":
        raise ConfigError(
            f"{key}: `memory:` keeps nothing, and what people write would be lost with a restart. Name a file "
            "(`sqlite:conversations.db`) or a Redis (`redis://HOST:6379/0`)."
        )
    path = file_of(url)
    return url if path is None else f"sqlite:{_path(key, path, folder)}"


def file_of(url: str) -> Path | None:
    """The path in the URL of a store that is a file, as it stands there."""
    scheme, _, path = url.partition(":")
    if scheme != "sqlite" or not path:
        return None
    if path.startswith("//"):  # the form with a host, which is this machine
        return Path(path.removeprefix("//")) if path.startswith("///") else None
    return Path(path)


def _path(key: str, given: Path, folder: Path) -> Path:
    try:
        path = (folder / given.expanduser()).resolve()
        path.exists()  # raises where no file can be called so
    except (OSError, RuntimeError, ValueError) as e:
        reason = (e.strerror if isinstance(e, OSError) else None) or str(e).rstrip(".")
        raise ConfigError(f"{key}: this path cannot be used: {reason}. Write another one.") from e
    return path
