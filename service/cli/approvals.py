"""The commands `amplifier-slack approvals …`: check the rules, list pending requests, and revoke rules of people."""

from __future__ import annotations

import asyncio
import tempfile
from contextlib import aclosing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import yaml

from connector.records import active_run
from orchestrator_interactive.interactions.records import Key
from service.administration.audit import audit_log
from service.cli.setup import NotUsable, Setup, config_option
from service.cli.store_access import StoreAccess, with_store
from service.config.config import Environment, file_of, store_of
from service.config.config_errors import ConfigError
from service.store import inspect_run_store
from service.store.base import workspaces_of_documents
from service.tables import moment, table

if TYPE_CHECKING:
    from orchestrator_interactive.kernel.contracts.protocols import Tool
    from orchestrator_interactive.modules.hooks_approval.policy import CallFacts, Decision
    from service.config.config import ServiceConfig
    from service.sessions.people import AlwaysRules
    from service.store.base import RunStore

_MODULE = "hooks-approval"
# A conversation is a team, a channel and a thread.
_PARTS = 3
_WHO = {
    "owner": "the person who began the run",
    "participants": "people who take part in the thread",
    "anyone": "people in the channel",
}


@click.group()
def approvals() -> None:
    """Check the approval rules, and list pending requests and the rules that people made."""


@approvals.command()
@config_option
@click.option("--tool", "name", required=True, metavar="NAME", help="The tool, such as write_file.")
@click.option("--input", "given", metavar="YAML", default="{}", help="The arguments of the call, as YAML or JSON.")
@click.option("--instance", metavar="NAME", help="The agent. Default: the first one.")
@click.option("--channel", metavar="ID", default="", help="The channel, such as C123.")
@click.option("--person", metavar="ID", default="", help="The user for whom the agent works, such as U123.")
@click.option("--conversation", metavar="ID", default="", help="The conversation, such as T123:C123:1795527356.212785.")
def check(  # noqa: PLR0913, PLR0917 - the parts of a call
    config_path: Path | None,
    name: str,
    given: str,
    instance: str | None,
    channel: str,
    person: str,
    conversation: str,
) -> None:
    """Say what would be asked about a call, whom, and by which rule. Nothing is called.

    Rules of “Always allow” apply as in the store: those of an agent everywhere, others with --conversation.

    Exit code 0: the call is allowed; 1: people are asked, or it is denied.
    """
    from orchestrator_interactive.modules.hooks_approval.policy import CallFacts  # noqa: PLC0415 - it takes long

    arguments = _arguments(given)
    setup = Setup(Environment.from_environ())
    with setup.errors():
        config = setup.load(config_path)
        chosen = instance or next(iter(config.instances))
        if chosen not in config.instances:
            raise ConfigError(f"There is no instance {chosen!r}; there are: {', '.join(config.instances)}.")
        if conversation and conversation.count(":") < _PARTS - 1:
            raise NotUsable("--conversation is TEAM:CHANNEL:TS, as `amplifier-slack conversations list` prints it.")
        facts = CallFacts(chosen, channel or "".join(conversation.split(":")[1:2]), person)
        level = asyncio.run(_checked(config, setup.environment, name, arguments, facts, conversation))
    raise SystemExit(0 if level == "allow" else 1)


def _arguments(given: str) -> dict[str, Any]:
    try:
        arguments = yaml.safe_load(given)
    except yaml.YAMLError as e:
        raise NotUsable(f"--input is neither YAML nor JSON: {e}".replace("\n", " ")) from e
    if not isinstance(arguments, dict):
        raise NotUsable('--input must be a mapping of arguments, such as {"path": "plan.md"}.')
    return arguments


async def _checked(  # noqa: PLR0913, PLR0917 - the parts of a call
    config: ServiceConfig,
    environment: Environment,
    name: str,
    arguments: dict[str, Any],
    facts: CallFacts,
    conversation: str,
) -> str:
    """Print the decision about a call, and the text for people; return its level."""
    from orchestrator_interactive.interactions.stores import MemoryStore  # noqa: PLC0415 - they take long
    from orchestrator_interactive.modules import hooks_approval  # noqa: PLC0415
    from orchestrator_interactive.modules.hooks_approval.policy import ApprovalOptions  # noqa: PLC0415
    from service.sessions.mount_plan import mount_plan, new_session  # noqa: PLC0415

    instance = config.instances[facts.instance]
    hook = next((each for each in instance.hooks if each.module == _MODULE), None)
    if hook is None:
        click.echo(f"allow: {facts.instance} has no {_MODULE}, so no one is asked. Add it to `hooks`.")
        return "allow"
    with tempfile.TemporaryDirectory() as folder:
        plan = mount_plan(instance, environment.default_provider, Path(folder), provider_keys=environment.provider_keys)
        async with new_session(plan, MemoryStore()) as session:
            tool: Tool | None = session.coordinator.get("tools", name)
            known = ", ".join(sorted(session.coordinator.get("tools")))
            if tool is None:
                raise ConfigError(f"{facts.instance} has no tool {name!r}; it has: {known}.")
            options = ApprovalOptions(**hook.config)
            decision = hooks_approval.decide(options, name, arguments, tool, facts)
            rules = await _always(store_of(config, environment), conversation, facts.instance)
            decision = decision.unless_allowed(rules, name, arguments)
            click.echo(f"{decision.level}: by {decision.rule}.{_whom(decision, options.deadline_s)}")
            if decision.level in {"ask", "ask-two"}:
                click.echo(await hooks_approval.preview(tool, arguments))
    return decision.level


async def _always(url: str, conversation: str, instance: str) -> list[dict[str, Any]]:
    """Return the rules of “Always allow” that apply; without a conversation, those that apply everywhere."""
    if (path := file_of(url)) is not None and not path.exists():
        return []
    async with aclosing(await inspect_run_store(url)) as store:
        rules = _rules(store)
        if conversation:
            return await rules.applicable(Key(conversation, instance))
        found = [rule for team in await workspaces_of_documents(store) for rule in await rules.all(team)]
    return [each for each in found if each.get("instance") == instance and each.get("conversation") is None]


def _whom(decision: Decision, deadline_s: float) -> str:
    if decision.level not in {"ask", "ask-two"}:
        return ""
    who = " or ".join(_WHO.get(each, each) for each in decision.approvers)
    count = "Two of" if decision.level == "ask-two" else "One of"
    return f" {count} these must allow it within {deadline_s:g} s: {who}."


@approvals.command("list")
@with_store
async def list_(access: StoreAccess) -> None:
    """List the requests that wait for an answer, and the rules of “Always allow”."""
    async with aclosing(await inspect_run_store(access.url)) as store:
        waiting = await _waiting(store)
        teams = await workspaces_of_documents(store)
        rules = [rule for team in teams for rule in await _rules(store).all(team)]
    if waiting:
        click.echo(table(("conversation", "asks", "until"), waiting))
    else:
        click.echo("Nothing waits for an answer.")
    if rules:
        rows = [
            (str(each["id"]), each["tool"], each["instance"], each.get("conversation", "everywhere"), each["by"])
            for each in rules
        ]
        click.echo(f"\nAlways allowed:\n{table(('id', 'tool', 'instance', 'where', 'by'), rows)}")
    else:
        click.echo("Nothing is always allowed.")


@approvals.command()
@click.argument("rule")
@with_store
async def revoke(access: StoreAccess, rule: str) -> None:
    """Revoke a rule of “Always allow”. RULE is an id that `list` prints."""
    async with aclosing(await inspect_run_store(access.url)) as store, audit_log(access.audit_log) as record:
        for team in await workspaces_of_documents(store):
            if await _rules(store).revoke(team, rule):
                record("rule.revoked", rule=rule, by="operator")
                click.echo(f"Revoked {rule}. The next call is asked about again.")
                return
    raise click.ClickException(f"There is no rule {rule!r}. `amplifier-slack approvals list` prints the rules.")


def _rules(store: RunStore) -> AlwaysRules:
    from orchestrator_interactive.storage.retry import StoreRetryPolicy, retrying  # noqa: PLC0415 - it takes long
    from service.sessions.people import AlwaysRules  # noqa: PLC0415 - it takes long

    return AlwaysRules(retrying(store, StoreRetryPolicy()))


async def _waiting(store: RunStore) -> list[tuple[str, str, str]]:
    """Return the requests without an answer: conversation, title and deadline."""
    rows = []
    for name in await store.unfinished():
        record = await store.record(name)
        if record is not None and (run := active_run(record.run)) is not None:
            rows += [
                (name, each.request.title, moment(each.deadline_s))
                for each in run.requests.values()
                if each.answer is None
            ]
    return rows
