from __future__ import annotations

from pathlib import Path

import pytest

from orchestrator_interactive.kernel import AmplifierSession
from service.config.config import ConfigError, load_config
from service.sessions.mount_plan import mount_plan

FILE = "instances: {{a: {{persona: {{name: A, emoji: ':owl:'}}, session: {{{limits}}}}}}}"


def written(folder: Path, limits: str) -> Path:
    path = folder / "config.yaml"
    path.write_text(FILE.format(limits=limits))
    return path


def test_the_limits_of_hooks_reach_the_session(tmp_path):
    path = written(tmp_path, "hook_timeout_s: 30, injection_size_limit: 20000, injection_budget_per_turn: 2000")
    plan = mount_plan(load_config(path).instances["a"], "provider-demo", tmp_path)
    coordinator = AmplifierSession(plan).coordinator
    assert (coordinator.injection_size_limit, coordinator.injection_budget_per_turn) == (20000, 2000)
    assert coordinator.hooks.timeout_s == 30


@pytest.mark.parametrize(
    ("limits", "told"),
    [
        ("hook_timeout_s: 0", "instances.a.session.hook_timeout_s: must be more than 0"),
        ("hook_timeout_s: soon", "instances.a.session.hook_timeout_s: must be a number"),
        ("injection_size_limit: -1", "instances.a.session.injection_size_limit: must be 0 or more"),
        ("hooks: 3", "instances.a.session.hooks: unknown key; valid keys: hook_timeout_s, injection_size_limit"),
    ],
)
def test_a_wrong_limit_is_told(tmp_path, limits, told):
    with pytest.raises(ConfigError, match=told):
        load_config(written(tmp_path, limits))
