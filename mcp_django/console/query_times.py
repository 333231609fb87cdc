"""The times of the console's query, such as ``yesterday 14:00-14:20``, ``2pm`` or ``last week``."""

import re
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from django.utils import timezone
from django.utils.translation import gettext_lazy

from ..templatetags.mcp_console import local_time

# A period of calls: its start, and its end, which is not included. None for an open end.
Period: TypeAlias = tuple[datetime | None, datetime | None]
# A time as a query has it, and its period.
Time: TypeAlias = tuple[str, Period]

# Times that stay relative in the text of a query. A week begins on Monday, and a morning at midnight.
RELATIVE: Final = {
    "today": gettext_lazy("today"), "yesterday": gettext_lazy("yesterday"),
    "this morning": gettext_lazy("this morning"), "this week": gettext_lazy("this week"),
    "last week": gettext_lazy("last week"), "this month": gettext_lazy("this month"),
    "last month": gettext_lazy("last month"),
}  # fmt: skip
WEEKDAYS: Final = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
LENGTHS: Final = {"m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
LAST: Final = re.compile(r"last ([0-9]{1,5})? ?(m(?:in(?:ute)?s?)?|h(?:(?:ou)?rs?)?|d(?:ays?)?|w(?:eeks?)?)")
_WEEKDAY: Final = r"(?:mon|tues?|wed|wednes|thu|thurs|fri|sat|satur|sun)(?:day)?"
_DAY: Final = rf"{'|'.join(RELATIVE)}|20[0-9]{{2}}(?:-[0-9]{{2}}){{2}}|{_WEEKDAY}"
# An hour without minutes ends in a colon.
_CLOCK: Final = r"[0-9]{1,2}:(?:[0-9]{2}(?::[0-9]{2})?)?"
TIME: Final = re.compile(rf"(?:(since|before) )?(?:({_DAY})(?:[ t]|$))?(?:({_CLOCK})(?:-({_CLOCK}))?)?")
# An hour such as 2pm, 2:30 p.m., 14h and 14h30.
HOUR: Final = re.compile(
    r"(?<![0-9:])(?:(?P<hour>[0-9]{1,2})(?::(?P<rest>[0-9:]{2,5}))? ?(?P<half>[ap])\.?m\.?|([0-9]{1,2})h([0-9]{2})?)"
    r"(?![a-z0-9])"
)
NOON: Final = 12
DASH: Final = re.compile(r" ?\u2013 ?| - ?|- | to ")
# Beginnings of words that could be read as part of a time.
TIMELY: Final = re.compile(rf"[0-9\u2013-]|to$|last|this|since|before|week|month|morning|[ap]\.?m|{_DAY}")
DAY: Final = timedelta(days=1)
WEEK: Final = timedelta(days=7)
# How long a clock lasts: an hour, and with minutes or seconds one of these.
LASTING: Final = (timedelta(hours=1), timedelta(minutes=1), timedelta(seconds=1))


class TimeReader:
    """The parser of times, which it reads as naive local times before ``now``."""

    def __init__(self, now: datetime) -> None:
        self.is_aware = timezone.is_aware(now)
        self.now = self.local(now)

    def local(self, moment: datetime) -> datetime:
        """Return a moment as the naive local time that it is here."""
        return local_time(moment).replace(tzinfo=None)

    def read(self, text: str) -> list[Time]:
        """Return the times of a text such as ``yesterday 14:00-14:20``, none for any other text."""
        text = DASH.sub("-", text.lower())
        text = next((name for name, shown in RELATIVE.items() if text == str(shown).lower()), text)
        last = LAST.fullmatch(text)
        # There is no day, hour or year of such a number.
        with suppress(ValueError, OverflowError):
            if last and text not in RELATIVE:
                return [self._last(int(last[1] or 1), last[2][0])]
            match = TIME.fullmatch(HOUR.sub(_in_24_hours, text))
            if match:
                return self._matched(*match.groups(""))
        return []

    def _last(self, number: int, unit: str) -> Time:
        length = timedelta(**{LENGTHS[unit]: number})
        # The overview reads the period before this one too, which must not start before year 1.
        before = self.now - 2 * length
        return self._time(f"last {number}{unit}", before + length, None)

    def _matched(self, word: str, day: str, first: str, second: str) -> list[Time]:
        """Return the times of a word such as "since", a day, a clock and the clock at its end; each can be ""."""
        # A clock belongs to one day.
        if not (day or first) or (word and second) or (first and " " in day):
            return []
        begins, ends = self._period(day, first, second)
        relative = day if day in RELATIVE and not first else ""
        if word:
            return [self._time(f"{word} {relative or self._text(begins)}", begins, None)]
        if relative:
            return [self._time(relative, begins, ends)]
        return self.between(begins, ends)

    def between(self, begins: datetime, ends: datetime) -> list[Time]:
        """Return the time between two local times, to the second: more than a day is two times, since and before."""
        begins = begins.replace(microsecond=0)
        ends = ends.replace(microsecond=0)
        day = f"{begins:%Y-%m-%d}"
        first = self._clock(begins)
        second = self._clock(ends)
        if ends - begins > DAY:
            since = f"since {self._text(begins)}"
            before = f"before {self._text(ends)}"
            return [self._time(since, begins, None), self._time(before, ends, None)]
        if ends - begins == DAY and first == "00:00":
            return [self._time(day, begins, ends)]
        clock = f"{first}-{second}"
        if ends - begins == timedelta(minutes=1) and not begins.second:
            clock = first
        return [self._time(f"{day} {clock}", begins, ends)]

    def _period(self, day: str, first: str, second: str) -> tuple[datetime, datetime]:
        today = self._at(self.now, "0:")
        if day == "this morning":
            return today, today + timedelta(hours=NOON)
        if day.endswith(" week"):
            monday = today - DAY * today.weekday()
            if day.startswith("last"):
                monday -= WEEK
            return monday, monday + WEEK
        if day.endswith(" month"):
            begins = today.replace(day=1)
            if day.startswith("last"):
                begins = (begins - DAY).replace(day=1)
            return begins, (begins + 31 * DAY).replace(day=1)
        midnight = self._midnight(day, today)
        if not first:
            return midnight, midnight + DAY
        begins = self._at(midnight, first)
        # The time is in the past: a clock without a day is today's or yesterday's.
        if begins > self.now and not day:
            begins -= DAY
        if begins > self.now and day[:3] in WEEKDAYS:
            begins -= WEEK
        if not second:
            return begins, begins + LASTING[first.removesuffix(":").count(":")]
        ends = self._at(begins, second)
        if ends <= begins:
            ends += DAY
        return begins, ends

    def _midnight(self, day: str, today: datetime) -> datetime:
        """Return the midnight at which a day begins: of a weekday, the last one; without a day, today."""
        if day in ("", "today"):
            return today
        if day == "yesterday":
            return today - DAY
        if day[:3] in WEEKDAYS:
            return today - DAY * ((today.weekday() - WEEKDAYS.index(day[:3])) % 7)
        return datetime.fromisoformat(day)

    def _time(self, value: str, begins: datetime, ends: datetime | None) -> Time:
        if self.is_aware:
            begins = timezone.make_aware(begins)
            if ends is not None:
                ends = timezone.make_aware(ends)
        if value.startswith("before"):
            return value, (None, begins)
        return value, (begins, ends)

    def _at(self, day: datetime, clock: str) -> datetime:
        hour, minute, second = (int(part or 0) for part in f"{clock}::".split(":")[:3])
        return day.replace(hour=hour, minute=minute, second=second, microsecond=0)

    def _clock(self, moment: datetime) -> str:
        return f"{moment:%H:%M:%S}".removesuffix(":00")

    def _text(self, moment: datetime) -> str:
        return f"{moment:%Y-%m-%d} {self._clock(moment)}".removesuffix(" 00:00")


def _in_24_hours(found: re.Match[str]) -> str:
    hour, rest, half, plain_hour, minutes = found.groups()
    if half is None:
        return f"{plain_hour}:{minutes or ''}"
    if not 1 <= int(hour) <= NOON:
        return found[0]
    number = int(hour) % NOON
    if half == "p":
        number += NOON
    return f"{number}:{rest or ''}"
