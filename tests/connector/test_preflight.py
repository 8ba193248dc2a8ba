from __future__ import annotations

import pytest
from chat import ALPHA
from fake_sessions import FakeSessionManager

from connector import ConnectionRefused, SlackCredentials, SocketTransport, connected
from local_slack import DropBeforeCall, LocalSlack, RateLimited, ServerError


@pytest.fixture
def refusal(runs, slack):
    """Try to connect; return the reason of the refusal."""

    async def refusal(*, bot_token: str = "", app_token: str = "", url: str = "") -> str:
        transport = SocketTransport(app_token or slack.app_token)
        credentials = SlackCredentials(bot_token or slack.bot_token, url or slack.api_url, transport)
        with pytest.raises(ConnectionRefused) as refused:
            async with connected(credentials, [ALPHA], FakeSessionManager(), runs):
                pass
        assert "\n" not in str(refused.value)
        return str(refused.value)

    return refusal


async def test_a_wrong_token_is_named(refusal):
    assert "SLACK_BOT_TOKEN (invalid_auth)" in await refusal(bot_token="xoxb-wrong")
    assert "SLACK_APP_TOKEN (invalid_auth)" in await refusal(app_token="xapp-wrong")


async def test_an_unreachable_slack_is_named(refusal):
    async with LocalSlack() as gone:
        url = gone.api_url
    assert f"Slack cannot be reached at {url}" in await refusal(url=url)


@pytest.mark.parametrize("fault", [DropBeforeCall(), ServerError(503), ServerError(200)])
@pytest.mark.parametrize("method", ["auth.test", "apps.connections.open"])
async def test_a_slack_that_fails_is_not_reported_as_a_wrong_token(refusal, slack, method, fault):
    slack.faults.next(method, fault, times=4)
    assert "does not accept" not in await refusal()


async def test_an_address_without_a_web_api_is_not_reported_as_a_wrong_token(refusal, slack):
    reason = await refusal(url=slack.url)
    assert "does not accept" not in reason
    assert "SLACK_API_URL" in reason


async def test_the_connection_waits_for_a_rate_limit(process, slack):
    slack.faults.next("auth.test", RateLimited(0))
    slack.faults.next("apps.connections.open", RateLimited(0))
    async with process():
        pass
