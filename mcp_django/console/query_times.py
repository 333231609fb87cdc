"""The times of the console's query, such as ``yesterday 14:00-14:20``, ``2pm`` or ``last week``."""

import re
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Final, TypeAlias

from django.utils import timezone
from django.utils.translation import gettext_lazy

# A period of calls: its start, and its end, which is not included. None for an open end.
Period: TypeAlias = tuple[datetime | None, datetime | None]
# A time as a query has it, and its period.
Time: TypeAlias = tuple[str, Period]

# Times that stay relative in the text of a query. A week begins on Monday, and a morning at midnight.
RELATIVE: Final = {
    **{"today": gettext_lazy("today"), "yesterday": gettext_lazy("yesterday")},
    **{"this morning": gettext_lazy("this morning"), "this week": gettext_lazy("this week")},
    **{"last week": gettext_lazy("last week"), "this month": gettext_lazy("this month")},
    "last month": gettext_lazy("last month"),
}
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


class TimeReader:
    """The parser of times, which it reads as naive local times before ``now``."""

    def __init__(self, now: datetime) -> None:
        self.is_aware = timezone.is_aware(now)
        self.now = self.local(now)

    def local(self, moment: datetime) -> datetime:
        """Return a moment as the naive local time that it is here."""
        if timezone.is_aware(moment):
            return timezone.make_naive(moment)
        return moment

    def read(self, text: str) -> list[Time]:
        """Return the times of a text such as ``yesterday 14:00-14:20``, none for any other text."""
        with suppress(ValueError, OverflowError):
            text = DASH.sub("-", text.lower())
            text = next((name for name, shown in RELATIVE.items() if text == str(shown).lower()), text)
            last = LAST.fullmatch(text)
            if last and text not in RELATIVE:
                number = int(last[1] or 1)
                unit = last[2][0]
                length = timedelta(**{LENGTHS[unit]: number})
                # OverflowError if the period before this one, which the overview reads too, starts before year 1.
                return [self._time(f"last {number}{unit}", self.now - 2 * length + length, None)]
            match = TIME.fullmatch(HOUR.sub(_in_24_hours, text))
            word, day, first, second = match.groups() if match else ("", "", "", "")
            # A clock belongs to one day.
            if not (day or first) or (word and second) or (first and " " in (day or "")):
                return []
            begins, ends = self._period(day or "", first, second)
            relative = day if day in RELATIVE and not first else ""
            if word:
                return [self._time(f"{word} {relative or self._text(begins)}", begins, None)]
            if relative:
                return [self._time(relative, begins, ends)]
            return self.between(begins, ends)
        return []

    def between(self, begins: datetime, ends: datetime) -> list[Time]:
        """Return the period between two local times, to the second."""
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
        is_minute = ends - begins == timedelta(minutes=1) and not begins.second
        return [self._time(f"{day} {first}" if is_minute else f"{day} {first}-{second}", begins, ends)]

    def _period(self, day: str, first: str | None, second: str | None) -> tuple[datetime, datetime]:
        base = self._at(self.now, "0:")
        back = DAY
        if day == "this morning":
            return base, base + timedelta(hours=NOON)
        if day.endswith(" week"):
            base -= DAY * (base.weekday() + 7 * day.startswith("last"))
            return base, base + 7 * DAY
        if day.endswith(" month"):
            base = base.replace(day=1)
            if day.startswith("last"):
                base = (base - DAY).replace(day=1)
            return base, (base + 31 * DAY).replace(day=1)
        if day in RELATIVE:
            base -= DAY * (day == "yesterday")
        elif day[:3] in WEEKDAYS:
            base = base - DAY * ((base.weekday() - WEEKDAYS.index(day[:3])) % 7)
            back = DAY * 7
        elif day:
            base = datetime.fromisoformat(day)
        if not first:
            return base, base + DAY
        begins = self._at(base, first)
        # The time is in the past: a time without a day is today's or yesterday's.
        begins -= back * (begins > self.now and (not day or back > DAY))
        if not second:
            size = "hours" if first.endswith(":") else ("minutes", "seconds")[first.count(":") - 1]
            return begins, begins + timedelta(**{size: 1})
        ends = self._at(begins, second)
        return begins, ends + DAY * (ends <= begins)

    def _time(self, value: str, begins: datetime, ends: datetime | None) -> Time:
        if self.is_aware:
            begins = timezone.make_aware(begins)
            if ends is not None:
                ends = timezone.make_aware(ends)
        return value, ((None, begins) if value.startswith("before") else (begins, ends))

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
    return f"{int(hour) % NOON + NOON * (half == 'p')}:{rest or ''}"
