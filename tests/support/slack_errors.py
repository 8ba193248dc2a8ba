"""The error codes of calls that Slack refuses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from slack_sdk.errors import SlackApiError

from local_slack import SlackRefused

if TYPE_CHECKING:
    from collections.abc import Awaitable


async def error_of(call: Awaitable[Any]) -> str:
    """Return the error code of a call, by the SDK or by a person's client."""
    with pytest.raises((SlackApiError, SlackRefused)) as caught:
        await call
    error = caught.value
    return str(error.response["error"] if isinstance(error, SlackApiError) else error.code)
