"""The arguments of a ViewSet's tool."""

import re

import pytest
from rest_framework import filters, pagination, permissions, viewsets
from rest_framework import serializers as drf
from rest_framework.decorators import action
from rest_framework.response import Response

from mcp_django import ToolError
from mcp_django.exceptions import NotFound
from mcp_django.rest.parameters import check_ordering, inputs_of, ordering_names, path_arguments, query_parameters
from mcp_django.rest.requests import probe
from tests.factories import make_user
from tests.restapp import serializers, views
from tests.restapp.calls import fresh_site, make_order, route_of
from tests.restapp.filters import FilteredViewSet, OrderFilter, PlainlyFilteredViewSet
from tests.restapp.models import Client, Order
from tests.tool_calls import call, refusal, request_of

pytestmark = [
    pytest.mark.postgresql,
    pytest.mark.one_server,
    pytest.mark.django_db,
    pytest.mark.urls("tests.restapp.urls"),
]


class ByNumber(views.OrderViewSet):
    lookup_field = "number"

    @action(detail=False, methods=["post"], serializer_class=serializers.OrderSerializer)
    def imported(self, request):
        data = self.get_serializer(data=request.data)
        data.is_valid(raise_exception=True)
        return Response(data.validated_data)

    @action(detail=False, methods=["post"])
    def odd(self, request):
        return Response(request.data)

    odd.mcp_destructive = False


@pytest.fixture
def ann():
    return make_user("ann", staff=False)


def inputs(user, viewset, name, **options):
    route = route_of(viewset, name, **options)
    return inputs_of(route, probe(request_of(user), route))


def test_a_name_that_the_url_and_the_body_have_is_two_arguments(ann):
    found = inputs(ann, ByNumber, "update")
    assert list(found.schema["properties"])[:2] == ["number", "body_number"]
    assert found.schema["required"] == ["number", "body_number"]
    make_order(ann, "A1")
    site = fresh_site("orders", ByNumber)
    call(site._tools["update_orders"], request_of(ann, site), number="A1", body_number="A2")
    assert Order.objects.get().number == "A2"


def test_the_key_in_the_url_has_the_type_of_its_field(ann):
    assert inputs(ann, ByNumber, "retrieve").path["number"]["type"] == "string"
    assert inputs(ann, views.OrderViewSet, "retrieve").path["pk"] == {
        "type": "integer",
        "description": "primary key of the order",
    }
    assert inputs(ann, views.ClockViewSet, "destroy").path["pk"]["type"] == "string"


def test_an_extra_action_takes_the_fields_of_the_serializer_that_it_declares(ann):
    assert inputs(ann, ByNumber, "imported").schema["required"] == ["number"]
    assert inputs(ann, views.OrderViewSet, "refund").required == ["amount", "reason"]
    odd = inputs(ann, ByNumber, "odd")
    assert list(odd.properties) == ["data"]
    assert odd.properties["data"]["additionalProperties"] is True
    assert "number" in odd.properties["data"]["properties"]
    assert "required" not in odd.properties["data"]
    assert list(inputs(ann, views.ClockViewSet, "create").properties) == ["data"]


def test_a_body_that_is_one_argument_is_an_object(ann):
    site = fresh_site("orders", ByNumber)
    tool, request = site._tools["odd_orders"], request_of(ann, site)
    assert call(tool, request, data={"a": [1]}) == {"a": [1]}
    assert call(tool, request, data='{"a": 2}') == {"a": 2}
    assert call(tool, request) == {}
    assert refusal(tool, request, data="x") == "data must be an object, such as {'field': value}."
    assert refusal(tool, request, a=1).startswith("Unknown argument 'a'. ")


def test_null_is_a_value_only_where_the_field_takes_it(ann):
    order = make_order(ann, "A1", note="x")
    site = fresh_site("orders", views.OrderViewSet)
    tool, request = site._tools["partial_update_orders"], request_of(ann, site)
    call(tool, request, pk=order.pk, client=None, note=None, number=None)
    order.refresh_from_db()
    assert (order.number, order.note, order.client) == ("A1", "x", None)


def test_objects_and_lists_may_come_as_text(ann):
    order = make_order(ann, "A1")
    site = fresh_site("orders", views.OrderViewSet)
    tool, request = site._tools["refund_orders"], request_of(ann, site)
    given = {"pk": str(order.pk), "amount": "1", "reason": "late", "items": '[{"name": "Pen"}]'}
    assert call(tool, request, **given) == {"refunded": "1.00", "order": order.pk}
    # A text field keeps what looks like an object.
    tool = site._tools["partial_update_orders"]
    assert call(tool, request, pk=order.pk, note='{"a": 1}')["note"] == '{"a": 1}'


def test_what_is_missing_is_named(ann):
    site = fresh_site("orders", views.OrderViewSet)
    request = request_of(ann, site)
    assert refusal(site._tools["create_orders"], request).startswith("Missing argument: number. Valid: number, ")
    assert refusal(site._tools["retrieve_orders"], request) == "Missing argument: pk."
    assert refusal(site._tools["retrieve_orders"], request, pk=None) == "Missing argument: pk."


@pytest.mark.parametrize("value", [[1], {}, "\0", "x" * 2001, 10**5000], ids=["list", "dict", "nul", "long", "huge"])
def test_values_that_no_url_holds_are_not_there(value):
    with pytest.raises(NotFound):
        path_arguments(route_of(views.OrderViewSet, "retrieve"), {"pk": value})


@pytest.mark.parametrize(("value", "text"), [(1, "1"), (1.0, "1"), ("a", "a"), (True, "true")])
def test_values_in_urls_are_text(value, text):
    assert path_arguments(route_of(views.OrderViewSet, "retrieve"), {"pk": value}) == {"pk": text}


def test_a_query_is_made_of_single_values(ann):
    found = inputs(ann, views.OrderViewSet, "list")
    assert found.query_of({"page": 2, "search": "a&b=c", "page_size": None}).urlencode() == "search=a%26b%3Dc&page=2"
    assert found.query_of({"page": 0, "search": "", "page_size": []}).urlencode() == ""
    for value in ({"a": 1}, "\0", ["a"]):
        with pytest.raises(ToolError):
            found.query_of({"search": value})


def test_a_serializer_that_depends_on_what_is_not_known_leaves_the_body_open(ann):
    class Depends(views.ItemViewSet):
        def get_serializer_class(self):
            return serializers.ItemSerializer if self.kwargs["order_pk"] == "1" else serializers.BriefSerializer

    prefix = r"o/(?P<order_pk>\d+)/items"
    assert list(inputs(ann, Depends, "create", prefix=prefix).properties) == ["order_pk", "data"]
    order = make_order(ann, "A1")
    site = fresh_site(prefix, Depends, "item", name="items")
    # The call knows.
    expected = "name" if order.pk == 1 else "number"
    text = refusal(site._tools["create_items"], request_of(ann, site), order_pk=order.pk, data={})
    assert text.startswith("Unknown argument 'data'. ")
    assert expected in text


def test_a_serializer_that_fails_costs_no_list(ann, caplog):
    class Broken(views.OrderViewSet):
        def get_serializer_class(self):
            raise RuntimeError("broken")

    assert list(inputs(ann, Broken, "create").properties) == ["data"]
    assert "create_things" in caplog.text


def test_a_file_is_no_argument(ann):
    assert list(inputs(ann, views.UploadViewSet, "create").properties) == ["title"]


def test_a_view_without_a_serializer_class_takes_an_object(ann):
    class Bare(viewsets.GenericViewSet):
        def create(self, request):
            return Response(request.data)

    assert list(inputs(ann, Bare, "create").properties) == ["data"]


def test_a_serializer_of_many_rows_takes_a_list(ann):
    class Many(views.OrderViewSet):
        def get_serializer(self, *args, **kwargs):
            if self.action == "create":
                kwargs["many"] = True
            return super().get_serializer(*args, **kwargs)

    found = inputs(ann, Many, "create").schema
    assert found["required"] == ["data"]
    assert found["properties"]["data"]["items"]["required"] == ["number"]
    site = fresh_site("orders", Many)
    tool, request = site._tools["create_orders"], request_of(ann, site)
    assert len(call(tool, request, data=[{"number": "A1"}, {"number": "A2"}])["results"]) == 2
    assert refusal(tool, request, data={"number": "A3"}).startswith("data must be a list of objects")
    # Releases of REST framework number the items differently.
    assert re.match(r"Refused:\n(0|\[0\])\.number: ", refusal(tool, request, data=[{"number": "A1"}]))


def test_a_serializer_without_fields_takes_an_object(ann):
    class Blind(drf.BaseSerializer):
        def to_internal_value(self, data):
            return data

    class Unknowable(views.OrderViewSet):
        serializer_class = Blind

    assert list(inputs(ann, Unknowable, "create").properties) == ["data"]


def test_schemas_are_flat_objects_without_combinators(ann):
    class Nested(drf.Serializer):
        rows = serializers.RefundSerializer(many=True)

    class Deep(views.OrderViewSet):
        serializer_class = Nested

    for name in ("list", "create", "update", "refund"):
        schema = inputs(ann, Deep, name).schema
        assert schema["type"] == "object"
        assert schema["additionalProperties"] is False
        assert not any(word in str(schema) for word in ("anyOf", "oneOf", "$ref", "'format'"))


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


class Extra(views.OrderViewSet):
    def page(self):
        found = self.paginate_queryset(self.filter_queryset(self.get_queryset()))
        return self.get_paginated_response(self.get_serializer(found, many=True).data)

    @action(detail=False)
    def recent(self, request):
        page = self.paginate_queryset(self.filter_queryset(self.get_queryset()))
        return self.get_paginated_response(self.get_serializer(page, many=True).data)

    @action(detail=False)
    def by_helper(self, request):
        return self.page()

    @action(detail=False, filter_backends=[], pagination_class=None)
    def stats(self, request):
        return Response({"orders": self.get_queryset().count()})


def test_lists_and_extra_actions_take_them_unless_they_declare_that_they_do_not(ann):
    for name in ("recent", "by_helper"):
        assert list(parameters(ann, Extra, name)) == ["search", "ordering", "page", "page_size"]
    for name in ("retrieve", "stats", "destroy"):
        assert parameters(ann, Extra, name) == {}


def test_an_extra_action_that_lists_by_a_helper_has_a_second_page(ann):
    for number in range(5):
        make_order(ann, f"A{number}")
    site = fresh_site("orders", Extra)
    tool, request = site._tools["by_helper_orders"], request_of(ann, site)
    first = call(tool, request, page_size=3, ordering="number")
    second = call(tool, request, page_size=3, ordering="number", **first["next"])
    assert [row["number"] for row in [*first["results"], *second["results"]]] == ["A0", "A1", "A2", "A3", "A4"]


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


class BySize(pagination.CursorPagination):
    page_size_query_param = "size"


class Always(pagination.PageNumberPagination):
    def get_page_size(self, request):
        return 2


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (pagination.PageNumberPagination, []),
        (pagination.CursorPagination, []),
        (pagination.LimitOffsetPagination, ["limit", "offset"]),
        (BySize, ["cursor", "size"]),
        (Always, ["page"]),
    ],
)
def test_without_a_page_size_no_pages_are_offered(ann, kind, names):
    class Unpaged(viewsets.ReadOnlyModelViewSet):
        queryset = Order.objects.order_by("pk")
        serializer_class = serializers.BriefSerializer
        pagination_class = kind
        filter_backends = []

    assert list(parameters(ann, Unpaged)) == names


def test_actions_of_plain_viewsets_take_none(ann):
    class Plain(viewsets.ViewSet):
        def list(self, request):
            return Response()

    assert parameters(ann, Plain) == {}
