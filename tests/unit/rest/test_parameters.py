import pytest
from rest_framework import filters, pagination, permissions, viewsets
from rest_framework.decorators import action
from rest_framework.response import Response

from mcp_django import ToolError
from mcp_django.rest.parameters import check_ordering, ordering_names, query_parameters
from mcp_django.rest.probing import probe
from tests.factories import make_user
from tests.restapp import serializers, views
from tests.restapp.calling import fresh_site, make_order, route_of
from tests.restapp.filters import FilteredViewSet, OrderFilter, PlainlyFilteredViewSet
from tests.restapp.models import Client, Order
from tests.writing import call, refusal, request_of

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.restapp.urls")]


@pytest.fixture
def ann():
    return make_user("ann", staff=False)


def parameters(user, viewset, name="list", **options):
    route = route_of(viewset, name, **options)
    return query_parameters(route, probe(request_of(user), route))


@pytest.mark.parametrize(
    ("viewset", "names"),
    [
        (views.OrderViewSet, ["search", "ordering", "page", "page_size"]),
        (views.ClientViewSet, ["limit", "offset"]),
        (views.ItemViewSet, ["cursor"]),
        (views.ClockViewSet, []),
        (PlainlyFilteredViewSet, ["total__gte", "total__lt", "status"]),
    ],
)
def test_filters_and_paginators_name_their_parameters(ann, viewset, names):
    prefix = r"o/(?P<order_pk>\d+)/things" if viewset is views.ItemViewSet else "things"
    assert list(parameters(ann, viewset, prefix=prefix)) == names


def test_only_lists_and_actions_that_filter_take_them(ann):
    class Extra(views.OrderViewSet):
        @action(detail=False)
        def recent(self, request):
            page = self.paginate_queryset(self.filter_queryset(self.get_queryset()))
            return self.get_paginated_response(self.get_serializer(page, many=True).data)

    assert list(parameters(ann, Extra, "recent")) == ["search", "ordering", "page", "page_size"]
    for name in ("retrieve", "stats", "destroy"):
        assert parameters(ann, Extra, name) == {}


def test_parameters_that_the_project_names_are_there_too(ann):
    declared = {"stats": {"days": {"type": "integer", "description": "Of the last days"}}}
    assert parameters(ann, views.OrderViewSet, "stats", parameters=declared) == declared["stats"]


def test_a_backend_of_the_projects_own_says_what_it_takes(ann):
    class Own(filters.BaseFilterBackend):
        def filter_queryset(self, request, queryset, view):
            return queryset

        def get_schema_operation_parameters(self, view):
            return [
                {"name": "near", "in": "query", "schema": {"type": "array"}, "description": " Where "},
                {"name": "X-Header", "in": "header"},
                {"name": "odd", "in": "query", "schema": {"type": "strange"}},
            ]

    class Viewed(views.OrderViewSet):
        filter_backends = [Own]
        pagination_class = None

    found = parameters(ann, Viewed)
    assert found == {
        "near": {"type": "array", "items": {"type": "string"}, "description": "Where"},
        "odd": {"type": "string"},
    }


def test_ordering_is_by_what_the_view_allows(ann):
    route = route_of(views.OrderViewSet, "list")
    view = probe(request_of(ann), route)
    assert ordering_names(view) == {"ordering": ["number", "total"]}
    assert "number, total" in query_parameters(route, view)["ordering"]["description"]
    check_ordering({"ordering": ["number"]}, {"ordering": "-number, number"})
    with pytest.raises(ToolError, match=r"cannot be ordered by 'x'\. Valid: number"):
        check_ordering({"ordering": ["number"]}, {"ordering": "number,x"})


def test_ordering_that_nobody_declared_is_by_the_fields_of_the_serializer(ann):
    class Open(views.OrderViewSet):
        ordering_fields = None

        def get_serializer_class(self):
            return serializers.BriefSerializer

    view = probe(request_of(ann), route_of(Open, "list"))
    assert ordering_names(view) == {"ordering": ["id", "number", "status"]}


# django-filter


def test_filters_of_django_filter_have_the_schemas_of_their_form(ann):
    found = parameters(ann, FilteredViewSet)
    assert found["status"]["items"]["enum"] == ["new", "paid"]
    assert found["client"]["type"] == "integer"
    assert found["locked"]["anyOf"] == [{"type": "boolean"}, {"type": "null"}]
    assert {"total_min", "total_max"} <= found.keys()
    assert "separated by commas" in found["number"]["description"]


def test_schemas_hold_no_value_of_a_row(ann):
    make_order(ann, "A1", note="private words")
    assert parameters(ann, FilteredViewSet)["note"] == {"type": "string"}


def test_the_filterset_of_rest_users_is_left_as_it_was(ann):
    parameters(ann, FilteredViewSet)
    assert not hasattr(OrderFilter.base_filters["client"], "_field")


def test_filters_filter(ann):
    client, hidden = (Client.objects.create(name=name) for name in ("Zoe", "Hidden"))
    make_order(ann, "A1", client=client, total=5)
    make_order(ann, "A2", client=hidden, total=50, status="paid")
    make_order(ann, "A3", total=500, locked=True)
    site = fresh_site("filtered", FilteredViewSet)
    tool, request = site._tools["list_filtered"], request_of(ann, site)

    def numbers(**arguments):
        return [row["number"] for row in call(tool, request, **arguments)["results"]]

    assert numbers() == ["A1", "A2", "A3"]
    assert numbers(client=client.pk) == ["A1"]
    assert numbers(total_min=10, total_max="100") == ["A2"]
    assert numbers(number="A1,A3") == ["A1", "A3"]
    assert numbers(status=["new"]) == ["A1", "A3"]
    assert numbers(status='["new", "paid"]') == ["A1", "A2", "A3"]
    assert numbers(locked=True) == ["A3"]
    assert refusal(tool, request, client=hidden.pk).startswith("Refused:\nclient: ")
    assert refusal(tool, request, secret="x").startswith("Unknown argument 'secret'.")


def test_every_page_of_the_three_kinds_is_reached(ann):
    for number in range(5):
        make_order(ann, f"A{number}")

    class Cursors(pagination.CursorPagination):
        page_size = 2
        ordering = "id"

    for kind in (views.Pages, views.Limits, Cursors):

        class Paged(viewsets.ReadOnlyModelViewSet):
            queryset = Order.objects.order_by("pk")
            serializer_class = serializers.BriefSerializer
            permission_classes = [permissions.IsAuthenticated]
            pagination_class = kind

        site = fresh_site("paged", Paged)
        arguments, found, back = {}, [], []
        for _ in range(5):
            page = call(site._tools["list_paged"], request_of(ann, site), **arguments)
            found.append([row["number"] for row in page["results"]])
            if "previous" in page:
                earlier = {**arguments, **page["previous"]}
                back.append(call(site._tools["list_paged"], request_of(ann, site), **earlier)["results"][0]["number"])
            if "next" not in page:
                break
            arguments |= page["next"]
        assert found == [["A0", "A1"], ["A2", "A3"], ["A4"]], kind
        assert back == ["A0", "A2"], kind


def test_actions_of_plain_viewsets_take_none(ann):
    class Plain(viewsets.ViewSet):
        def list(self, request):
            return Response()

    assert parameters(ann, Plain) == {}
