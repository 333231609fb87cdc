"""Relative dates (``today-30d``, ``last month``) and calendar periods.

Days, weeks (from Monday), months, quarters and years are those of the current time zone. A client's text becomes two
points in time and nothing else.
"""

import re
from calendar import monthrange
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta
from typing import Final

from django.conf import settings as django_settings
from django.utils import timezone

PERIODS: Final = "2026-01, 2026-Q1, January 2026"
EXAMPLES: Final = "today, yesterday, today-30d, now-2h, last month, last 30 days, this year"
MAX_LENGTH: Final = 40

_WORDS: Final[Mapping[str, str]] = {
    **dict.fromkeys(("s", "sec", "secs", "second", "seconds"), "second"),
    **dict.fromkeys(("min", "mins", "minute", "minutes"), "minute"),
    **dict.fromkeys(("h", "hr", "hrs", "hour", "hours"), "hour"),
    **dict.fromkeys(("d", "day", "days"), "day"),
    **dict.fromkeys(("w", "wk", "week", "weeks"), "week"),
    **dict.fromkeys(("m", "mo", "month", "months"), "month"),
    **dict.fromkeys(("q", "quarter", "quarters"), "quarter"),
    **dict.fromkeys(("y", "yr", "year", "years"), "year"),
}
_SHORT: Final[Mapping[str, timedelta]] = {
    "second": timedelta(seconds=1),
    "minute": timedelta(minutes=1),
    "hour": timedelta(hours=1),
}
_MONTHS: Final[Mapping[str, int]] = {"month": 1, "quarter": 3, "year": 12}
_DAYS: Final[Mapping[str, int]] = {"yesterday": -1, "today": 0, "tomorrow": 1, "current date": 0}

_OFFSET: Final = re.compile(r"(now|today|yesterday|tomorrow)? ?([+-]) ?([0-9]{1,4}) ?([a-z]+)")
_AGO: Final = re.compile(r"([0-9]{1,4}) ?([a-z]+) ago|in ([0-9]{1,4}) ?([a-z]+)")
_LENGTH: Final = re.compile(r"(last|past|next) ([0-9]{1,4}) ?([a-z]+)")
_LETTER_M: Final = re.compile(r"([0-9]{1,4}) ?m(?: ago)?$")
# Maximum number of months that the unit ``m`` counts: a larger number may be minutes.
MOST_MONTHS: Final = 24
_CALENDAR: Final = re.compile(r"(last|previous|this|current|next) (day|week|month|quarter|year)")
# From the start of the period to the end of today.
_TO_DATE: Final = re.compile("(week|month|quarter|year)[ -]to[ -]date|([wmqy])td|so far this (week|month|quarter|year)")
_COUNTED: Final = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve")
_NUMBER_WORD: Final = re.compile(
    rf"\b({'|'.join(_COUNTED)})(?= (?:second|minute|hour|day|week|month|quarter|year)s?\b)"
)
# Words before a date that add nothing to it.
_FILLER: Final = re.compile(r"(?:in|during|within|on|of|for|the) (?:the )?")
_EDGE: Final = re.compile(r"(start|end) of (?:the )?(.+)")

# Calendar periods: a year, or a month (number or name), quarter or week (ISO 8601) beside a year, in either order.
_NAMES: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_MONTH_NAME: Final = (
    "(?P<name>jan(?:uary)?|feb(?:ruary)?|mar(?:ch)?|apr(?:il)?|may|june?|july?|aug(?:ust)?|sept?(?:ember)?|"
    "oct(?:ober)?|nov(?:ember)?|dec(?:ember)?)[.,]?"
)
_PART: Final = rf"(?:q(?P<quarter>[1-4])|w(?P<week>[0-9]{{1,2}})|(?P<month>[0-9]{{1,2}})|{_MONTH_NAME})"
_PERIODS: Final = (
    re.compile("(?P<year>[0-9]{4})"),
    re.compile(rf"(?P<year>[0-9]{{4}})(?:[-/. ]|(?=q)){_PART}"),
    re.compile(rf"{_PART}(?:[-/ ]|(?<=q[1-4])) ?(?P<year>[0-9]{{4}})"),
)

_NTH: Final = "(?P<day>[0-9]{1,2})(?:st|nd|rd|th)?[.,]?"
_WRITTEN_DAYS: Final = (
    re.compile(rf"{_NTH} (?:of )?{_MONTH_NAME} (?P<year>[0-9]{{4}})"),
    re.compile(rf"{_MONTH_NAME} {_NTH} (?P<year>[0-9]{{4}})"),
    re.compile(rf"(?P<year>[0-9]{{4}}) {_MONTH_NAME} {_NTH}"),
    re.compile(r"(?P<year>[0-9]{4})(?P<one_first>[/.])(?P<one>[0-9]{1,2})[/.](?P<other>[0-9]{1,2})"),
    re.compile(r"(?P<one>[0-9]{1,2})(?P<one_first>(?!))?[/.-](?P<other>[0-9]{1,2})[/.-](?P<year>[0-9]{4})"),
)


@dataclass(frozen=True, slots=True)
class Span:
    """Span of time that a relative date means, from ``start`` to just before ``end``; they are equal for a moment."""

    start: datetime
    end: datetime

    @property
    def last(self) -> datetime:
        """The last moment of the span."""
        if self.start == self.end:
            return self.end
        return just_before(self.end)


def local_now() -> datetime:
    """Return the present time in the current time zone, from which relative dates are counted."""
    if django_settings.USE_TZ:
        return timezone.localtime()
    return datetime.now()


def clock_words() -> str:
    """Return the instructions on relative dates: today's date, and the time zones of rows and of dates."""
    now = local_now()
    today = f"Today is {now:%A}, {now.date().isoformat()}"
    if now.tzinfo is None:
        return f"{today}. Times are local, without a time zone."
    zone = timezone.get_current_timezone_name()
    if zone == "UTC":
        return f"{today}. Times are in UTC."
    return (
        f"{today}, in the time zone {zone}. Times in records are in UTC; in filters, days and times without an offset "
        f"are in {zone}, and so are the periods of groups."
    )


def just_before(moment: datetime) -> datetime:
    """Return the last moment before another, in elapsed time: clocks that go back at midnight repeat an hour."""
    step = timedelta(microseconds=1)
    if moment.tzinfo is None:
        return moment - step
    return (moment.astimezone(UTC) - step).astimezone(moment.tzinfo)


def midnight(day: date) -> datetime:
    """Return the moment at which a date begins in the current time zone."""
    found = datetime.combine(day, time())
    if not django_settings.USE_TZ:
        return found
    found = timezone.make_aware(found)
    # Near the years 1 and 9999, fail here rather than in the database.
    found.astimezone(UTC)
    return found


def seen_from(moment: datetime) -> datetime:
    """Return the time of an earlier call, from which relative dates are counted, in the current time zone."""
    if django_settings.USE_TZ and timezone.is_aware(moment):
        return timezone.localtime(moment)
    return moment


def read_span(text: str, now: datetime) -> Span | None:
    """Parse a relative date such as ``today-30d``, counted from ``now``; None for any other text.

    Raises ``ValueError``, with what is needed, for a unit ``m`` that can mean minutes, and for a date out of range.
    """
    if not text.isascii() or len(text) > MAX_LENGTH:
        return None
    spaced = " ".join(text.lower().replace("_", " ").split())
    plain = _NUMBER_WORD.sub(lambda found: str(_COUNTED.index(found[1]) + 1), spaced)
    bare = _bare(plain)
    if _is_ambiguous(plain) or _is_ambiguous(bare):
        raise ValueError("min for minutes or mo for months: m can be both")
    try:
        for words in dict.fromkeys((plain, bare)):
            for reader in _READERS:
                span = reader(words, now)
                if span is not None:
                    return span
    except (OverflowError, ValueError):
        raise ValueError("a date within the years 1 to 9999") from None
    return None


def _is_ambiguous(text: str) -> bool:
    """Return whether the unit ``m`` of a relative date can mean minutes: after ``now``, or in numbers above 24."""
    found = _LETTER_M.search(text)
    if found is None or not any(pattern.fullmatch(text) for pattern in (_OFFSET, _AGO, _LENGTH)):
        return False
    return text.startswith("now") or int(found[1]) > MOST_MONTHS


def read_period(text: str) -> Span | None:
    """Parse a calendar period such as ``2025-12`` or ``Q4 2025`` into its dates; None for any other text."""
    if not text.isascii() or len(text) > MAX_LENGTH:
        return None
    plain = _bare(" ".join(text.lower().split()))
    day = _read_day(plain)
    if day is not None:
        return day

    found = next((match for pattern in _PERIODS if (match := pattern.fullmatch(plain))), None)
    if found is None:
        return None
    parts = found.groupdict()
    year = int(found["year"])
    if parts.get("name"):
        month = _month(parts["name"])
    else:
        month = int(parts.get("month") or 0)
    if month > 12:
        return None

    try:
        if parts.get("week"):
            return _calendar(date.fromisocalendar(year, int(parts["week"]), 1), "week", 0)
        if parts.get("quarter"):
            return _calendar(date(year, int(parts["quarter"]) * 3, 1), "quarter", 0)
        return _calendar(date(year, month or 1, 1), "month" if month else "year", 0)
    except (OverflowError, ValueError):
        raise ValueError("a date within the years 1 to 9999") from None


def _bare(text: str) -> str:
    found = _FILLER.match(text)
    return text[found.end() :] if found is not None else text


def _read_day(text: str) -> Span | None:
    """Parse a date with the name of its month, or in unambiguous numbers; None for any other text."""
    found = next((match for pattern in _WRITTEN_DAYS if (match := pattern.fullmatch(text))), None)
    if found is None:
        return None
    parts = found.groupdict()
    if parts.get("name"):
        month = _month(parts["name"])
        day = int(parts["day"])
    else:
        one = int(parts["one"])
        other = int(parts["other"])
        if one != other and one <= 12 and other <= 12 and not parts["one_first"]:
            # It could be either of two days.
            return None
        month = other
        day = one
        if parts["one_first"] or other > 12:
            month = one
            day = other

    # A day that no calendar has is no date; one that is out of range is an error.
    try:
        written = date(int(parts["year"]), month, day)
    except ValueError:
        return None
    try:
        return _days(written)
    except OverflowError:
        raise ValueError("a date within the years 1 to 9999") from None


def _month(name: str) -> int:
    """Return the number of a month, which its first three letters tell."""
    return _NAMES.index(name[:3]) + 1


def days_meant(text: str) -> list[str]:
    """Return the two days that a client may mean by a date such as ``01/05/2026``."""
    found = _WRITTEN_DAYS[-1].fullmatch(text.strip()) if len(text) <= MAX_LENGTH else None
    if found is None:
        return []
    year = int(found["year"])
    one = int(found["one"])
    other = int(found["other"])
    try:
        return [date(year, one, other).isoformat(), date(year, other, one).isoformat()]
    except ValueError:
        return []


def _read_to_date(text: str, now: datetime) -> Span | None:
    found = _TO_DATE.fullmatch(text)
    if found is None:
        return None
    unit = found[1] or found[3] or {"w": "week", "m": "month", "q": "quarter", "y": "year"}[found[2]]
    return Span(_calendar(now.date(), unit, 0).start, _days(now.date()).end)


def _read_word(text: str, now: datetime) -> Span | None:
    if text in ("now", "current timestamp"):
        return Span(now, now)
    if text in _DAYS:
        return _days(now.date() + timedelta(_DAYS[text]))
    return None


def _read_offset(text: str, now: datetime) -> Span | None:
    found = _OFFSET.fullmatch(text)
    if found is None or found[4] not in _WORDS:
        return None
    amount = int(found[3]) * (-1 if found[2] == "-" else 1)
    return _shifted(now, found[1], amount, _WORDS[found[4]])


def _read_ago(text: str, now: datetime) -> Span | None:
    found = _AGO.fullmatch(text)
    if found is None:
        return None
    unit = found[2] or found[4]
    if unit not in _WORDS:
        return None
    # "3 days ago", or "in 3 days".
    amount = -int(found[1]) if found[1] else int(found[3])
    return _shifted(now, None, amount, _WORDS[unit])


def _read_length(text: str, now: datetime) -> Span | None:
    """Parse "last 30 days": from the day 30 days ago to the end of today, as the admin does."""
    found = _LENGTH.fullmatch(text)
    if found is None or found[3] not in _WORDS:
        return None
    unit = _WORDS[found[3]]
    forward = found[1] == "next"
    other = _shifted(now, None, int(found[2]) if forward else -int(found[2]), unit)
    here = Span(now, now) if unit in _SHORT else _days(now.date())
    if forward:
        return Span(here.start, other.end)
    return Span(other.start, here.end)


def _read_calendar(text: str, now: datetime) -> Span | None:
    found = _CALENDAR.fullmatch(text)
    if found is None:
        return None
    step = {"last": -1, "previous": -1, "next": 1}.get(found[1], 0)
    return _calendar(now.date(), found[2], step)


def _read_edge(text: str, now: datetime) -> Span | None:
    found = _EDGE.fullmatch(text)
    if found is None:
        return None
    span = _read_word(found[2], now) or _read_calendar(found[2], now) or _read_calendar(f"this {found[2]}", now)
    if span is None or found[2] == "now":
        return None
    moment = span.start if found[1] == "start" else span.last
    return Span(moment, moment)


_READERS: Final[tuple[Callable[[str, datetime], Span | None], ...]] = (
    _read_word,
    _read_offset,
    _read_ago,
    _read_length,
    _read_calendar,
    _read_edge,
    _read_to_date,
)


def _shifted(now: datetime, base: str | None, amount: int, unit: str) -> Span:
    """Return the moment or the day that is ``amount`` units after ``base``, by default after today."""
    if unit in _SHORT or base == "now":
        moment = _moved(now, amount, unit)
        return Span(moment, moment)
    return _days(_moved_day(now.date() + timedelta(_DAYS[base or "today"]), amount, unit))


def _moved(moment: datetime, amount: int, unit: str) -> datetime:
    if unit not in _SHORT:
        return datetime.combine(_moved_day(moment.date(), amount, unit), moment.timetz())
    if moment.tzinfo is None:
        return moment + amount * _SHORT[unit]
    # Count hours in UTC: a clock that is put back repeats one.
    return (moment.astimezone(UTC) + amount * _SHORT[unit]).astimezone(moment.tzinfo)


def _moved_day(day: date, amount: int, unit: str) -> date:
    if unit in _MONTHS:
        months = day.year * 12 + day.month - 1 + amount * _MONTHS[unit]
        year, month = divmod(months, 12)
        # A day that the new month does not have becomes its last day.
        return date(year, month + 1, min(day.day, monthrange(year, month + 1)[1]))
    return day + timedelta(amount * (7 if unit == "week" else 1))


def _calendar(day: date, unit: str, step: int) -> Span:
    if unit in _MONTHS:
        first = day.month - (day.month - 1) % _MONTHS[unit]
        start = _moved_day(date(day.year, first, 1), step, unit)
    else:
        start = day - timedelta(day.weekday()) if unit == "week" else day
        start = _moved_day(start, step, unit)
    return Span(midnight(start), midnight(_moved_day(start, 1, unit)))


def _days(day: date) -> Span:
    return Span(midnight(day), midnight(day + timedelta(1)))
