import json

import pytest
from django.core.exceptions import ImproperlyConfigured
from rest_framework import permissions, viewsets
from rest_framework.decorators import action
from rest_framework.response import Response
from rest_framework.views import APIView

import mcp_django
from mcp_django import AlreadyRegistered, MCPSite
from mcp_django.rest.tools import declare
from tests.factories import make_user
from tests.restapp import views
from tests.restapp.calls import fresh_site, make_order
from tests.restapp.models import Order
from tests.tool_calls import call, request_of

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.restapp.urls")]


def test_a_viewset_is_registered_as_with_a_router():
    site = MCPSite()
    assert mcp_django.register_viewset("clients", views.ClientViewSet, site=site) is views.ClientViewSet
    assert {"list_clients", "retrieve_clients"} <= site._tools.keys()
    assert list(site.resources) == ["rest://clients", "rest://clients{?limit,offset}", "rest://clients/{name}"]


def test_the_decorator_gives_the_class_back():
    site = MCPSite()

    @mcp_django.register_viewset("pings", site=site, basename="ping")
    class Pings(viewsets.ViewSet):
        def list(self, request):
            return Response()

    assert isinstance(Pings, type)
    assert "list_pings" in site._tools


def test_row_82_a_name_is_taken_once():
    site = fresh_site("orders", views.OrderViewSet)
    before = dict(site._tools)
    for prefix, options in (("orders", {}), ("api/orders", {"name": "orders"}), ("models", {})):
        with pytest.raises(AlreadyRegistered):
            site.register_viewset(prefix, views.OrderViewSet, **options)
    assert site._tools == before
    site.register_viewset("orders", views.OrderViewSet, name="old_orders")
    assert "list_old_orders" in site._tools
    names = site.all_tool_names()
    assert len(names) == len(set(names))


@pytest.mark.parametrize("thing", [APIView, object, views.OrderViewSet.as_view({"get": "list"}), None])
def test_only_viewsets_are_registered(thing):
    with pytest.raises(ImproperlyConfigured, match="is not a ViewSet"):
        declare("things", thing)


def test_options_are_checked():
    for options in ({"actions": "list"}, {"confirm": "mark_paid"}):
        with pytest.raises(ImproperlyConfigured, match="must be a list such as"):
            declare("orders", views.OrderViewSet, **options)


def test_the_actions_that_become_tools_can_be_chosen():
    tools, resources = declare("orders", views.OrderViewSet, actions=["list", "mark_paid"])
    assert [tool.name for tool in tools] == ["list_orders", "mark_paid_orders"]
    assert [resource.uri for resource in resources] == ["rest://orders", f"rest://orders{{{QUERY}}}"]


QUERY = "?search,ordering,page,page_size"


def test_an_action_can_be_made_to_ask_first():
    site = fresh_site("orders", views.OrderViewSet, confirm=["mark_paid"])
    ann = make_user("ann")
    order = make_order(ann, "A1")
    request = request_of(ann, site)
    preview = call(site._tools["mark_paid_orders"], request, pk=order.pk)
    assert preview["shown"]["row"]["number"] == "A1"
    assert Order.objects.get().status == "new"
    call(site._tools["mark_paid_orders"], request, pk=order.pk, confirm_token=preview["confirm_token"])
    assert Order.objects.get().status == "paid"


def test_query_parameters_can_be_declared():
    class Reports(viewsets.ViewSet):
        permission_classes = [permissions.IsAuthenticated]

        @action(detail=False)
        def sales(self, request):
            return Response({"days": request.query_params.get("days")})

    site = fresh_site("reports", Reports, parameters={"sales": {"days": {"type": "integer"}}})
    request = request_of(make_user("ann"), site)
    assert call(site._tools["sales_reports"], request, days=7) == {"days": "7"}


def test_tools_are_taken_off_by_name():
    site = fresh_site("orders", views.OrderViewSet)
    site.remove_tool("destroy_orders")
    site.remove_resource("rest://orders")
    assert "destroy_orders" not in site._tools


def test_declaring_reads_no_row_and_changes_no_class(django_assert_num_queries):
    before = {name: value for name, value in vars(views.OrderViewSet).items() if not name.startswith("__")}
    with django_assert_num_queries(0):
        tools, _ = declare("orders", views.OrderViewSet)
        json.dumps([tool.definition() for tool in tools])
    changed = {name for name, value in vars(views.OrderViewSet).items() if before.get(name, value) is not value}
    # As every router of REST framework does.
    assert changed <= {"name", "description", "suffix", "detail", "basename"}
