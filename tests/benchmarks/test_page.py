"""The page that `make bench` writes, and its picture."""

from __future__ import annotations

import re
from importlib import import_module
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from benchmarks.harness import Benchmark, Effort, Row, Side
from benchmarks.page import LOAD, write
from benchmarks.picture import OURS, drawn

DOCS = Path(__file__).parents[2] / "docs"
NAMES = ("loop", "compression", "intake", "interactions", "kernel", "memory", "recovery", "replicas", "run_store")
EFFORT = Effort(processes=1, rounds=2, round_s=0.02)
SVG = "{http://www.w3.org/2000/svg}"
BENCHMARK = Benchmark(
    title="A <sample>",
    rows=(Row("one", "first row", target=5), Row("two", "second row")),
    sides=(
        Side("ours", None),
        Side("ours, dressed", None),
        Side("theirs", None),
        Side("absent", None, packages=("no-such-distribution",), install="pip install it"),
    ),
    pictured=("one", "two"),
    notes=("A note.",),
)
RESULTS = {
    ("ours", "one"): [1.0, 3.0],
    ("ours", "two"): [20.0, 20.0],
    ("ours, dressed", "one"): [10.0],
    ("ours, dressed", "two"): [10.0],
    ("theirs", "one"): [1000.0],
    ("theirs", "two"): [200.0],
}


def rectangles(drawing):
    """Return the bars without the two of the legend."""
    return ET.fromstring(drawing).findall(f"{SVG}rect")[2:]  # noqa: S314 - made here


def texts(drawing):
    return [text.text or "" for text in ET.fromstring(drawing).findall(f"{SVG}text")]  # noqa: S314


def test_the_section_about_the_load_stays_on_the_page(tmp_path):
    for _ in range(2):
        write(tmp_path, [(BENCHMARK, RESULTS)], EFFORT)
        page = tmp_path / "benchmarks.md"
        if LOAD not in page.read_text(encoding="utf-8"):
            page.write_text(page.read_text(encoding="utf-8") + f"\n{LOAD}\nFigures.\n", encoding="utf-8")
    assert page.read_text(encoding="utf-8").endswith(f"A note.\n\n{LOAD}\nFigures.\n")


def test_the_page_has_a_table_a_picture_and_notes(tmp_path):
    paths = write(tmp_path, [(BENCHMARK, RESULTS)], EFFORT)
    assert [path.name for path in paths] == ["benchmarks.md", "benchmarks.svg"]
    page = (tmp_path / "benchmarks.md").read_text(encoding="utf-8")
    assert page.partition("\n\n")[2].startswith(
        "A <sample> costs 2.00 µs in our loop, 1,000 (theirs) to 1,000 (theirs)"
    )
    assert "Made by `make bench`" in page
    assert "1 x 2 rounds of 20 ms" in page
    assert "](benchmarks.svg)" in page
    assert "| ours | 2.00 [1.50-2.50] | 20.0 [20.0-20.0] |\n" in page
    assert "| theirs | 1,000 x500 | 200 x10.0 |\n" in page
    assert "| target | ≤ 5.00: met | - |\n" in page
    assert "absent is not installed; to compare: pip install it" in page
    assert "\n\nA note.\n" in page


def test_every_row_has_the_same_number_of_cells(tmp_path):
    write(tmp_path, [(BENCHMARK, RESULTS)], EFFORT)
    page = (tmp_path / "benchmarks.md").read_text(encoding="utf-8")
    assert {line.count("|") for line in page.splitlines() if line.startswith("|")} == {4}


def test_a_benchmark_without_a_picture_writes_none(tmp_path):
    plain = Benchmark("Plain", BENCHMARK.rows, BENCHMARK.sides)
    assert write(tmp_path, [(plain, RESULTS)], EFFORT) == [tmp_path / "benchmarks.md"]
    assert "svg" not in (tmp_path / "benchmarks.md").read_text(encoding="utf-8")


def test_the_length_of_a_bar_is_the_logarithm_of_its_cost():
    bars = [float(bar.get("width", "nan")) for bar in rectangles(drawn(BENCHMARK, RESULTS))]
    assert len(bars) == 6
    decade = bars[4] / 3  # from 1 to 1,000
    assert bars[2:4] == pytest.approx([decade, decade], abs=0.1)


def test_our_bars_have_their_own_colour_and_each_bar_has_a_figure():
    drawing = drawn(BENCHMARK, RESULTS)
    ours = [bar.get("fill") == OURS for bar in rectangles(drawing)]
    assert ours == [True, True, True, True, False, False]
    assert {"2.00", "20.0", "10.0", "1,000", "200"} <= set(texts(drawing))
    assert {"A <sample>", "theirs", "first row, µs", "second row, µs"} <= set(texts(drawing))
    assert "absent" not in texts(drawing)


def test_all_bars_are_inside_the_picture():
    drawing = drawn(BENCHMARK, RESULTS)
    _, _, width, height = map(float, ET.fromstring(drawing).get("viewBox", "").split())  # noqa: S314 - made here
    for bar in rectangles(drawing):
        right = float(bar.get("x", "nan")) + float(bar.get("width", "nan"))
        bottom = float(bar.get("y", "nan")) + float(bar.get("height", "nan"))
        assert right < width
        assert bottom < height


@pytest.mark.parametrize("name", [*NAMES, "steering", "streaming"])
def test_the_page_in_the_docs_has_every_row_and_target(name):
    benchmark: Benchmark = import_module(f"benchmarks.{name}").BENCHMARK
    page = (DOCS / "benchmarks.md").read_text(encoding="utf-8")
    (section,) = re.findall(rf"^## {re.escape(benchmark.title)}\n(.*?)(?=^## |\Z)", page, re.MULTILINE | re.DOTALL)
    for row in benchmark.rows:
        assert f" {row.title}, {row.unit} |" in section
    assert section.count("≤") >= sum(row.target is not None for row in benchmark.rows)
    assert "is not installed" not in section


def test_the_picture_in_the_docs_shows_every_loop():
    loop: Benchmark = import_module("benchmarks.loop").BENCHMARK
    drawing = (DOCS / "benchmarks.svg").read_text(encoding="utf-8")
    assert {side.name for side in loop.sides} <= set(texts(drawing))
