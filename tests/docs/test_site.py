"""The documentation site: it builds without a warning, and has all pages and all keys."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from service.config.config import InstanceConfig, ServiceConfig
from service.config.slack import SlackConfig

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    folder = tmp_path_factory.mktemp("site")
    command = (sys.executable, ROOT / "deploy/docs/build.py", folder)
    built = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)  # noqa: S603
    assert (built.returncode, built.stdout, built.stderr) == (0, "", "")
    return folder


def test_every_page_is_on_the_site_and_in_its_navigation(site):
    pages = {path.stem for path in ROOT.glob("docs/*.md")} | {"changelog", "contributing", "configuration-keys"}
    start = (site / "index.html").read_text()
    navigation = start[start.index("sidebar-tree") :]
    assert pages == set(re.findall(r'class="reference internal" href="([\w-]+)/"', navigation)) & pages
    assert all((site / page / "index.html").exists() for page in pages)


def test_the_reference_has_the_keys_of_the_models_with_their_descriptions_and_defaults(site):
    text = (site / "configuration-keys" / "index.html").read_text()
    keys = set(re.findall(r"<td><p><code[^>]*><span class=\"pre\">(\w+)</span></code></p></td>", text))
    for model in (ServiceConfig, InstanceConfig, SlackConfig):
        assert set(model.model_fields) <= keys
    assert "least time between two edits of a status message" in text
    assert "redis://HOST" in text
    assert "***" not in text


def test_no_page_loads_anything_from_another_host(site):
    for page in site.rglob("*.html"):
        assert re.findall(r'<(?:script|img|link)[^>]+(?:src|href)="(https?:[^"]+)"', page.read_text()) == []
