"""Report the demo's findings in text files: counts, open items, contradictions."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_MONTHS = "January|February|March|April|May|June|July|August|September|October|November|December"
_DATED = re.compile(rf"\b(launch|release|deadline|pilot)\w*\b.{{0,50}}?\b(\d{{1,2}} (?:{_MONTHS}))\b", re.IGNORECASE)
_WITHOUT_OWNER = re.compile(r"\s*[-*+] \[ \] (?!.*(?:@\w|\((?!by\b)[A-Z]))(.+)")
_SUGGESTIONS = (
    ("Give open items an owner", _WITHOUT_OWNER),
    ("Clear up the lines marked as unfinished", re.compile(r".*\b(?:TODO|FIXME|TBD)\b.*")),
    ("Answer the open questions", re.compile(r"(?!.*\[ \]).*\?(?=\s|$).*")),
)


def report_files(files: Mapping[str, str]) -> str:
    """Return a report in Markdown about files, by path."""
    lines = [(f"`{path}:{n}`", line) for path, text in files.items() for n, line in enumerate(text.splitlines(), 1)]
    dates: dict[str, dict[str, str]] = {}
    for place, line in lines:
        if dated := _DATED.search(line):
            dates.setdefault(dated[1].lower(), {}).setdefault(dated[2], place)
    advice = [
        f"**Settle the {topic} date.** The files do not agree: {', '.join(f'{d} in {p}' for d, p in by_date.items())}."
        for topic, by_date in dates.items()
        if len(by_date) > 1
    ]
    for title, pattern in _SUGGESTIONS:
        if found := [(place, line.strip(" #-*+[]")) for place, line in lines if pattern.fullmatch(line)]:
            advice.append(f"**{title}.** {counted(len(found), 'line')}, such as “{found[0][1]}” ({found[0][0]}).")
    parts = [
        f"I have read **{counted(len(files), 'file')}**, {counted(len(lines), 'line')} in all.",
        "\n".join(f"- `{path}`: {counted(len(text.splitlines()), 'line')}" for path, text in files.items()),
        "\n".join(("**What I suggest**", *(f"{n}. {line}" for n, line in enumerate(advice, 1)))) if advice else "",
    ]
    return "\n\n".join(part for part in parts if part)


def counted(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"
