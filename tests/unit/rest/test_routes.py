import pytest
from django.core.exceptions import ImproperlyConfigured
from rest_framework import viewsets
from rest_framework.decorators import action
from rest_framework.response import Response

from mcp_django.exceptions import NotFound
from mcp_django.rest.routes import base_name, routes_of
from tests.restapp import views
from tests.restapp.calls import registration, route_of

pytestmark = pytest.mark.urls("tests.restapp.urls")


class Half(viewsets.ViewSet):
    http_method_names = ["get", "post"]

    def list(self, request):
        return Response()

    def destroy(self, request, pk=None):
        return Response()

    @action(detail=True, methods=["post", "put"])
    def push(self, request, pk=None):
        return Response()

    @push.mapping.get
    def pushed(self, request, pk=None):
        return Response()


@pytest.mark.parametrize(
    ("prefix", "name"),
    [
        ("orders", "orders"),
        ("shop/Big-Orders", "shop_big_orders"),
        (r"clients/(?P<client_pk>[^/.]+)/orders", "clients_orders"),
        (r"clients/(?P<client_pk>(a|b)+)/orders", "clients_orders"),
        ("clients/<int:client_pk>/orders", "clients_orders"),
    ],
)
def test_a_prefix_without_its_parameters_names_the_tools(prefix, name):
    assert base_name(prefix) == name


def test_a_prefix_of_nothing_but_parameters_names_nothing():
    with pytest.raises(ImproperlyConfigured, match="has no name in it"):
        base_name(r"(?P<pk>\d+)")


def test_routes_are_those_of_a_router_and_of_the_methods_that_the_class_answers_to():
    found = [(route.name, route.method) for route in routes_of(registration(Half))]
    assert found == [("list_things", "get"), ("push_things", "post"), ("pushed_things", "get")]


def test_an_action_under_two_methods_is_two_tools():
    found = {route.name for route in routes_of(registration(views.OrderViewSet)) if route.action == "favourite"}
    assert found == {"post_favourite_things", "delete_favourite_things"}


def test_what_a_project_chooses_is_checked():
    chosen = routes_of(registration(views.OrderViewSet, actions=frozenset({"list", "stats"})))
    assert [route.action for route in chosen] == ["list", "stats"]
    for option in ({"actions": frozenset({"nonsense"})}, {"confirm": frozenset({"x"})}, {"parameters": {"x": {}}}):
        with pytest.raises(ImproperlyConfigured, match="has no action"):
            routes_of(registration(views.OrderViewSet, **option))
    with pytest.raises(ImproperlyConfigured, match="no action that could be a tool"):
        routes_of(registration(viewsets.ViewSet))


@pytest.mark.parametrize("pk", ["1/mark_paid", "a.b", "", "a/b", "."])
def test_a_url_cannot_hold_just_anything(pk):
    with pytest.raises(NotFound):
        route_of(views.OrderViewSet, "retrieve").match({"pk": pk})


def test_a_url_that_leads_to_another_action_leads_nowhere():
    class Greedy(views.OrderViewSet):
        lookup_value_regex = ".+"

    assert route_of(Greedy, "retrieve").match({"pk": "a/b"}).kwargs == {"pk": "a/b"}
    # REST clients who ask for this reach the row "1/mark_paid".
    with pytest.raises(NotFound):
        route_of(Greedy, "mark_paid").match({"pk": "1"})


def test_parameters_of_the_prefix_are_parameters_of_the_tool():
    for prefix in (r"a/(?P<a_pk>\d+)/b", "a/<int:a_pk>/b"):
        route = route_of(views.ItemViewSet, "retrieve", prefix=prefix)
        assert route.parameters == ("a_pk", "pk")
        assert str(route.match({"a_pk": "7", "pk": "x"}).kwargs["a_pk"]) == "7"
        with pytest.raises(NotFound):
            route.match({"a_pk": "x", "pk": "x"})


def test_fixed_parameters_are_no_arguments():
    options = {"prefix": r"(?P<version>v\d)/x", "kwargs": {"version": "v1"}}
    route = route_of(views.VersionedViewSet, "list", **options)
    assert route.parameters == ()
    assert route.match({}).kwargs == {"version": "v1"}


def test_the_path_is_the_one_of_rest_clients_where_there_is_one():
    assert route_of(views.OrderViewSet, "retrieve", basename="order").path({"pk": "1"}) == "/api/orders/1/"
    # A name of the URLconf that belongs to another class is none of this one's.
    assert route_of(views.OrderViewSet, "list", basename="client").path({}) == "/things/"
    assert route_of(views.OrderViewSet, "list", basename="nowhere").path({}) == "/things/"
