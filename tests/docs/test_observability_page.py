from __future__ import annotations

from all_metrics import families, labels_of

from service.observe.metrics import PREFIX
from service.observe.server import Health


async def test_the_table_lists_every_metric_with_its_type_and_labels(page):
    expected = []
    for family in await families():
        if family.name.startswith(PREFIX):
            name = family.name.removeprefix(f"{PREFIX}_") + ("_total" if family.type == "counter" else "")
            expected.append(
                [f"`{name}`", family.type, ", ".join(f"`{label}`" for label in labels_of(family)) or "none"]
            )
    assert [row[:3] for row in page.table("metric")] == expected


async def test_the_table_lists_every_check(page):
    health = Health(0, {})
    health.are_agents_there = lambda: True
    assert [row[0] for row in page.table("check")] == [f"`{name}`" for name in await health.ready()]
