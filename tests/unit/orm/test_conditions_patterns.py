"""No regular expression of a client is matched by this process, whichever way it takes."""

import time
from typing import Any

import django_filters
import pytest
from django.contrib import admin
from django.contrib.auth.models import User
from django.db import connection
from django.db.models import Exists, OuterRef, Q, QuerySet
from rest_framework.filters import SearchFilter

from mcp_django import MCPSite, ModelExposure
from mcp_django.exceptions import ToolError
from mcp_django.orm.conditions import check_patterns, is_pattern_lookup
from mcp_django.rest.parameters import query_parameters
from mcp_django.rest.requests import probe
from mcp_django.tools.describe_model import DescribeModel
from mcp_django.tools.query_records import QueryRecords
from tests.factories import make_book, make_superuser
from tests.restapp.calls import route_of
from tests.restapp.filters import FilteredViewSet
from tests.restapp.models import Order
from tests.restapp.views import OrderViewSet
from tests.testapp.models import Book
from tests.tool_calls import call, refusal, request_of

pytestmark = [pytest.mark.postgresql, pytest.mark.undivided, pytest.mark.django_db]
QUERY, DESCRIBE = QueryRecords(), DescribeModel()
SQLITE = connection.vendor == "sqlite"
ROW = "a" * 25
# Each takes a backtracking matcher seconds on the row, and many times that with each further letter.
COSTLY = ("a?" * 25 + "a" * 25, "(a|aa|aaa)" * 12 + "b", "(a+)+$b")


class BookFilters(django_filters.FilterSet):
    matches = django_filters.CharFilter(field_name="title", lookup_expr="iregex")
    lookup = django_filters.LookupChoiceFilter(field_name="title", field_class=django_filters.CharFilter.field_class)
    own = django_filters.CharFilter(method="filter_own")
    inverted = django_filters.CharFilter(field_name="tags__name", lookup_expr="regex", exclude=True)

    def filter_own(self, queryset: QuerySet[Any], name: str, value: str) -> QuerySet[Any]:
        return queryset.filter(Exists(Book.objects.filter(pk=OuterRef("pk"), title__iregex=rf"\b{value.upper()}\b")))


class PatternFilter(admin.SimpleListFilter):
    title = "pattern"
    parameter_name = "pattern"

    def lookups(self, request: Any, model_admin: Any) -> list[tuple[Any, str]]:
        return [(None, "any")]

    def queryset(self, request: Any, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset.exclude(~Q(title__regex=self.value())) if self.value() else queryset


class BookAdmin(admin.ModelAdmin):
    list_display = ["title"]
    list_filter = [PatternFilter]
    search_fields = ["title__regex", "isbn__exact"]


class OwnSearchAdmin(BookAdmin):
    def get_search_results(self, request: Any, queryset: QuerySet[Any], term: str) -> Any:
        return queryset.filter(title__iregex=term), False


def root() -> Any:
    return User.objects.filter(is_superuser=True).first() or make_superuser()


def admin_request(model_admin: Any) -> Any:
    admin_site = admin.AdminSite("patterns")
    admin_site.register(Book, model_admin)
    return request_of(root(), MCPSite(admin_site=admin_site))


def declared_request() -> Any:
    site = MCPSite()
    lookups = {"title": ["exact", "regex", "iregex"]}
    site.register(Book, ModelExposure, fields=["title"], filter_fields=lookups, filterset_class=BookFilters)
    return request_of(root(), site)


@pytest.mark.parametrize("pattern", COSTLY)
@pytest.mark.parametrize(
    ("model_admin", "arguments"),
    [
        (None, {"filters": {"title__regex": "%s"}}),
        (None, {"filters": {"title": {"iregex": "%s"}}}),
        (None, {"filters": {"matches": "%s"}}),
        (None, {"filters": {"or": [{"title": "x"}, {"not": {"matches": "%s"}}]}}),
        (None, {"filters": {"lookup": "%s", "lookup_lookup": "regex"}}),
        (None, {"filters": {"own": "%s"}}),
        (None, {"filters": {"inverted": "%s"}}),
        (BookAdmin, {"filters": {"pattern": "%s"}}),
        (BookAdmin, {"search": "%s"}),
        (OwnSearchAdmin, {"search": "%s"}),
    ],
)
def test_row_117_no_way_leads_an_expression_to_a_matcher_that_backtracks(
    model_admin: Any, arguments: Any, pattern: str
) -> None:
    make_book(ROW)
    request = declared_request() if model_admin is None else admin_request(model_admin)
    started = time.process_time()
    filled = _filled(arguments, pattern)
    try:
        rows = call(QUERY, request, model="testapp.book", **filled)["rows"]
    except ToolError:
        rows = []
    assert time.process_time() - started < 0.5
    # PostgreSQL matches by itself, within the timeout of the call.
    assert rows == [] or not SQLITE


def _filled(given: Any, pattern: str) -> Any:
    if isinstance(given, dict):
        return {name: _filled(value, pattern) for name, value in given.items()}
    if isinstance(given, list):
        return [_filled(value, pattern) for value in given]
    return pattern if given == "%s" else given


def test_a_declared_expression_is_offered_where_the_database_matches_it() -> None:
    make_book("Solaris")
    make_book("other")
    request = declared_request()
    described = str(call(DESCRIBE, request, model="testapp.book", detail=True))
    assert ("iregex" in described) is not SQLITE
    if SQLITE:
        assert "takes other lookups" in refusal(QUERY, request, model="testapp.book", filters={"title__regex": "^S"})
    else:
        assert len(call(QUERY, request, model="testapp.book", filters={"title__regex": "^S.*s$"})["rows"]) == 1


def test_filters_of_the_project_go_on_taking_texts_that_branch_nowhere() -> None:
    make_book("Solaris")
    request = declared_request()
    for filters in ({"matches": "^solar.s$"}, {"own": "Solaris"}, {"lookup": "a*|?", "lookup_lookup": "icontains"}):
        call(QUERY, request, model="testapp.book", filters=filters)
    assert len(call(QUERY, request, model="testapp.book", filters={"matches": "^solar.s$"})["rows"]) == 1
    assert len(call(QUERY, admin_request(OwnSearchAdmin), model="testapp.book", search="solar[i]s")["rows"]) == 1


def test_the_projects_own_expressions_are_its_own() -> None:
    rows = Book.objects.filter(title__regex=r"^(a+)+$")
    check_patterns(rows, ["true", "x|y"])
    check_patterns(rows | Book.objects.filter(isbn__regex="a"), [])
    if SQLITE:
        with pytest.raises(ToolError, match="regular expressions"):
            check_patterns(rows, ["(a+)+"])


def test_a_lookup_is_known_by_its_last_part() -> None:
    assert is_pattern_lookup("title__iregex")
    assert is_pattern_lookup("regex")
    assert not is_pattern_lookup("regex__name")


@pytest.mark.urls("tests.restapp.urls")
def test_a_viewset_takes_no_expression_that_this_process_would_match() -> None:
    class Searched(OrderViewSet):
        filter_backends = [SearchFilter]
        search_fields = ["$number"]

    class OrderFilters(django_filters.FilterSet):
        matches = django_filters.CharFilter(field_name="number", lookup_expr="regex")
        number = django_filters.CharFilter()

        class Meta:
            model = Order
            fields: list[str] = []

    class Filtered(FilteredViewSet):
        filterset_class = OrderFilters

    for viewset, names in ((Searched, {"search"}), (Filtered, {"matches", "number"})):
        route = route_of(viewset, "list")
        known = query_parameters(route, probe(request_of(root()), route))
        assert names & known.keys() == (names - {"search", "matches"} if SQLITE else names)
