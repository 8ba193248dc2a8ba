"""Malformed events over each transport and each store; `fuzz_test.py` sends more, over any pair of them."""

from __future__ import annotations

import pytest
from fuzzing.trial import Trial


@pytest.mark.parametrize(
    ("transport", "is_redis"), [("socket", False), ("http", True)], ids=["socket-sqlite", "http-redis"]
)
@pytest.mark.timeout(180)
async def test_malformed_events_are_acknowledged_and_block_no_conversation(transport, is_redis, tmp_path):
    findings = await Trial(seed=11, events=200, transport=transport, is_redis=is_redis).run(tmp_path)
    assert findings.wrong == []
    assert findings.counts["threads that answer at the end"] > 0
    assert findings.counts["damaged"] > 100
