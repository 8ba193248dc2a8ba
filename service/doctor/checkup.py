"""All checks, in the order of their dependencies: Slack, the stores and disks, then the agents. They change nothing."""

from __future__ import annotations

import asyncio
import os
import re
import tempfile
from contextlib import aclosing
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import aiohttp

from connector.setup import BOT_EVENTS, INSTALLATION_EVENTS, NotInstalled
from connector.slack_api.errors import SlackCallFailed
from orchestrator_interactive.config import validate
from orchestrator_interactive.interactions.stores import MemoryStore
from orchestrator_interactive.kernel.contracts import errors
from orchestrator_interactive.modules.tool_bash import BashOptions, prove
from orchestrator_interactive.storage.errors import StoreError
from orchestrator_interactive.storage.retry import StoreRetryPolicy, retrying
from orchestrator_interactive.testing import MockProvider
from service.config.config import file_of, store_of
from service.config.config_errors import ConfigError
from service.config.credentials import api_url, bot_token, client_of
from service.doctor import DoctorFinding, FindingLevel, failed, passed, skipped, slack_app, warning
from service.installations.stored import StoredInstallations
from service.sessions.foreign_loop import execute
from service.sessions.mount_plan import agent_plans, find_problems, mount_plan, new_session
from service.sessions.workspaces import excess, template_entries
from service.store import inspect_run_store, open_log_store, refuse_unprepared
from service.store.maintenance import free_mb, places
from service.vault import vault_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from service.config.config import Environment, ServiceConfig
    from service.installations.stored import InstalledApp

# Time limits of a request to Slack, and of a model provider.
_SLACK_WITHIN_S = 10.0
_PROVIDER_WITHIN_S = 15.0
# Time limit of the prompt that checks an orchestrator.
_TURN_WITHIN_S = 15.0
# Maximum number of skipped template entries that a finding lists.
_MOST_NAMED = 5
_DEMO = "demo"
_NOT_INSTALLED = "no installations yet. Start the service, and open its page /slack/install."
_ELSEWHERE = (
    "not checked: they run in another process (`sessions.address`, AMPLIFIER_SLACK_SESSIONS). "
    "Run `doctor` on its machine, without the address."
)
# End of a model's id that its alias lacks: `-20260401`, `-2026-04-01`, `-001`. Providers do not list each alias.
_VERSION = r"[-@:](latest|\d{3,8}|\d{4}-\d\d-\d\d)"
_WRONG = (FindingLevel.FAILED, FindingLevel.WARNING)


async def examined(config: ServiceConfig, environment: Environment) -> AsyncIterator[DoctorFinding]:
    """Run all checks and yield their findings."""
    for finding in await _check_slack(config, environment):
        yield finding
    yield await _check_store(config, environment)
    yield _check_workspace(config)
    yield _check_disks(config, environment)
    async for finding in _check_agents(config, environment):
        yield finding


async def _check_slack(config: ServiceConfig, environment: Environment) -> list[DoctorFinding]:
    try:
        url = api_url(environment)
    except ConfigError as e:
        return [failed("Slack", str(e))]
    async with aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_SLACK_WITHIN_S)) as http:
        api = slack_app.SlackProbe(url, http)
        answer: slack_app.SlackProbeAnswer | DoctorFinding | None
        answer, bots_app, sockets_app, installed_app = None, None, None, None
        required = (*BOT_EVENTS, *(INSTALLATION_EVENTS if config.installations.is_on else ()))
        if not config.installations.is_on:
            answer = await slack_app.answer_to(api, environment)
        if answer is None:
            found, installed_app = await _of_installations(api, config, environment)
        elif isinstance(answer, DoctorFinding):
            found = [answer, skipped("scopes", "not checked: the bot token does not work.")]
        else:
            found = slack_app.findings_in(answer)
            bots_app = await slack_app.id_of(api, bot_token(environment), str(answer.data.get("bot_id")))
        if config.slack.transport == "socket":
            connection, sockets_app = await slack_app.check_socket(api, environment)
        else:
            connection = await slack_app.check_http(api, config.slack, environment)
        app_id = sockets_app or bots_app or installed_app
        settings = await slack_app.check_settings(api, environment, config.slack, app_id, required)
        return [*found, connection, *slack_app.of_two_apps(sockets_app, bots_app), *settings]


async def _of_installations(
    api: slack_app.SlackProbe, config: ServiceConfig, environment: Environment
) -> tuple[list[DoctorFinding], str | None]:
    """Check the credentials of the app, and the token of each installation; also return the app's id, if known."""
    found: list[DoctorFinding] = []
    app_id = None
    try:
        client_of(environment)
        url, vault = store_of(config, environment), vault_of(config.connections.keys)
        path = file_of(url)
        if vault is not None and (path is None or path.exists()):
            async with aclosing(await inspect_run_store(url)) as store:
                stored = StoredInstallations(retrying(store, StoreRetryPolicy()), vault, None, None)
                for each in await stored.listed():
                    more, app_id = await _of_one(api, stored, each, app_id)
                    found += more
    except (ConfigError, StoreError) as e:
        return [failed("workspaces", str(e))], None
    return found or [skipped("workspaces", _NOT_INSTALLED)], app_id


async def _of_one(
    api: slack_app.SlackProbe, stored: StoredInstallations, installation: InstalledApp, app_id: str | None
) -> tuple[list[DoctorFinding], str | None]:
    """Check the token of an installation, of several problems the first; also return the app's id, if known."""
    area = f"workspace {installation.id}"
    try:
        token = await stored.token(installation.id)
        answer = await api.call("auth.test", token)
    except NotInstalled:
        problem = "its token cannot be decrypted. Add the key that encrypted it to `connections.keys`."
        return [failed(area, f"{installation.name}: {problem}")], app_id
    except SlackCallFailed as e:
        if e.may_be_unreachable:
            problem = f"Slack cannot be reached at {api.url} ({e}). Check the network and SLACK_API_URL."
            return [failed(area, problem)], app_id
        if e.error == "token_expired":
            problem = "its token has expired. The service renews it when it starts."
            return [warning(area, f"{installation.name}: {problem}")], app_id
        problem = f"Slack does not accept its token ({e.error}). Install the app again."
        return [failed(area, f"{installation.name}: {problem}")], app_id
    _, *more = slack_app.findings_in(answer)
    wrong = [replace(each, area=area) for each in more if each.level in _WRONG]
    valid = passed(area, f"{installation.name}: its token is valid, with all scopes.")
    return wrong or [valid], app_id or await slack_app.id_of(api, token, str(answer.data.get("bot_id")))


async def _check_store(config: ServiceConfig, environment: Environment) -> DoctorFinding:
    """Check that the store can be opened and written. A missing file is not created."""
    try:
        url = store_of(config, environment)
        path = file_of(url)
        if path is not None and not path.exists():
            return _of_new("store", path)
        if path is not None and not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)):
            return failed("store", f"{path} is not writable. Give the service write access to it and its folder.")
        if path is not None:
            try:
                refuse_unprepared(url)
            except StoreError as e:  # the service prepares it when it starts
                return warning("store", str(e))
        async with aclosing(await open_log_store(url)), aclosing(await inspect_run_store(url)):
            return passed("store", f"{path or 'Redis'} is usable.")
    except (ConfigError, StoreError) as e:
        return failed("store", str(e))
    except OSError as e:
        return failed("store", f"{e.filename} is not accessible: {e.strerror}. Give the service access to it.")


def _check_workspace(config: ServiceConfig) -> DoctorFinding:
    """Check that workspace folders can be created, each with a complete copy of the template."""
    root = config.workspace.root
    try:
        if root.is_dir() and os.access(root, os.W_OK):
            usable = passed("workspace", f"{root} is writable.")
        else:
            usable = _of_new("workspace", root)
        if usable.level is FindingLevel.FAILED:
            return usable
        entries = template_entries(config.workspace)
        if problem := excess(config.workspace, entries):
            return failed("workspace", problem)
        if skipped := [f"{entry.path} {entry.problem}" for entry in entries if entry.problem is not None]:
            more = f" (and {len(skipped) - _MOST_NAMED} more)" if len(skipped) > _MOST_NAMED else ""
            return warning(
                "workspace",
                f"workspace.template: not copied: {'; '.join(skipped[:_MOST_NAMED])}{more}. Remove or fix it.",
            )
    except OSError as e:
        return failed("workspace", f"{e.filename} is not accessible: {e.strerror}. Give the service access to it.")
    return usable


def _check_disks(config: ServiceConfig, environment: Environment) -> DoctorFinding:
    """Check that the disks of the store and of the workspaces have more free space than the reserve."""
    reserve = config.workspace.reserve_mb
    try:
        found = free_mb(places(config.workspace, store_of(config, environment)))
    except ConfigError:
        found = free_mb({"workspaces": config.workspace.root})
    free_space = ", ".join(f"{name} {free:,} MB" for name, free in found.items())
    if low := [name for name, free in found.items() if free < reserve]:
        return warning(
            "disk",
            f"free: {free_space}; workspace.reserve_mb is {reserve:,}. Free space on the disk of the "
            f"{' and the '.join(low)}: agents cannot write files, and a full store stops all conversations.",
        )
    return passed("disk", f"free: {free_space}.")


def _of_new(area: str, path: Path) -> DoctorFinding:
    existing = next(folder for folder in (path, *path.parents) if folder.exists())
    if existing != path and existing.is_dir() and os.access(existing, os.W_OK):
        return passed(area, f"{path} will be created when the service starts.")
    return failed(
        area,
        f"{path} cannot be created or written. Give the service write access to {existing}, or choose another path.",
    )


async def _check_agents(config: ServiceConfig, environment: Environment) -> AsyncIterator[DoctorFinding]:
    """Mount each instance's modules, let its orchestrator answer a prompt, and list the models of its providers."""
    if config.sessions.is_remote or environment.amplifier_slack_sessions:
        yield skipped("agents", _ELSEWHERE)
        return
    asked: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        for name, instance in config.instances.items():
            plan = mount_plan(
                instance, environment.default_provider, Path(folder), provider_keys=environment.provider_keys
            )
            plans = {name: plan, **{f"{name}/{agent}": own for agent, own in agent_plans(plan).items()}}
            if problems := await _mount_problems(name, plans):
                for each in problems:
                    yield each
                continue
            count = len(instance.modules()) + (not instance.providers)
            if problem := await _problem_of_a_turn(plan):
                yield failed(f"agent {name}", f"its orchestrator cannot answer: {problem}. Correct or replace it.")
            else:
                yield passed(f"agent {name}", f"its {count} modules can be mounted, and its orchestrator answers.")
            async for each in _check_sandboxes(plans, _private(config, environment)):
                yield each
            for own in plans.values():
                async for each in _check_models(own, asked):
                    yield each


async def _mount_problems(instance: str, plans: dict[str, dict[str, Any]]) -> list[DoctorFinding]:
    """Return the problems of an instance and its sub-agents, those of inherited modules once."""
    problems = {agent: await find_problems(plan) for agent, plan in plans.items()}
    return [
        failed(f"agent {agent}", problem)
        for agent, found in problems.items()
        for problem in found
        if agent == instance or problem not in problems[instance]
    ]


async def _check_sandboxes(plans: dict[str, dict[str, Any]], private: list[Path]) -> AsyncIterator[DoctorFinding]:
    tried: list[dict[str, Any]] = []  # sub-agents inherit tools
    for agent, plan in plans.items():
        for tool in plan["tools"]:
            if tool["module"] == "tool-bash" and tool not in tried:
                tried.append(tool)
                yield await _of_sandbox(agent, tool["config"], private)


async def _check_models(plan: dict[str, Any], asked: list[dict[str, Any]]) -> AsyncIterator[DoctorFinding]:
    """List the models of a plan's providers, except those in `asked`, and add them: many agents share a model."""
    providers = [provider for provider in plan["providers"] if provider not in asked]
    if not providers:
        return
    asked += providers
    session = new_session({**plan, "providers": providers}, MemoryStore())
    try:
        await session.initialize()
        for provider, module in session.coordinator.get("providers").items():
            yield await _of_provider(provider, module)
    finally:
        await session.cleanup()


def _private(config: ServiceConfig, environment: Environment) -> list[Path]:
    """Return the paths that hold data of all conversations."""
    try:
        store = file_of(store_of(config, environment))
    except ConfigError:
        store = None
    return [path.resolve() for path in (config.workspace.root, store) if path is not None]


async def _of_sandbox(agent: str, config: dict[str, Any], private: list[Path]) -> DoctorFinding:
    """Try to leave the sandbox of `tool-bash`, and check that no readable path leads to a private one."""
    area = f"sandbox {agent}"
    try:
        options = validate(BashOptions, config, "tool-bash")
        for path in options.read_only_paths:
            if exposed := next((each for each in private if each.is_relative_to(path.resolve())), None):
                return failed(area, f"`read_only_paths`: {path} lets commands read {exposed}. Choose a narrower path.")
        kind, proofs = await prove(options)
    except ValueError as e:
        return failed(area, str(e))
    if escaped := [proof.claim for proof in proofs if not proof.holds]:
        claims = "; ".join(escaped)
        if kind == "none":
            return warning(area, f"there is none (`sandbox: none`). This does not hold: {claims}.")
        remedy = "Check `read_only_paths`, or report it." if options.read_only_paths else "Report it."
        return failed(area, f"{kind} does not confine commands here. This does not hold: {claims}. {remedy}")
    return passed(area, f"{kind}, tried: a command {', '.join(proof.claim for proof in proofs)}.")


async def _problem_of_a_turn(plan: dict[str, Any]) -> str:
    """Run a prompt whose model is a test double; return why there is no answer, blank if there is one."""
    session = new_session(plan, MemoryStore())
    try:
        async with asyncio.timeout(_TURN_WITHIN_S):
            try:
                await session.initialize()
                session.coordinator.mount_points["providers"] = {"test": MockProvider(default="It works.", name="test")}
                await execute(session, "This is a test. Answer with one sentence.")
            finally:
                await session.cleanup()
    except TimeoutError:
        return f"it does not end within {_TURN_WITHIN_S:.0f} s"
    except Exception as e:  # noqa: BLE001 - a tool call's border: a module may raise anything
        return " ".join(f"{type(e).__name__}: {e}".split()).rstrip(".")
    return ""


async def _of_provider(name: str, provider: Any) -> DoctorFinding:
    """List the provider's models, which is free of charge."""
    area = f"model {name}"
    if name == _DEMO:
        return warning(
            area,
            "offline demo without a model. Set ANTHROPIC_API_KEY to use Claude, or OPENAI_MODEL and its key.",
        )
    try:
        async with asyncio.timeout(_PROVIDER_WITHIN_S):
            models = [str(model.id) for model in await provider.list_models()]
    except errors.RateLimitError:
        return warning(area, "the provider accepts the key, but rate-limits it.")
    except Exception as e:  # noqa: BLE001 - a tool call's border: a module may raise anything
        return failed(area, _refusal(e, provider))
    model = str(provider.get_info().defaults.get("model", ""))
    is_version = re.compile(re.escape(model.removesuffix("-latest")) + _VERSION).fullmatch
    if models and model and model not in models and not any(is_version(each) for each in models):
        some = ", ".join(models[:5])
        return warning(area, f"{model} is not one of the {len(models)} models available to the key: {some}.")
    return passed(area, f"available; model: {model or 'the default of the provider'}.")


def _refusal(error: Exception, provider: Any) -> str:
    match error:
        case errors.AuthenticationError():
            keys = " or ".join(provider.get_info().credential_env_vars) or "the key in the module's options"
            return f"the provider does not accept the key. Check {keys}."
        case errors.ProviderUnavailableError() | errors.LLMTimeoutError() | TimeoutError() | OSError():
            return "the provider does not answer. Check the network and the module's `base_url`."
        case _:
            return f"the models cannot be listed: {' '.join(str(error).split()) or type(error).__name__}"
