"""All checks, in the order of their dependencies."""

from __future__ import annotations

from typing import TYPE_CHECKING

from service.config.config import ConfigError
from service.config.tokens import api_url, bot_token
from service.doctor import slack_app, transport
from service.doctor.agents import check_agents
from service.doctor.findings import DoctorFinding, failed, skipped
from service.doctor.storage import check_disks, check_store, check_workspace
from service.doctor.web_api import WebApi

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from service.config.config import Environment, ServiceConfig


async def examined(config: ServiceConfig, environment: Environment) -> AsyncIterator[DoctorFinding]:
    """Run all checks and yield their findings."""
    try:
        url = api_url(environment)
    except ConfigError as e:
        yield failed("Slack", str(e))
    else:
        async with WebApi.at(url) as api:
            async for finding in _of_slack(api, config, environment):
                yield finding
    yield await check_store(config, environment)
    yield check_workspace(config)
    yield check_disks(config, environment)
    default = "provider-anthropic" if environment.anthropic_api_key else "provider-demo"
    async for finding in check_agents(config, default, environment.anthropic_key):
        yield finding


async def _of_slack(api: WebApi, config: ServiceConfig, environment: Environment) -> AsyncIterator[DoctorFinding]:
    answer, bots_app = await slack_app.answer_to(api, environment), None
    if isinstance(answer, DoctorFinding):
        yield answer
        yield skipped("scopes", "not checked: the bot token does not work.")
    else:
        for finding in slack_app.findings_in(answer):
            yield finding
        bots_app = await slack_app.id_of(api, bot_token(environment), str(answer.data.get("bot_id")))
    sockets_app = None
    if config.slack.transport == "socket":
        found, sockets_app = await transport.check_socket(api, environment)
        yield found
    else:
        yield await transport.check_http(api, config.slack, environment)
    for finding in slack_app.of_two_apps(sockets_app, bots_app):
        yield finding
    async for finding in slack_app.check_settings(api, environment, config.slack, sockets_app or bots_app):
        yield finding
