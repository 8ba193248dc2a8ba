from __future__ import annotations

import pytest
from pydantic import SecretStr

from service.config.config import ConfigError, Environment
from service.config.slack import SlackConfig
from service.config.tokens import api_url, signing_secret, slack_access


def environment(*, slack_api_url="https://slack.com/api/", **given):
    tokens = {"slack_app_token": "xapp-1-A0-1-a", "slack_bot_token": "xoxb-1", **given}
    return Environment(
        slack_api_url=slack_api_url, **{name: value and SecretStr(value) for name, value in tokens.items()}
    )


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"slack_bot_token": None}, "SLACK_BOT_TOKEN is not set."),
        ({"slack_app_token": None}, "SLACK_APP_TOKEN is not set."),
        ({"slack_bot_token": "xapp-b"}, "SLACK_BOT_TOKEN does not begin with xoxb-: it is a different kind of token."),
        *(({"slack_bot_token": f"xoxb-{bad}"}, "SLACK_BOT_TOKEN has invalid") for bad in ("s\n", "s\r\nmore", "sé")),
    ],
)
def test_a_missing_or_invalid_token_is_a_config_error_that_does_not_repeat_it(given, message):
    with pytest.raises(ConfigError) as error:
        slack_access(SlackConfig(), environment(**given))
    assert str(error.value).startswith(message)
    (token,) = given.values()
    assert token is None or token.strip() not in str(error.value)


@pytest.mark.parametrize(
    ("secret", "message"),
    [
        (None, "SLACK_SIGNING_SECRET is not set: `transport: http` requires it."),
        ("xoxb-1-of-the-test", "SLACK_SIGNING_SECRET is a token"),
        ("0123456789abcdef\n", "SLACK_SIGNING_SECRET has invalid characters"),
        ("sécret", "SLACK_SIGNING_SECRET has invalid characters"),
    ],
)
def test_the_http_transport_needs_a_valid_signing_secret(secret, message):
    with pytest.raises(ConfigError) as error:
        signing_secret(environment(slack_signing_secret=secret))
    assert message in str(error.value)
    assert "Basic Information" in str(error.value) or "Copy it again" in str(error.value)
    assert secret is None or secret.strip() not in str(error.value)


def test_each_transport_needs_its_own_credential_only_and_shows_none():
    http = environment(slack_app_token=None, slack_signing_secret="0123456789")
    assert "0123456789" not in repr(slack_access(SlackConfig(transport="http"), http))
    assert "xoxb" not in repr(slack_access(SlackConfig(), environment()))


@pytest.mark.parametrize("url", ["not a url", "localhost:1/api", "http://[::1"])
def test_an_invalid_url_of_the_web_api_is_a_config_error(url):
    with pytest.raises(ConfigError, match="SLACK_API_URL is not a valid URL"):
        api_url(environment(slack_api_url=url))
