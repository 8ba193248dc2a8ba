from __future__ import annotations

from datetime import datetime
from itertools import islice
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from service.schedules.times import MOST_COUNTED, occurrences, parse, passed

BERLIN = ZoneInfo("Europe/Berlin")
NOW = datetime(2026, 3, 23, 10, 30, tzinfo=BERLIN)  # a Monday; summer time begins on Sunday


def at(text: str) -> float:
    found = datetime.fromisoformat(text)
    return (found if found.tzinfo else found.replace(tzinfo=BERLIN)).timestamp()


def parsed(text: str):
    times, rest = parse(text, "Europe/Berlin", NOW.timestamp())
    return times.cron, datetime.fromtimestamp(times.first_s, BERLIN).isoformat(), rest


@pytest.mark.parametrize(
    ("text", "cron", "first", "rest"),
    [
        ("in 2 weeks look again", "", "2026-04-06T10:30:00+02:00", "look again"),
        ("In a day x", "", "2026-03-24T10:30:00+01:00", "x"),
        ("in 90 minutes 5 * apples", "", "2026-03-23T12:00:00+01:00", "5 * apples"),
        ("in 150 hours x", "", "2026-03-29T17:30:00+02:00", "x"),
        ("in 144 hours x", "", "2026-03-29T11:30:00+02:00", "x"),
        ("in 8640 Minutes x", "", "2026-03-29T11:30:00+02:00", "x"),
        ("in 6 Days x", "", "2026-03-29T10:30:00+02:00", "x"),
        ("2026-12-01 09:00 check\nall", "", "2026-12-01T09:00:00+01:00", "check\nall"),
        ("2026-12-01T09:00Z x", "", "2026-12-01T10:00:00+01:00", "x"),
        ("2026-03-29 02:30 x", "", "2026-03-29T03:30:00+02:00", "x"),
        ("0 9 * * 1 the week", "0 9 * * 1", "2026-03-30T09:00:00+02:00", "the week"),
        ("*/5 9-17 * * MON-FRI", "*/5 9-17 * * MON-FRI", "2026-03-23T10:35:00+01:00", ""),
    ],
)
def test_times_are_parsed_in_the_zone_of_the_person(text, cron, first, rest):
    assert parsed(text) == (cron, first, rest)


@pytest.mark.parametrize(
    ("text", "now"), [("2026-03-29 02:30 x", "2026-03-23T10:30"), ("in 6 days x", "2026-03-23T02:30")]
)
def test_a_time_that_clocks_skip_is_confirmed_as_it_occurs(text, now):
    times, _ = parse(text, "Europe/Berlin", at(now))
    assert times.title == "once, on Sun 29 Mar 2026 at 03:30 (Europe/Berlin)"
    assert times.first_s == at("2026-03-29T03:30")


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("soon look again", "Write a time"),
        ("", "Write a time"),
        ("in 0 days x", "in the past"),
        ("2020-01-01 09:00 x", "in the past"),
        ("in 9999 weeks x", "too far away"),
        ("2026-13-01 09:00 x", "is no time"),
        ("0 25 * * 1 x", "no line of cron"),
        ("* * * * * x", "too often"),
        ("0,2 9 * * * x", "too often"),
        ("0 0 30 2 * x", "no line of cron"),
    ],
)
def test_what_is_no_possible_time_is_refused_in_a_sentence(text, why):
    with pytest.raises(ValueError, match=why):
        parsed(text)


def test_an_unknown_zone_is_refused():
    with pytest.raises(ValueError, match="no time zone 'Mars/Base'"):
        parse("in 2 weeks x", "Mars/Base", 0)


@pytest.mark.parametrize(
    ("cron", "after", "times"),
    [
        ("30 2 * * *", "2026-03-28T03:00", ["2026-03-29T03:00:00+02:00", "2026-03-30T02:30:00+02:00"]),
        ("30 2 * * *", "2026-10-24T03:00", ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"]),
        ("30 2 * * *", "2026-10-25T02:10+02:00", ["2026-10-25T02:30:00+02:00", "2026-10-26T02:30:00+01:00"]),
        ("30 2 * * *", "2026-10-25T02:10+01:00", ["2026-10-26T02:30:00+01:00", "2026-10-27T02:30:00+01:00"]),
        ("58 2 * * *", "2026-10-25T02:01+01:00", ["2026-10-26T02:58:00+01:00", "2026-10-27T02:58:00+01:00"]),
        ("0 9 * * *", "2026-03-28T09:00", ["2026-03-29T09:00:00+02:00", "2026-03-30T09:00:00+02:00"]),
        ("0 9 * * *", "2026-10-24T09:00", ["2026-10-25T09:00:00+01:00", "2026-10-26T09:00:00+01:00"]),
        ("15 * * * *", "2026-10-25T02:00+02:00", ["2026-10-25T02:15:00+02:00", "2026-10-25T02:15:00+01:00"]),
        ("*/30 2 * * *", "2026-10-25T02:10+02:00", ["2026-10-25T02:30:00+02:00", "2026-10-25T02:00:00+01:00"]),
        ("15 * * * *", "2026-03-29T01:00", ["2026-03-29T01:15:00+01:00", "2026-03-29T03:15:00+02:00"]),
        ("*/30 2 * * *", "2026-03-28T02:30", ["2026-03-30T02:00:00+02:00", "2026-03-30T02:30:00+02:00"]),
    ],
)
def test_a_fixed_time_occurs_once_a_day_and_a_wildcard_follows_the_clock_when_clocks_change(cron, after, times):
    found = islice(occurrences(cron, "Europe/Berlin", at(after)), 2)
    assert [datetime.fromtimestamp(each, BERLIN).isoformat() for each in found] == times


@given(st.integers(0, 3 * 366 * 24 * 3600), st.sampled_from(["0 9 * * *", "15 2 * * *", "*/10 * * * *", "0 0 1 * *"]))
def test_what_has_passed_ends_with_the_latest_occurrence(later_s, cron):
    due_s = next(occurrences(cron, "Europe/Berlin", NOW.timestamp()))
    now_s = due_s + later_s
    found, count = passed(cron, "Europe/Berlin", due_s, now_s)
    assert found[0] == due_s
    assert found == sorted(set(found))
    assert count <= MOST_COUNTED
    assert found[-1] <= now_s < next(occurrences(cron, "Europe/Berlin", found[-1]))
