"""The ModelAdmin of the call log: its list, filters and pages; the console lies below its URL.

Nothing here reads the whole table: the list counts and pages through its newest ``MOST`` matches, and the choices of
the filters are those of its newest rows.
"""

import re
from collections import Counter
from collections.abc import Iterator
from datetime import timedelta
from typing import Any, ClassVar, Final

from django.apps import apps
from django.contrib import admin
from django.contrib.admin import SimpleListFilter
from django.contrib.admin.models import LogEntry
from django.contrib.auth import get_user_model
from django.core.paginator import Paginator
from django.db import connections
from django.db.models import Max, Min, Model, QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.formats import date_format
from django.utils.functional import cached_property
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..context.untrusted_text import plain
from ..models import CallEntry
from .console_pages import Home, ReadOnlyAdmin, with_policy

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

    title = gettext_lazy("time")
    parameter_name = "ago"
    lengths: ClassVar = {
        "hour": timedelta(hours=1),
        "day": timedelta(days=1),
        "week": timedelta(days=7),
        "month": timedelta(days=30),
    }

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return [
            ("hour", gettext_lazy("Last hour")),
            ("day", gettext_lazy("Last day")),
            ("week", gettext_lazy("Last week")),
            ("month", gettext_lazy("Last 30 days")),
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        length = self.lengths.get(self.value() or "")
        return queryset if length is None else queryset.filter(time__gte=timezone.now() - length)


class OutcomeFilter(SimpleListFilter):
    """Filter the admin's call log list by outcome: groups of outcomes, and each outcome in the log."""

    title = gettext_lazy("outcome")
    parameter_name = "ended"
    # What outcomes of a group begin with.
    groups: ClassVar = {"refused": ("refused:",), "failed": ("tool_error", "error:")}

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        chosen = str(self.used_parameters.get("ended") or "").removeprefix("=")
        outcomes = [(f"={value}", value) for value, _name in common(request, "outcome", chosen)]
        return [
            ("refused", gettext_lazy("refused")),
            ("failed", gettext_lazy("failed")),
            ("writes", gettext_lazy("could change data")),
            *outcomes,
        ]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
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
    """Filter the admin's call log list by caller: a person's client, a service account, a local process."""

    title = gettext_lazy("caller")
    parameter_name = "caller"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, Any]]:
        return list(CallEntry.Kind.choices)

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(kind=self.value()) if self.value() else queryset


class _ValueFilter(SimpleListFilter):
    """Filter the admin's call log list by one column: its most frequent values, and the chosen one."""

    column: ClassVar[str]

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        found = common(request, self.column, self.used_parameters.get(str(self.parameter_name)))
        return [(value, plain(name or value)) for value, name in found]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.filter(**{self.column: self.value()}) if self.value() else queryset

    def has_output(self) -> bool:
        """Hide this filter of the call log admin if it has fewer than two values."""
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
    """Return every distinct outcome in the call log for the admin's filter, by one index lookup each."""
    rows, found = CallEntry._default_manager.using(using).order_by(), [""]
    while (least := rows.filter(outcome__gt=found[-1]).aggregate(least=Min("outcome"))["least"]) is not None:
        found.append(least)
    return found[1:]


def common(request: HttpRequest, field: str, chosen: Any = None) -> list[tuple[str, str]]:
    """Return a call log column's most frequent values in the newest calls; one query serves all filters of the admin
    list."""
    found: dict[str, Counter[str]]
    names: dict[tuple[str, str], str]
    if not hasattr(request, "_mcp_newest"):
        fields = {**NAMED, "outcome": "outcome"}
        found, names = {name: Counter() for name in fields}, {}
        for row in CallEntry._default_manager.order_by("-time", "-pk").values(*{*fields, *fields.values()})[:NEWEST]:
            for name, naming in fields.items():
                if row[name]:
                    found[name][row[name]] += 1
                    names.setdefault((name, row[name]), row[naming])
        request._mcp_newest = found, names  # type: ignore[attr-defined]
    found, names = request._mcp_newest  # type: ignore[attr-defined]
    values = [value for value, _count in found[field].most_common(SHOWN)]
    if chosen and str(chosen) not in values:
        values.append(str(chosen))
    return [(value, names.get((field, value), "")) for value in values]


FILTERS: Final[list[Any]] = [TimeFilter, OutcomeFilter, KindFilter, *_filters()]


# Matches that the list counts and leads to: whoever wants older ones says when.
MOST: Final = 10_000
# Calls of the same caller that are shown before and after one.
AROUND: Final = 5
# Characters of a name in the list.
MAX_NAME: Final = 30
BODIES: Final = ("arguments", "result")
HEX: Final = re.compile(r"[0-9a-f]+")
ID_DIGITS: Final = 32
ERROR_DIGITS: Final = 12


class CallPaginator(Paginator):  # type: ignore[type-arg]
    """Paginate the admin's call log list, with a capped count."""

    @cached_property
    def count(self) -> int:
        """How many there are, at most ``MOST``."""
        rows: Any = self.object_list
        return int(rows.order_by()[:MOST].count())


def estimated() -> int:
    """Estimate the number of rows of the call log without counting them."""
    rows = CallEntry._default_manager.all()
    connection = connections[rows.db]
    if connection.vendor == "postgresql":
        with connection.cursor() as cursor:
            table = connection.ops.quote_name(CallEntry._meta.db_table)
            cursor.execute("SELECT reltuples::bigint FROM pg_class WHERE oid = to_regclass(%s)", [table])
            found = cursor.fetchone()
        if found and found[0] > MOST:
            return int(found[0])
    keys = rows.aggregate(first=Min("pk"), last=Max("pk"))
    return 0 if keys["last"] is None else int(keys["last"] - keys["first"] + 1)


class CallEntryAdmin(ReadOnlyAdmin, Home):
    """The read-only ModelAdmin of the call log. Who may view the call log sees the console."""

    # What a laptop has no room for stands last.
    list_display = ("when", "outcome", "called", "model", "username", "duration_ms", "client", "rows", "tokens")
    list_per_page = 50
    list_max_show_all = 0
    show_full_result_count = False
    paginator = CallPaginator
    ordering = ("-time", "-pk")
    sortable_by = ("when",)
    search_fields = ("call_id",)
    change_list_template = "mcp_django/console/call_list.html"
    change_form_template = "mcp_django/console/call.html"

    def get_list_filter(self, request: HttpRequest) -> Any:
        """Return what the list can be narrowed to."""
        return FILTERS

    @property
    def fieldsets(self) -> Any:  # type: ignore[override]
        """What is known of a call, in groups."""
        return [
            (None, {"fields": ["when", "method", "tool", "model", "action", "outcome", "detail", "error_id"]}),
            (_("Caller"), {"fields": ["username", "user", "kind", "client_name", "client_host", "client_id", "token"]}),
            (
                _("What it took"),
                {"fields": ["rows_read", "rows_changed", "size", "tokens", "duration_ms", "queries", "query_time"]},
            ),
            (_("Where"), {"fields": ["site", "session", "version", "call_id", "trace"]}),
        ]

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Return the fieldsets of a logged call in the admin, with captured arguments and result for users who may see
        them."""
        captured, user = [name for name in BODIES if getattr(obj, name, "")], request.user
        if captured and user.has_perm("mcp_django.view_bodies"):
            return [*self.fieldsets, (_("Captured"), {"fields": captured})]
        return self.fieldsets

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> list[str]:
        """Return all fields: the call log is read-only."""
        return [name for _title, options in self.get_fieldsets(request, obj) for name in options["fields"]]

    @admin.display(description=gettext_lazy("time"), ordering="time")
    def when(self, entry: CallEntry) -> str:
        """Return when a call came, to the second."""
        return date_format(
            timezone.localtime(entry.time) if timezone.is_aware(entry.time) else entry.time, "Y-m-d H:i:s"
        )

    @admin.display(description=gettext_lazy("client"))
    def client(self, entry: CallEntry) -> str:
        """Return what a client calls itself."""
        return plain(entry.client_name, MAX_NAME)

    @admin.display(description=gettext_lazy("call"))
    def called(self, entry: CallEntry) -> str:
        """Return which tool was called, or which method."""
        return plain(entry.tool or entry.method, MAX_NAME)

    @admin.display(description=gettext_lazy("rows"))
    def rows(self, entry: CallEntry) -> int:
        """Return how many rows were read or changed."""
        return entry.rows_read + entry.rows_changed

    @admin.display(description=gettext_lazy("duration (ms)"))
    def duration_ms(self, entry: CallEntry) -> str:
        """Return how long a call took."""
        return f"{entry.duration:.1f}"

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the call log's rows for the admin; the list defers captured arguments and results."""
        return super().get_queryset(request).defer(*BODIES)

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Search the call log in the admin by call id or user name, each by an index."""
        term = search_term.strip()
        if not term:
            return queryset, False
        return queryset.filter(**_wanted(term)), False

    def lookup_allowed(self, lookup: str, value: Any, request: Any = None) -> bool:
        """Refuse lookups into captured arguments and results."""
        return lookup.partition("__")[0] not in BODIES and super().lookup_allowed(lookup, value, request)

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Render the call log's changelist in the admin, below the tabs of the console."""
        context = {"tabs": self.get_tabs(request, "calls"), "estimated": estimated(), "most": MOST}
        return with_policy(super().changelist_view(request, context | (extra_context or {})))

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Render one logged call in the admin with its rows, history entries, and the caller's calls before and
        after."""
        entry = context.get("original")
        if isinstance(entry, CallEntry):
            from ..context.untrusted_text import doubts_about  # the admin is loaded by every process

            context |= {
                "claimed": plain(entry.client_name),
                "doubts": doubts_about(entry.client_name, [entry.client_host] if entry.client_host else ()),
                "title": _("Call"),
                "subtitle": plain(str(entry)),
                "tabs": self.get_tabs(request, "call"),
                "entry": entry,
                "model_link": self._model_link(request, entry),
                "written": list(self._written(request, entry)),
                "around": around(entry),
            }
        return with_policy(super().render_change_form(request, context, *args, **kwargs))

    def _model_link(self, request: HttpRequest, entry: CallEntry) -> str:
        try:
            model = apps.get_model(entry.model)
        except (LookupError, ValueError):
            return ""
        return self._url(request, model, "changelist")

    def _url(self, request: HttpRequest, model: type[Model], page: str, *args: Any) -> str:
        """Return the admin URL of a model's page that a logged call links to, "" if the user may not open the page."""
        model_admin = self.admin_site._registry.get(model)
        if model_admin is None or not model_admin.has_view_permission(request):
            return ""
        options = model._meta
        try:
            return reverse(f"{self.admin_site.name}:{options.app_label}_{options.model_name}_{page}", args=args)
        except NoReverseMatch:
            return ""

    def _written(self, request: HttpRequest, entry: CallEntry) -> Iterator[dict[str, Any]]:
        """Yield the admin history entries that a logged call wrote; hidden rows are shown without a name."""
        keys = [key for key in entry.history if str(key).isdecimal()]
        for found in LogEntry.objects.filter(pk__in=keys).select_related("content_type").order_by("pk"):
            model = found.content_type.model_class() if found.content_type else None
            url = "" if model is None else self._url(request, model, "history", found.object_id)
            if url:
                yield {"url": url, "name": plain(found.object_repr), "said": plain(found.get_change_message())}
            else:
                yield {"url": "", "name": _("a row that you may not see"), "said": ""}


def _wanted(term: str) -> dict[str, Any]:
    if HEX.fullmatch(term.lower()):
        term = term.lower()
        if len(term) == ERROR_DIGITS:
            return {"error_id": term}
        if len(term) == ID_DIGITS:
            known = CallEntry._default_manager.filter(call_id=term).exists()
            return {"call_id": term} if known else {"trace": term}
    if CallEntry._default_manager.filter(session=term).exists():
        return {"session": term}
    users = get_user_model()._default_manager.filter(**{f"{get_user_model().USERNAME_FIELD}": term})
    return {"user__in": [str(key) for key in users.values_list("pk", flat=True)]}


def around(entry: CallEntry) -> dict[str, list[CallEntry]]:
    """Return the logged calls of the same user and client ``before`` and ``after`` a call, in order of time."""
    same = CallEntry._default_manager.filter(user=entry.user, client_id=entry.client_id).defer(*BODIES)
    if not entry.user and not entry.client_id:
        same = same.none()
    after = same.filter(time__gte=entry.time).exclude(pk=entry.pk).order_by("time", "pk")[:AROUND]
    before = same.filter(time__lt=entry.time).order_by("-time", "-pk")[:AROUND]
    return {"before": list(before)[::-1], "after": list(after)}
