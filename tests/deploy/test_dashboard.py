"""The dashboard for Grafana uses metrics and labels that the service has."""

from __future__ import annotations

import json
import re

import pytest
from all_metrics import families, labels_of

# Labels that Prometheus adds to every metric of a process.
OF_PROMETHEUS = {"job", "instance", "le"}


@pytest.fixture
def dashboard(deploy):
    return json.loads((deploy / "grafana" / "amplifier-slack.json").read_text())


async def test_every_expression_of_the_dashboard_uses_existing_metrics_and_their_labels(dashboard):
    labels = {}
    for family in await families():
        labels |= {sample.name: set(labels_of(family)) | OF_PROMETHEUS for sample in family.samples}
    expressions = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    assert len(expressions) > 20
    for expression in expressions:
        (name,) = re.findall(r"\b(?:amplifier_slack|process)_\w+", expression)
        used = re.findall(r"(\w+)[!=]~?\"", expression) + re.findall(r"\w+", " ".join(by(expression)))
        assert (name, set(used) - labels[name]) == (name, set())


def by(expression):
    """Return the lists of labels after `by`."""
    return re.findall(r"by \(([^)]*)\)", expression)


def test_the_panels_have_titles_and_places_of_their_own(dashboard):
    assert dashboard["schemaVersion"] >= 39
    panels = dashboard["panels"]
    assert len({panel["title"] for panel in panels}) == len({panel["id"] for panel in panels}) == len(panels)
    taken = [(x, y) for panel in panels for x, y in cells(**panel["gridPos"])]
    assert (len(taken), max(x for x, _ in taken)) == (len(set(taken)), 23)


def cells(x, y, w, h):
    return [(column, row) for column in range(x, x + w) for row in range(y, y + h)]
