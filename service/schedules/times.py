"""When a schedule fires: lines of cron, moments and delays, in a time zone."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from itertools import islice, pairwise
from typing import TYPE_CHECKING, NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim, CronSimError

if TYPE_CHECKING:
    from collections.abc import Iterator

# Least time between two occurrences, and how many are checked for it.
_LEAST_S, _CHECKED = 300.0, 100
# Occurrences that are counted one by one after an outage.
MOST_COUNTED = 100
_FARTHEST = timedelta(days=5 * 366)
_IN = re.compile(r"in\s+(an?|\d{1,4})\s+(minute|hour|day|week)s?\b", re.IGNORECASE)
_AT = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d)?(?:Z|[+-]\d\d:\d\d)?(?=\s|$)")
_CRON = re.compile(r"[\d*][\d*,/-]*(?:\s+[\w*,/#-]+){4}(?=\s|$)")
_USAGE = "Write a time, such as `in 2 weeks`, `2026-12-01 09:00`, or a line of cron, such as `0 9 * * 1`."


class Times(NamedTuple):
    """When a schedule fires: its line of cron (blank: once), its first time in seconds since the epoch, and words."""

    cron: str
    first_s: float
    title: str


def zone_of(name: str) -> ZoneInfo:
    """Return a time zone by its IANA name.

    Raises:
        ValueError: there is none.
    """
    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as e:
        raise ValueError(f"There is no time zone {name!r}. Write its IANA name, such as Europe/Berlin.") from e


def parse(text: str, zone: str, now_s: float) -> tuple[Times, str]:
    """Parse the times at the beginning of a text; return them, and the rest of the text.

    Raises:
        ValueError: it begins with no time, or with one that is not possible; the message is a sentence.
    """
    text, where = text.strip(), zone_of(zone)
    if match := _IN.match(text) or _AT.match(text):
        try:
            at = _later(match, where, now_s) if match.re is _IN else _moment(match[0], where)
        except ValueError as e:
            raise ValueError(f"{match[0]!r} is no time ({e}). {_USAGE}") from e
        now = datetime.fromtimestamp(now_s, UTC)
        if not now < at <= now + _FARTHEST:
            raise ValueError(f"{match[0]!r} is {'in the past' if at <= now else 'too far away'}. {_USAGE}")
        first_s = at.timestamp()  # of a moment that a change to summer time skips, as much later as the gap is long
        times = Times("", first_s, f"once, on {datetime.fromtimestamp(first_s, where):%a %d %b %Y at %H:%M} ({zone})")
    elif match := _CRON.match(text):
        times = _every(" ".join(match[0].split()), zone, now_s)
    else:
        raise ValueError(_USAGE)
    return times, text[match.end() :].strip()


def occurrences(cron: str, zone: str, after_s: float, *, backwards: bool = False) -> Iterator[float]:
    """Yield the times of a line of cron after a time, or before it, in seconds since the epoch.

    As in Debian's cron, a time that a change to summer time skips is moved to the end of the gap, and a time that a
    change back repeats occurs once. A line whose minute or hour begins with `*` follows the clock instead: it does not
    occur in the gap, and occurs in both passes of a repeated hour.
    """
    for each in CronSim(cron, datetime.fromtimestamp(after_s, ZoneInfo(zone)), reverse=backwards):
        at_s = each.timestamp()
        # CronSim takes a time in the second pass of a repeated hour for one in the first pass.
        if at_s < after_s if backwards else at_s > after_s:
            yield at_s


def passed(cron: str, zone: str, due_s: float, now_s: float) -> tuple[list[float], int]:
    """Return the occurrences from one until now, and their number; of more than `MOST_COUNTED`, not all."""
    found = [due_s]
    for each in islice(occurrences(cron, zone, due_s), MOST_COUNTED):
        if each > now_s:
            return found, len(found)
        found.append(each)
    latest = list(islice(occurrences(cron, zone, now_s + 1, backwards=True), 2))
    return [due_s, *reversed(latest)], MOST_COUNTED


def _later(match: re.Match[str], zone: ZoneInfo, now_s: float) -> datetime:
    """Return the time after a delay: days and weeks keep the time of day."""
    number = int(match[1]) if match[1].isdigit() else 1
    delay = timedelta(**{f"{match[2].lower()}s": number})
    now = datetime.fromtimestamp(now_s, zone)
    return now + delay if match[2].lower() in {"day", "week"} else now.astimezone(UTC) + delay


def _moment(text: str, zone: ZoneInfo) -> datetime:
    at = datetime.fromisoformat(text)
    return at if at.tzinfo is not None else at.replace(tzinfo=zone)


def _every(cron: str, zone: str, now_s: float) -> Times:
    try:
        following = list(islice(occurrences(cron, zone, now_s), _CHECKED))
        title = CronSim(cron, datetime.now(UTC)).explain()
    except CronSimError as e:
        raise ValueError(f"`{cron}` is no line of cron ({e}). {_USAGE}") from e
    if not following:
        raise ValueError(f"`{cron}` never occurs.")
    if any(later - earlier < _LEAST_S for earlier, later in pairwise(following)):
        raise ValueError(f"`{cron}` occurs too often: at least {_LEAST_S / 60:g} minutes must lie in between.")
    return Times(cron, following[0], f"{title[:1].lower()}{title[1:]} ({zone})")
