"""Every test of this folder runs with `provider-anthropic` and with `provider-openai`."""

import pytest
from mounted_provider import ANTHROPIC, OPENAI, Api


@pytest.fixture(params=[ANTHROPIC, OPENAI], ids=lambda api: api.name)
def api(request: pytest.FixtureRequest) -> Api:
    return request.param
