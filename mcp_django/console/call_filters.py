"""What the list of calls can be narrowed to: a time, and the values that its newest rows have."""

from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, ClassVar, Final

from django.contrib.admin import SimpleListFilter
from django.db.models import Min, QuerySet
from django.http import HttpRequest
from django.utils import timezone
from django.utils.translation import gettext_lazy as _

from ..context.text import plain
from ..models import CallEntry

# Rows whose values are offered, and values of each field.
NEWEST: Final = 2_000
SHOWN: Final = 15
# The field that is filtered by, and the one that names its values.
NAMED: Final = {
    "tool": "tool",
    "model": "model",
    "user": "username",
    "client_id": "client_name",
    "method": "method",
    "version": "version",
    "site": "site",
}


class TimeFilter(SimpleListFilter):
    """The last hour, day, week or 30 days."""

    title = _("time")
    parameter_name = "ago"
    lengths: ClassVar = {
        "hour": timedelta(hours=1),
        "day": timedelta(days=1),
        "week": timedelta(days=7),
        "month": timedelta(days=30),
    }

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """Return the lengths."""
        return [
            ("hour", _("Last hour")),
            ("day", _("Last day")),
            ("week", _("Last week")),
            ("month", _("Last 30 days")),
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the calls of that time."""
        length = self.lengths.get(self.value() or "")
        return queryset if length is None else queryset.filter(time__gte=timezone.now() - length)


class OutcomeFilter(SimpleListFilter):
    """How calls ended: by groups, and by each outcome that the newest have."""

    title = _("outcome")
    parameter_name = "ended"
    # What outcomes of a group begin with.
    groups: ClassVar = {"refused": ("refused:",), "failed": ("tool_error", "error:")}

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """Return the groups, and the outcomes."""
        outcomes = [(f"={value}", value) for value, _name in common(request, "outcome", self.value_used())]
        return [
            ("refused", _("refused")),
            ("failed", _("failed")),
            ("writes", _("could change data")),
            *outcomes,
        ]

    def value_used(self) -> str:
        """Return the outcome that is chosen, "" for none."""
        return str(self.used_parameters.get("ended") or "").removeprefix("=")

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the calls that ended so."""
        value = self.value() or ""
        if value.startswith("="):
            return queryset.filter(outcome=value[1:])
        if value == "writes":
            return queryset.filter(writes=True)
        if value not in self.groups:
            return queryset
        # By names, which an index finds: with the beginning of a name, a long log would be read through.
        return queryset.filter(
            outcome__in=[name for name in outcomes(queryset.db) if name.startswith(self.groups[value])]
        )


class KindFilter(SimpleListFilter):
    """Who called: a person's client, a service, a process of this machine."""

    title = _("caller")
    parameter_name = "caller"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        """Return the kinds."""
        return list(CallEntry.Kind.choices)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the calls of that kind."""
        return queryset.filter(kind=self.value()) if self.value() else queryset


class _ValueFilter(SimpleListFilter):
    """One field: the values that the newest rows have most, and the one that is chosen."""

    column: ClassVar[str]

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the values and what to call them."""
        found = common(request, self.column, self.used_parameters.get(str(self.parameter_name)))
        return [(value, plain(name or value)) for value, name in found]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the calls with this value."""
        return queryset.filter(**{self.column: self.value()}) if self.value() else queryset

    def has_output(self) -> bool:
        """Say no where there is nothing to choose between."""
        return len(self.lookup_choices) > 1 or bool(self.value())


def _filters() -> Iterator[type[_ValueFilter]]:
    for name in NAMED:
        field: Any = CallEntry._meta.get_field(NAMED[name])
        yield type(
            f"{name.title()}Filter",
            (_ValueFilter,),
            {"column": name, "title": field.verbose_name, "parameter_name": f"by_{name}"},
        )


def outcomes(using: str) -> list[str]:
    """Return every outcome that is in the log, in steps from one to the next, each of them one look at the index."""
    rows, found = CallEntry._default_manager.using(using).order_by(), [""]
    while (least := rows.filter(outcome__gt=found[-1]).aggregate(least=Min("outcome"))["least"]) is not None:
        found.append(least)
    return found[1:]


def common(request: HttpRequest, field: str, chosen: Any = None) -> list[tuple[str, str]]:
    """Return values of a field with their names, those of the most calls first; one query serves all filters."""
    found: dict[str, Counter[str]]
    names: dict[tuple[str, str], str]
    if not hasattr(request, "_mcp_newest"):
        request._mcp_newest = _newest()  # type: ignore[attr-defined]
    found, names = request._mcp_newest  # type: ignore[attr-defined]
    values = [value for value, _count in found[field].most_common(SHOWN)]
    if chosen and str(chosen) not in values:
        values.append(str(chosen))
    return [(value, names.get((field, value), "")) for value in values]


def _newest() -> tuple[dict[str, Counter[str]], dict[tuple[str, str], str]]:
    fields = {**NAMED, "outcome": "outcome"}
    found: dict[str, Counter[str]] = {field: Counter() for field in fields}
    names: dict[tuple[str, str], str] = {}
    wanted = {*fields, *fields.values()}
    for row in CallEntry._default_manager.order_by("-time", "-pk").values(*wanted)[:NEWEST]:
        for field, naming in fields.items():
            if row[field]:
                found[field][row[field]] += 1
                names.setdefault((field, row[field]), row[naming])
    return found, names


FILTERS: Final[list[Any]] = [TimeFilter, OutcomeFilter, KindFilter, *_filters()]
