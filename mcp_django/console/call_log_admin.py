"""The ModelAdmin of the call log: its list, which a query narrows; the console lies below its URL.

Nothing here reads the whole table: the list counts and pages through its newest ``MOST`` matches.
"""

from dataclasses import replace
from datetime import timedelta
from typing import Any, Final

from django.core.exceptions import PermissionDenied
from django.core.paginator import Paginator
from django.db.models import Max, OuterRef, QuerySet, Subquery, Value
from django.db.models.functions import Greatest
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.urls import URLPattern, path
from django.utils import timezone
from django.utils.functional import cached_property
from django.utils.translation import gettext as _

from ..models import CallEntry
from .console_pages import CALL, Home, ReadOnlyAdmin, with_policy

# Maximum number of matches that the list counts and pages through; a query with a time finds older ones.
MOST: Final = 10_000
# Maximum number of new calls that are counted.
MOST_NEW: Final = 100
BODIES: Final = ("arguments", "result")


class CallPaginator(Paginator):  # type: ignore[type-arg]
    """A paginator that counts at most ``MOST`` rows."""

    @cached_property
    def count(self) -> int:
        """How many rows there are, at most ``MOST``."""
        rows: Any = self.object_list
        return int(rows.order_by()[:MOST].count())


class CallEntryAdmin(ReadOnlyAdmin, Home):
    """The read-only ModelAdmin of the log of calls. Users who may view the log can open the console."""

    list_display = ("time",)
    list_per_page = 50
    list_max_show_all = 0
    show_full_result_count = False
    paginator = CallPaginator
    ordering = ("-time", "-pk")
    search_fields = ("call_id",)
    actions = None
    change_list_template = "mcp_django/console/call_list.html"

    def get_urls(self) -> list[URLPattern]:
        """Return the URLs of the console, of the number of new calls, and of the list."""
        view = self.admin_site.admin_view(self.in_zone(self.new_view))
        return [path("new/", view, name="mcp_django_console_new"), *super().get_urls()]

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
        context = {**self.get_context(request, "calls"), "most": MOST, **rows}
        return with_policy(super().changelist_view(request, context | {"title": _("Calls")} | (extra_context or {})))

    def new_view(self, request: HttpRequest) -> HttpResponse:
        """Answer in JSON how many calls of a query are newer than one, at most ``MOST_NEW``."""
        from .call_query import CallQuery

        if not self.has_view_permission(request):
            raise PermissionDenied
        query = CallQuery.parse(request.GET.get("q", ""), timezone.now())
        after = request.GET.get("after", "")
        count = self._count_new(request, query, int(after)) if after.isdecimal() and len(after) < 19 else 0
        text = _("%(count)s new") % {"count": count if count < MOST_NEW else f"{count}+"}
        return JsonResponse({"count": count, "text": text})

    def _count_new(self, request: HttpRequest, query: Any, after: int) -> int:
        """Return how many of the newest ``MOST`` calls a query finds that have a key above ``after``."""
        rows = self.get_queryset(request)
        # One bound: SQLite would use either of two.
        bound = Greatest(Value(after), OuterRef("pk") - MOST)
        times = rows.filter(pk__gt=bound).order_by("pk").values("time")
        found = rows.order_by("-pk").values_list("pk", Subquery(times[:1])).first()
        newest, first = found or (0, None)
        if first is None:
            return 0
        # With a time, the index of any term finds few calls. They are stored when they are over, so some of them began
        # before the first one.
        new = rows.filter(pk__gt=max(after, newest - MOST), time__gt=first - timedelta(days=1))
        return int(query.filter(new).order_by()[:MOST_NEW].count())

    def change_view(
        self, request: HttpRequest, object_id: str, form_url: str = "", extra_context: dict[str, Any] | None = None
    ) -> Any:
        """Render the page of one call in place of a change form."""
        return replace(CALL, home=self).view(request)
