"""The files of `deploy/` as values, and the tools that check them, where they are installed."""

from __future__ import annotations

import re
import shutil
import subprocess
import tomllib
from functools import partial
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"


class _Compose(yaml.SafeLoader):
    """YAML with the tag `!override` of compose."""


_Compose.add_constructor("!override", lambda loader, node: loader.construct_sequence(node, deep=True))


@pytest.fixture(scope="session")
def deploy():
    return DEPLOY


@pytest.fixture(scope="session")
def version():
    return tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


@pytest.fixture(scope="session")
def dockerfile():
    """The instructions of the last stage: a list of keyword and arguments."""
    text = (DEPLOY / "docker" / "Dockerfile").read_text().replace("\\\n", " ")
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line and not line.startswith("#")]
    last = max(place for place, (keyword, _) in enumerate(lines) if keyword == "FROM")
    return lines[last:]


@pytest.fixture(scope="session")
def containers():
    """The services of both compose files, each with what it takes from another one."""
    one, redis = (
        yaml.load((DEPLOY / "compose" / name).read_text(), _Compose)["services"]  # noqa: S506 - a SafeLoader
        for name in ("compose.yaml", "compose.redis.yaml")
    )
    return {
        **one,
        **{name: {**one["amplifier-slack"], **each} if "extends" in each else each for name, each in redis.items()},
    }


@pytest.fixture(scope="session")
def replicas(containers):
    return [each for name, each in containers.items() if name != "redis"]


@pytest.fixture(scope="session")
def unit():
    """The options of the systemd unit; the last value of each."""
    text = (DEPLOY / "systemd" / "amplifier-slack.service").read_text()
    return dict(re.findall(r"^(\w+)=(.*)$", text, re.MULTILINE))


@pytest.fixture(scope="session")
def tool():
    """Run a tool if it is installed, else skip the test."""

    def run(name, *arguments):
        path = shutil.which(name)
        if path is None:
            pytest.skip(f"{name} is not installed")
        return subprocess.run([path, *map(str, arguments)], capture_output=True, text=True, check=False)  # noqa: S603

    return run


@pytest.fixture(scope="session")
def template(tool):
    """Render the chart with these options of `helm template`."""
    return partial(tool, "helm", "template", "demo", DEPLOY / "helm" / "amplifier-slack")
