"""The ModelAdmin of the call log: its list, which a query narrows; the console lies below its URL.

Nothing here reads the whole table: the list counts, sorts and pages through its newest matches only.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from django.contrib.admin.views.main import ORDER_VAR, SEARCH_VAR
from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import Max, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse, HttpResponseBase, JsonResponse, QueryDict
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.functional import cached_property
from django.utils.translation import gettext as _

from ..models import CallEntry
from .console_pages import CALL, Home, ReadOnlyAdmin, with_policy

# Maximum number of new calls that are counted.
MOST_NEW: Final = 100
BODIES: Final = ("arguments", "result")


class CallPaginator(Paginator):  # type: ignore[type-arg]
    """A paginator that counts at most ``most`` rows; a query with a time finds older ones."""

    most = 10_000

    @cached_property
    def count(self) -> int:
        """How many rows there are, at most ``most``."""
        rows: Any = self.object_list
        return int(rows.order_by()[: self.most].count())


class CallEntryAdmin(ReadOnlyAdmin, Home):
    """The read-only ModelAdmin of the log of calls. Users who may view the log can open the console."""

    # The columns that can be sorted.
    list_display = ("time", "duration", "rows_changed")
    list_per_page = 50
    list_max_show_all = 0
    show_full_result_count = False
    paginator = CallPaginator
    ordering = ("-time", "-pk")
    search_fields = ("call_id",)
    actions = None
    change_list_template = "mcp_django/console/call_list.html"

    def get_urls(self) -> list[URLPattern]:
        """Return the URLs of the console, of the number of new calls, of the list as a file, and of the list."""
        views = {"new": self.new_view, "csv": self.csv_view}
        own = [
            path(f"{name}/", self.admin_site.admin_view(self.in_zone(view)), name=f"mcp_django_console_{name}")
            for name, view in views.items()
        ]
        return [*own, *super().get_urls()]

    def get_changelist(self, request: HttpRequest, **kwargs: Any) -> Any:
        """Return the class of the list of calls."""
        from .call_list import CallList  # the admin is loaded by every process

        return CallList

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return the calls without captured arguments and results."""
        return super().get_queryset(request).defer(*BODIES)

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """Return all rows: the query narrows them, not the admin's search."""
        return queryset, False

    def lookup_allowed(self, lookup: str, value: Any, request: Any = None) -> bool:
        """Return False, so that no lookup in the URL narrows the list: the query does."""
        return False

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Render the list of calls, below the tabs of the console."""
        rows = CallEntry._default_manager.aggregate(newest=Max("pk"))
        context = {**self.get_context(request, "calls"), "most": self.paginator.most, **rows}
        return with_policy(super().changelist_view(request, context | {"title": _("Calls")} | (extra_context or {})))

    def _require_reader(self, request: HttpRequest) -> None:
        if not self.has_view_permission(request):
            raise PermissionDenied

    def new_view(self, request: HttpRequest) -> HttpResponse:
        """Answer in JSON how many calls of a query are newer than one, at most ``MOST_NEW``."""
        from .call_query import CallQuery

        self._require_reader(request)
        query = CallQuery.parse(request.GET.get("q", ""), timezone.now())
        after = request.GET.get("after", "")
        count = 0
        if after.isdecimal() and len(after) < 19:
            count = self._count_new(request, query, int(after))
        text = _("%(count)s new") % {"count": count if count < MOST_NEW else f"{count}+"}
        return JsonResponse({"count": count, "text": text})

    def _count_new(self, request: HttpRequest, query: Any, after: int) -> int:
        """Return how many of the newest ``most`` calls a query finds that have a key above ``after``."""
        rows = self.get_queryset(request)
        times = rows.filter(pk__gt=after).order_by("pk").values("time")
        found = rows.order_by("-pk").values_list("pk", Subquery(times[:1])).first()
        newest, first = found or (0, None)
        if first is None:
            return 0
        # With a time, the index of any term finds few calls. They are stored when they are over, so some of them began
        # before the first one.
        new = rows.filter(pk__gt=max(after, newest - self.paginator.most), time__gt=first - timedelta(days=1))
        return int(query.filter(new).order_by()[:MOST_NEW].count())

    def csv_view(self, request: HttpRequest) -> HttpResponseBase:
        """Answer with the calls of a query as a CSV file: as many as the list leads to, in its order."""
        from .call_file import respond

        self._require_reader(request)
        given = request.GET
        # The admin's list takes any other parameter for a filter.
        request.GET = QueryDict(mutable=True)  # type: ignore[assignment]
        request.GET.update({name: given[name] for name in (SEARCH_VAR, ORDER_VAR) if name in given})
        calls = self.get_changelist_instance(request).queryset
        return respond(calls[: self.paginator.most])

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> Any:
        """Render the page of one call in place of a change form."""
        return replace(CALL, home=self).view(request)
