"""Derive suggestions from the findings."""

from __future__ import annotations

import re
from collections import defaultdict
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from orchestrator_interactive.modules.provider_demo.findings import FileFindings, Spot

_BRACKETS = re.compile(r"\([^()]*\)")

MOST = 5
FEWEST = 3


def suggestions(files: Sequence[FileFindings]) -> list[str]:
    """Return three to five suggestions in Markdown, the most important first; fewer without findings."""
    weighty = [
        *_contradictions(files),
        *_without_owner(files),
        *_doubles(files),
        *_some("Clear up what is marked as unfinished", "mark", [s for f in files for s in f.marks]),
        *_some("Answer the open questions", "open question", [s for f in files for s in f.questions]),
        *_some("Say by when", "open item without a date", [s for f in files for s in f.without_date]),
    ]
    lighter = [*_shapeless(files), *_undated(files), *_no_guide(files)]
    return [*weighty[:MOST], *lighter[: max(0, FEWEST - len(weighty))]]


def _contradictions(files: Sequence[FileFindings]) -> Iterator[str]:
    places: defaultdict[str, dict[str, Spot]] = defaultdict(dict)
    for dated in (dated for file in files for dated in file.dates):
        places[dated.topic].setdefault(dated.date, dated.spot)
    for topic, dates in places.items():
        if len(dates) > 1:
            said = ", ".join(f"{date} in {spot.place}" for date, spot in dates.items())
            yield f"**Settle the {topic} date.** The files do not agree: {said}."


def _without_owner(files: Sequence[FileFindings]) -> Iterator[str]:
    items = [spot for file in files for spot in file.without_owner]
    rows = [spot for file in files for spot in file.gaps]
    everything = sum(len(file.open_items) for file in files)
    if items:
        yield f"**Give open items an owner.** {len(items)} of {everything} have none, such as {_quoted(items)}."
    if rows:
        yield f"**Fill in the owners of the table.** {_counted(len(rows), 'row')} without one, such as {_quoted(rows)}."


def _doubles(files: Sequence[FileFindings]) -> Iterator[str]:
    places: defaultdict[str, list[Spot]] = defaultdict(list)
    for spot in (spot for file in files for spot in file.open_items):
        places[re.sub(r"\W+", " ", _BRACKETS.sub("", spot.text)).strip().lower()].append(spot)
    for spots in places.values():
        if len(spots) > 1:
            where = " and ".join(spot.place for spot in spots)
            yield f"**Keep each task in one place.** “{min((s.text for s in spots), key=len)}” is in {where}."


def _some(title: str, what: str, spots: Sequence[Spot]) -> Iterator[str]:
    if spots:
        yield f"**{title}.** {_counted(len(spots), what)}, such as {_quoted(spots)}."


def _shapeless(files: Sequence[FileFindings]) -> Iterator[str]:
    for file in files:
        if not file.lines:
            yield f"**Fill or remove `{file.path}`.** It is empty."
        elif file.path.endswith((".md", ".txt")) and file.lines >= 10 and not file.headings:
            yield f"**Give `{file.path}` headings.** It has {file.lines} lines and none."


def _undated(files: Sequence[FileFindings]) -> Iterator[str]:
    if undated := [file.path for file in files if file.lines and not file.mentions_a_date]:
        yield f"**Say how old it is.** There is no date in {', '.join(f'`{path}`' for path in undated)}."


def _no_guide(files: Sequence[FileFindings]) -> Iterator[str]:
    if len(files) > 1 and not any("readme" in file.path.lower() for file in files):
        yield f"**Add a `README.md`** that says which of the {len(files)} files is for what."


def _quoted(spots: Sequence[Spot]) -> str:
    clearest = min(spots, key=lambda spot: spot.path.endswith(".csv"))
    return f"“{clearest.text}” ({clearest.place})"


def _counted(count: int, what: str) -> str:
    if count == 1:
        return f"1 {what}"
    return f"{count} " + re.sub(r"^((?:open )?\w+)", r"\1s", what, count=1)
