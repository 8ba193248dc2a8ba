"""The configuration: a YAML file, and environment variables for secrets and addresses."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, Self

import yaml
from pydantic import (
    Field,
    GetJsonSchemaHandler,
    PrivateAttr,
    SecretStr,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from connector.protocols import Answers, Participation, Steerers
from service.config.config_errors import ConfigError, sentence
from service.config.connections import ConnectionsConfig
from service.config.installations import InstallationsConfig
from service.config.observe import ObserveConfig
from service.config.references import References
from service.config.section import Section
from service.config.sessions import SessionsConfig
from service.config.slack import ChannelId, SlackConfig, SuggestedPrompts
from service.config.triggers import TriggersConfig

if TYPE_CHECKING:
    from pydantic_core import CoreSchema

_DEFAULT_WORKSPACES = Path("~/.local/share/amplifier-slack/workspaces")
_DEFAULT_STORE = "sqlite:~/.local/share/amplifier-slack/conversations.db"
# Instance names that a message can address.
_INSTANCE_NAME = re.compile(r"\w[\w-]*")
AgentName = Annotated[str, Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,39}$")]
# The lists of modules that a sub-agent may have of its own.
AGENT_PARTS = ("providers", "tools", "hooks")
# Options of modules that are lists of files and folders.
_PATHS_OF = {"tool-recipes": "recipes", "tool-skills": "folders"}
# Options of `context-stack` that the service sets.
_SET_BY_SERVICE = frozenset({"store", "conversation_id", "agent_id"})


class ModuleConfig(Section):
    """A module: its name, or a mapping with its options.

    Args:
        module: name of the module, such as `tool-filesystem`.
        name: name of a provider among several; default: that of the module without `provider-`.
        source: path of a project, a package or a `.py` file, for a module that is not installed.
        config: the module's options.
    """

    module: str = Field(min_length=1)
    name: str | None = Field(default=None, pattern=r"^[A-Za-z0-9][\w.:-]{0,63}$")
    source: str | None = None
    config: dict[str, Any] = Field(default_factory=dict)

    @field_validator("source")
    @classmethod
    def _on_this_machine(cls, source: str | None, info: ValidationInfo) -> str | None:
        if source is None:
            return None
        if "://" in source or source.startswith("git@"):
            raise ValueError("must be a local path; download the module first, then write the path of its folder")
        path = (info.context or {}).get("folder", Path()) / Path(source).expanduser()
        if not path.exists():
            raise ValueError(
                f"{path.absolute()} does not exist; write the path of the module's project, package or file"
            )
        return str(path.resolve())

    @field_validator("config")
    @classmethod
    def _with_paths(cls, config: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        """Make the paths of recipes and skills absolute; like all paths, they are relative to the file."""
        option = _PATHS_OF.get(info.data.get("module", ""), "")
        given = config.get(option)
        texts = [given] if isinstance(given, str) else given
        if not isinstance(texts, list) or not all(isinstance(each, str) for each in texts):
            return config
        paths = [(info.context or {}).get("folder", Path()) / Path(each).expanduser() for each in texts]
        if missing := next((each for each in paths if not each.exists()), None):
            raise ValueError(f"{option}: {missing.absolute()} does not exist")
        return {**config, option: [str(each.resolve()) for each in paths]}

    @field_validator("config")
    @classmethod
    def _with_template_path(cls, config: dict[str, Any], info: ValidationInfo) -> dict[str, Any]:
        """Make the template folder of `tool-agents` absolute; like all paths, it is relative to the file."""
        templates = config.get("templates") if info.data.get("module") == "tool-agents" else None
        if not isinstance(templates, str):
            return config
        folder = (info.context or {}).get("folder", Path()) / Path(templates).expanduser()
        if not folder.is_dir():
            raise ValueError(f"templates: the folder {folder.absolute()} does not exist")
        return {**config, "templates": str(folder.resolve())}

    @classmethod
    def __get_pydantic_json_schema__(cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler) -> dict[str, Any]:
        return {"anyOf": [{"type": "string"}, super().__get_pydantic_json_schema__(core_schema, handler)]}

    @model_validator(mode="before")
    @classmethod
    def _from_name(cls, given: Any) -> Any:
        if not isinstance(given, str | dict):
            raise ValueError("must be the name of a module, or a mapping with `module`")  # noqa: TRY004 - pydantic's way
        return {"module": given} if isinstance(given, str) else given


class PersonaConfig(Section):
    """How an agent appears in Slack.

    Args:
        name: display name of its posts.
        emoji: icon of its posts, such as `:owl:`.
    """

    name: str = Field(min_length=1, max_length=80)
    emoji: str = Field(pattern=r"^:[a-z0-9_+'-]+:$")


class SessionConfig(Section):
    """Limits on hooks in a conversation.

    Args:
        hook_timeout_s: timeout of one hook.
        injection_size_limit: maximum bytes of one text that a hook adds for the model.
        injection_budget_per_turn: tokens that hooks may add in a turn, estimated.
    """

    hook_timeout_s: float | None = Field(default=None, gt=0)
    injection_size_limit: int | None = Field(default=None, ge=0)
    injection_budget_per_turn: int | None = Field(default=None, ge=0)


class ParticipationConfig(Section):
    """Which messages are answered in a channel, and whose an active run reads.

    Args:
        answer: which messages are answered: `mention` (those that mention the bot), `thread` (also replies of people
            who take part in the thread; the default), `every` (also each top-level message). Direct messages are
            always answered.
        steer: whose messages an active run reads: `owner` (who began it), `participants` (who take part in the
            thread; the default), `anyone`. Other messages are context for the next run.
        consent: `ask` lets the owner of a run decide about a user that mentions the bot during it. Default: `never`.
    """

    answer: Answers | None = None
    steer: Steerers | None = None
    consent: Literal["ask", "never"] | None = None

    @property
    def participation(self) -> Participation:
        return Participation(self.answer, self.steer, self.consent and self.consent == "ask")


class ChannelConfig(ParticipationConfig):
    """Settings of one channel, which come before those of the agent.

    Args:
        instance: name of the agent that answers here.
        keywords: with `answer: every`, answer only top-level messages that contain one of the words.
        pattern: the same with a regular expression of Python.
        instructions: further instructions for every agent in this channel, after its own.
    """

    instance: str | None = None
    instructions: str = Field(default="", max_length=20_000)
    keywords: tuple[Annotated[str, Field(min_length=1)], ...] = ()
    pattern: str | None = None

    @field_validator("pattern")
    @classmethod
    def _is_an_expression(cls, pattern: str | None) -> str | None:
        try:
            re.compile(pattern or "")
        except re.error as e:
            raise ValueError(f"{pattern!r} is not a regular expression: {e}") from e
        return pattern

    @property
    def filter(self) -> re.Pattern[str] | None:
        """The expression that a watched message contains; `None`: all are watched."""
        words = [rf"(?<!\w){re.escape(word)}(?!\w)" for word in self.keywords]
        either = [*words, *(() if self.pattern is None else (f"(?:{self.pattern})",))]
        return re.compile("|".join(either), re.IGNORECASE) if either else None


class AgentConfig(Section):
    """A sub-agent, to which the agent of an instance delegates. Other settings are inherited from the instance.

    Args:
        description: its purpose, for the agent that chooses it.
        instructions: its system prompt.
        providers: modules that call a model, in place of the instance's.
        tools: modules with actions, in place of the instance's.
        hooks: modules that listen to events, in place of the instance's.
        orchestrator: options of the loop, such as `max_iterations`.
    """

    description: str = Field(min_length=1, max_length=300)
    instructions: str = Field(min_length=1)
    providers: tuple[ModuleConfig, ...] | None = None
    tools: tuple[ModuleConfig, ...] | None = None
    hooks: tuple[ModuleConfig, ...] | None = None
    orchestrator: dict[str, Any] = Field(default_factory=dict)


class InstanceConfig(ParticipationConfig):
    """One agent.

    Args:
        persona: how it appears in Slack.
        description: its purpose, in a sentence for the Home tab.
        instructions: the system prompt.
        providers: modules that call a model, in order of preference. Default: Claude if a key is set, else the demo.
        tools: modules with actions that the model can call.
        hooks: modules that listen to events.
        orchestrator: module with the loop.
        context: module with the memory of a conversation; `context-stack` keeps it in the store.
        session: limits on hooks.
        suggested_prompts: up to four prompts that people can send by a click where this agent answers direct messages.
        agents: sub-agents by their names, for `tool-delegate` and `tool-dispatch-worker`.
    """

    persona: PersonaConfig
    description: str = Field(default="", max_length=300)
    instructions: str = (
        "You work with people in a Slack thread. They may write while you work: consider it and continue. "
        "Answer in Markdown, short and concrete."
    )
    providers: tuple[ModuleConfig, ...] | None = None
    tools: tuple[ModuleConfig, ...] = (
        ModuleConfig(module="tool-filesystem"),
        ModuleConfig(module="tool-todo"),
        ModuleConfig(module="tool-share-file"),
    )
    hooks: tuple[ModuleConfig, ...] = ()
    orchestrator: ModuleConfig = ModuleConfig(module="loop-interactive")
    context: ModuleConfig = ModuleConfig(module="context-stack")
    session: SessionConfig = SessionConfig()
    suggested_prompts: SuggestedPrompts = ()
    agents: dict[AgentName, AgentConfig] = Field(default_factory=dict)
    # By channel, the further instructions from its settings.
    _of_channels: dict[str, str] = PrivateAttr(default_factory=dict)

    @field_validator("context")
    @classmethod
    def _is_in_the_store(cls, context: ModuleConfig) -> ModuleConfig:
        taken = sorted(_SET_BY_SERVICE & context.config.keys()) if context.module == "context-stack" else []
        if taken:
            raise ValueError(
                f"{taken[0]!r} of {context.module} is set by the service; remove it, and set the store of all "
                "conversations with `store:` at the top level of the file"
            )
        return context

    def instructions_in(self, channel: str) -> str:
        """Return its instructions with those of a channel."""
        return "\n\n".join(filter(None, (self.instructions, self._of_channels.get(channel, ""))))

    @property
    def models(self) -> tuple[str, ...]:
        """The names of its providers, for `!model`."""
        return tuple(each.name or each.module.removeprefix("provider-") for each in self.providers or ())

    def modules(self) -> tuple[ModuleConfig, ...]:
        of_agents = [
            each for agent in self.agents.values() for part in AGENT_PARTS for each in getattr(agent, part) or ()
        ]
        return (self.orchestrator, self.context, *(self.providers or ()), *self.tools, *self.hooks, *of_agents)


class WorkspaceConfig(Section):
    """The conversations' files: one folder each under `root`, initially a copy of `template`.

    Args:
        root: folder of the conversations' folders.
        template: folder that new folders are copies of.
        quota_mb: maximum total size of the files in one folder, in megabytes.
        quota_files: maximum number of files and folders in one folder.
        reserve_mb: free disk space that agents must leave, in megabytes.
    """

    root: Path = _DEFAULT_WORKSPACES
    template: Path | None = None
    quota_mb: int = Field(default=512, gt=0)
    quota_files: int = Field(default=10_000, gt=0)
    reserve_mb: int = Field(default=256, ge=0)


class LimitsConfig(Section):
    """Maximum number of concurrent runs in one process; the others wait.

    Args:
        runs: in total.
        runs_per_workspace: in one workspace. Default: with `installations` half of `runs`, else all.
        runs_per_channel: in one channel.
        runs_per_person: started by one person.
    """

    runs: int = Field(default=200, ge=1)
    runs_per_workspace: int | None = Field(default=None, ge=1)
    runs_per_channel: int = Field(default=50, ge=1)
    runs_per_person: int = Field(default=10, ge=1)


class RetentionConfig(Section):
    """When a conversation without changes is deleted, with its files.

    Args:
        days: after so many days. Default: never.
        channels: days by the channel's id; these come before `days`.
    """

    days: int | None = Field(default=None, ge=1)
    channels: dict[ChannelId, Annotated[int, Field(ge=1)]] = Field(default_factory=dict)


class LogConfig(Section):
    """The log of the service, on standard error.

    Args:
        level: least level of its lines.
        format: `human` (text), `json`, or `auto`: text on a terminal, else JSON.
    """

    level: Literal["debug", "info", "warning", "error"] = "info"
    format: Literal["auto", "human", "json"] = "auto"


class ServiceConfig(Section):
    """The whole file.

    Args:
        instances: the agents by their names; the first one is the default.
        slack: transport and access policy.
        channels: settings of channels by their ids.
        workspace: the conversations' files.
        store: URL of the store: `sqlite:PATH`, or `redis://HOST:PORT/DB`.
        limits: concurrent runs.
        log: level and format of the log.
        retention: when old conversations are deleted.
        audit: file of the audit log. Default: none.
        observe: metrics and health over HTTP, and traces.
        sessions: agents in another process.
        triggers: other systems that begin or notify conversations over HTTP.
        connections: accounts that people connect for `tool-mcp`.
        installations: many workspaces, in which people install the app.
        idle_evict_s: time that an idle agent session stays in memory.
        shutdown_grace_s: time limit of a shutdown; most of it is for runs to reach a turn boundary.
        shutdown_tools_s: time for running tools after SIGTERM. Default: `shutdown_grace_s` less 4 s.
        lease_s: duration of a conversation's lease without renewal; in Redis, those of a silent process end sooner.
    """

    instances: dict[str, InstanceConfig] = Field(
        default_factory=lambda: {"alpha": InstanceConfig(persona=PersonaConfig(name="Alpha", emoji=":owl:"))},
        min_length=1,
    )
    slack: SlackConfig = SlackConfig()
    channels: dict[ChannelId, ChannelConfig] = Field(default_factory=dict)
    workspace: WorkspaceConfig = WorkspaceConfig()
    store: SecretStr = SecretStr(_DEFAULT_STORE)
    limits: LimitsConfig = LimitsConfig()
    log: LogConfig = LogConfig()
    retention: RetentionConfig = RetentionConfig()
    audit: Path | None = None
    observe: ObserveConfig = ObserveConfig()
    sessions: SessionsConfig = SessionsConfig()
    triggers: TriggersConfig = TriggersConfig()
    connections: ConnectionsConfig = ConnectionsConfig()
    installations: InstallationsConfig = InstallationsConfig()
    idle_evict_s: float = Field(default=900, gt=0, allow_inf_nan=False)
    shutdown_grace_s: float = Field(default=10, ge=0, allow_inf_nan=False)
    shutdown_tools_s: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    # A shorter lease would expire while its owner is merely busy. Over Redis, a much longer one would look like one
    # from before the clock was set back.
    lease_s: float = Field(default=10, ge=2, le=60, allow_inf_nan=False)

    @field_validator("channels")
    @classmethod
    def _names_an_instance(cls, channels: dict[str, ChannelConfig], info: ValidationInfo) -> dict[str, ChannelConfig]:
        _require_instances({channel: rules.instance for channel, rules in channels.items()}, info)
        return channels

    @field_validator("triggers")
    @classmethod
    def _begins_with_an_instance(cls, triggers: TriggersConfig, info: ValidationInfo) -> TriggersConfig:
        _require_instances({name: each.instance for name, each in triggers.endpoints.items()}, info)
        return triggers

    @field_validator("installations")
    @classmethod
    def _has_agents(cls, installations: InstallationsConfig, info: ValidationInfo) -> InstallationsConfig:
        for team, rules in installations.settings.items():
            for name in rules.instances:
                _require_instances({f"settings.{team}.instances": name}, info)
        return installations

    @field_validator("instances")
    @classmethod
    def _can_be_addressed(cls, instances: dict[str, InstanceConfig]) -> dict[str, InstanceConfig]:
        seen: dict[str, str] = {}
        for name in instances:
            if not _INSTANCE_NAME.fullmatch(name):
                raise ValueError(f"the name {name!r} must be one word of letters, digits, `_` and `-`")
            if name.lower() in seen:
                raise ValueError(f"{seen[name.lower()]} and {name} differ only in case; rename one")
            seen[name.lower()] = name
        return instances

    @model_validator(mode="after")
    def _workspaces_are_known(self) -> Self:
        if not self.installations.is_on:
            return self
        if self.connections.listen is None:
            raise ValueError(
                "`installations` needs `connections`: its address serves the page for installing the app, and its keys "
                "encrypt the tokens"
            )
        for name, trigger in self.triggers.endpoints.items():
            if trigger.team is None:
                raise ValueError(f"`triggers.endpoints.{name}.team` is not set; write the id of its workspace")
        return self

    @model_validator(mode="after")
    def _instances_know_channels(self) -> Self:
        found = {channel: rules.instructions for channel, rules in self.channels.items() if rules.instructions}
        for instance in self.instances.values():
            instance._of_channels.update(found)  # noqa: SLF001 - of a class of this module
        return self


def _require_instances(chosen: dict[str, str | None], info: ValidationInfo) -> None:
    """Raise ValueError if one of the chosen instances, by the key that chooses it, does not exist."""
    names = info.data.get("instances", {})
    for key, name in chosen.items():
        if name is not None and names and name not in names:
            raise ValueError(f"{key}: there is no agent {name!r}; the agents are {', '.join(names)}")


class Environment(Section):
    """The environment variables of the service. Modules of other providers read their own keys."""

    slack_app_token: SecretStr | None = None
    slack_bot_token: SecretStr | None = None
    slack_signing_secret: SecretStr | None = None
    slack_config_token: SecretStr | None = None
    slack_client_id: str | None = None
    slack_client_secret: SecretStr | None = None
    slack_api_url: str = "https://slack.com/api/"
    anthropic_api_key: SecretStr | None = None
    openai_api_key: SecretStr | None = None
    openai_model: str | None = None
    amplifier_slack_store: SecretStr | None = None
    amplifier_slack_observe: str | None = None
    amplifier_slack_sessions: str | None = None

    @property
    def provider_keys(self) -> dict[str, str]:
        """The keys as plain text, by the module of the provider."""
        keys = {"provider-anthropic": self.anthropic_api_key, "provider-openai": self.openai_api_key}
        return {module: key.get_secret_value() for module, key in keys.items() if key is not None}

    @property
    def default_provider(self) -> str:
        """The provider of instances without `providers`."""
        if self.anthropic_api_key:
            return "provider-anthropic"
        return "provider-openai" if self.openai_model else "provider-demo"

    def secrets(self) -> dict[str, str]:
        """Return the secrets by the names of their variables."""
        return {name.upper(): value.get_secret_value() for name, value in self if isinstance(value, SecretStr)}

    @classmethod
    def from_environ(cls) -> Self:
        """Read the variables; a blank one counts as not set."""
        return cls(**{name: value for name in cls.model_fields if (value := os.environ.get(name.upper()))})

    @classmethod
    def take_from_environ(cls) -> Self:
        """Read the variables and delete the secrets from the environment: child processes must not inherit them."""
        environment = cls.from_environ()
        for name in environment.secrets():
            os.environ.pop(name, None)
        return environment


def load_config(
    path: Path | None,
    environment: Environment | None = None,
    taken: dict[str, str] | None = None,
    *,
    needs_agents: bool = True,
) -> ServiceConfig:
    """Read a configuration file. Without one, return the default: one instance named alpha.

    Paths in the file are relative to its folder. References to environment variables are expanded; those of secret
    options are then removed from the process's environment, if `environment` is given, and added to `taken`: variables
    of earlier calls, by name. Without `needs_agents`, `triggers` are left out, and references are as in `References`.

    Raises:
        ConfigError: the file cannot be read, is not YAML, refers to a variable that is not set, or has an unknown or
            invalid key.
    """
    if path is None:
        return _anchored(ServiceConfig(), Path())
    given = _load_yaml(path)
    if not isinstance(given, dict):
        raise ConfigError(
            f"{path}: has no keys; it must begin with `instances:`. `amplifier-slack init` writes an example."
        )
    if taken is None:
        taken = environment.secrets() if environment else {}
    if not needs_agents:
        given.pop("triggers", None)
    references = References(taken, needs_agents=needs_agents)
    try:
        given = references.expand(given)
    except ConfigError as e:
        raise ConfigError(f"{path}: {e}") from None
    if environment is not None:
        references.remove_secrets()
    try:
        config = ServiceConfig.model_validate(given, context={"folder": path.parent})
    except ValidationError as e:
        sentences = " ".join(sentence(error, ServiceConfig) for error in e.errors())
        raise ConfigError(f"{path}: {' '.join(sentences.split())}") from e
    try:
        return _anchored(config, path.parent)
    except ConfigError as e:
        raise ConfigError(f"{path}: {e}") from e


class _Loader(yaml.SafeLoader):
    """A YAML loader that rejects duplicate keys and reports every error as a `YAMLError` with its position."""

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ValueError, LookupError, AttributeError, TypeError) as e:  # a 13th month, a number of 5000 digits
            problem = "found an invalid value; put it into quotes"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from e

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        node: yaml.MappingNode = super().compose_mapping_node(anchor)
        seen: set[str] = set()
        for key in (key for key, _ in node.value if isinstance(key, yaml.ScalarNode)):
            if key.value in seen:
                raise yaml.constructor.ConstructorError(None, None, "found a duplicate key", key.start_mark)
            seen.add(key.value)
        return node


def _load_yaml(path: Path) -> Any:
    try:
        data = _Loader(path.read_text(encoding="utf-8")).get_single_data()
    except OSError as e:
        raise ConfigError(
            f"{path}: cannot be read: {e.strerror}. Check the path, or write one with `amplifier-slack init`."
        ) from e
    except yaml.MarkedYAMLError as e:
        # Without PyYAML's excerpt of the file, which may contain a secret.
        where = f" (line {e.problem_mark.line + 1}, column {e.problem_mark.column + 1})" if e.problem_mark else ""
        raise ConfigError(f"{path}: is not valid YAML: {e.problem or e.context}{where}.") from e
    except (yaml.YAMLError, UnicodeDecodeError) as e:
        raise ConfigError(f"{path}: is not valid YAML: {' '.join(str(e).split())}.") from e
    except RecursionError as e:
        raise ConfigError(f"{path}: is nested too deeply.") from e
    from orchestrator_interactive.json_limits import MAX_NESTING, nesting  # noqa: PLC0415 - not every command has a file

    if nesting(data, MAX_NESTING) > MAX_NESTING:  # an alias can contain itself
        raise ConfigError(f"{path}: is nested more than {MAX_NESTING} levels deep, or contains itself.")
    return data


def _anchored(config: ServiceConfig, folder: Path) -> ServiceConfig:
    root = _path("workspace.root", config.workspace.root, folder)
    template = config.workspace.template and _path("workspace.template", config.workspace.template, folder)
    if template is not None and not template.is_dir():
        raise ConfigError(f"workspace.template: the folder {template} does not exist.")
    store = SecretStr(store_url("store", config.store, folder))
    audit = config.audit and _path("audit", config.audit, folder)
    workspace = config.workspace.model_copy(update={"root": root, "template": template})
    sessions = config.sessions.at(folder)
    return config.model_copy(update={"workspace": workspace, "store": store, "audit": audit, "sessions": sessions})


def store_url(key: str, given: SecretStr, folder: Path = Path()) -> str:
    """Return a store's URL with an absolute path; `folder` is the base of relative paths.

    `key` is the option, variable or key that contained the URL, for error messages.

    Raises:
        ConfigError: the path is invalid, or the store is not persistent (`memory:`).
    """
    url = given.get_secret_value()
    if url == "memory:":
        raise ConfigError(
            f"{key}: `memory:` is not persistent; messages would be lost with a restart. Use a file "
            "(`sqlite:conversations.db`) or Redis (`redis://HOST:6379/0`)."
        )
    path = file_of(url)
    return url if path is None else f"sqlite:{_path(key, path, folder)}"


def store_of(config: ServiceConfig, environment: Environment) -> str:
    """Return the URL of the service's store: that of the environment, or else of the configuration.

    Raises:
        ConfigError: as in `store_url`.
    """
    given = environment.amplifier_slack_store
    return store_url("AMPLIFIER_SLACK_STORE", given) if given else config.store.get_secret_value()


def file_of(url: str) -> Path | None:
    """Return the path in an SQLite URL unchanged; `None` for other stores."""
    scheme, _, path = url.partition(":")
    if scheme != "sqlite" or not path:
        return None
    if path.startswith("//"):  # with an authority part, which must be empty
        return Path(path.removeprefix("//")) if path.startswith("///") else None
    return Path(path)


def _path(key: str, given: Path, folder: Path) -> Path:
    try:
        path = (folder / given.expanduser()).resolve()
        path.exists()  # raises for an invalid file name
    except (OSError, RuntimeError, ValueError) as e:
        reason = (e.strerror if isinstance(e, OSError) else None) or str(e).rstrip(".")
        raise ConfigError(f"{key}: invalid path: {reason}. Choose another one.") from e
    return path
