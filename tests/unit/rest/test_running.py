import pytest
from django.db import connection, transaction
from django.http import QueryDict
from django.test import override_settings
from rest_framework import permissions, versioning, viewsets
from rest_framework.decorators import action
from rest_framework.response import Response

from mcp_django import ToolError
from mcp_django.exceptions import NotFound
from mcp_django.rest.running import check_object, run, show_object
from tests.factories import make_user
from tests.restapp import views
from tests.restapp.calling import make_order, rest, route_of
from tests.restapp.models import Order
from tests.writing import request_of

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.restapp.urls")]


@pytest.fixture
def ann():
    return make_user("ann", staff=False)


def running(user, viewset, name, body=None, query="", namespace="", **kwargs):
    route = route_of(viewset, name, basename="order", namespace=namespace)
    return run(request_of(user), route, kwargs, QueryDict(query), body)


def test_the_view_is_run_as_for_rest_clients(ann):
    order = make_order(ann, "A1")
    request, response = running(ann, views.OrderViewSet, "retrieve", pk=str(order.pk))
    assert request.path == f"/api/orders/{order.pk}/"
    response.render()
    assert response.content == rest(ann, "get", f"orders/{order.pk}/").content


@pytest.mark.parametrize("atomic", [True, False])
def test_atomic_requests_is_the_projects_own_setting(ann, atomic):
    connection.settings_dict["ATOMIC_REQUESTS"] = atomic
    try:
        _, response = running(ann, views.OrderViewSet, "atomic", {"number": "A1"})
    finally:
        connection.settings_dict["ATOMIC_REQUESTS"] = False
    assert response.status_code == 409
    assert Order.objects.exists() is not atomic


def test_a_view_may_be_left_out_of_atomic_requests(ann):
    class Alone(views.OrderViewSet):
        @classmethod
        def as_view(cls, actions=None, **initkwargs):
            return transaction.non_atomic_requests(super().as_view(actions, **initkwargs))

    connection.settings_dict["ATOMIC_REQUESTS"] = True
    try:
        with transaction.atomic():
            running(ann, Alone, "mark_paid", pk=str(make_order(ann, "A1").pk))
            assert Order.objects.get().status == "paid"
    finally:
        connection.settings_dict["ATOMIC_REQUESTS"] = False


def test_json_is_spoken_with_views_that_do_not(ann):
    _, response = running(ann, views.UploadViewSet, "create", {"title": "x"})
    assert response.status_code == 201
    assert response.accepted_renderer.media_type == "application/json"


def test_what_a_view_speaks_may_depend_on_the_action(ann):
    class Choosy(views.OrderViewSet):
        def get_renderers(self):
            return super().get_renderers() if self.action and self.request else []

    assert running(ann, Choosy, "list")[1].status_code == 200


def test_a_namespace_is_a_version(ann):
    class Versioned(viewsets.ViewSet):
        permission_classes = [permissions.IsAuthenticated]
        versioning_class = versioning.NamespaceVersioning

        def list(self, request):
            return Response(request.version)

    _, response = running(ann, Versioned, "list", namespace="v2")
    assert response.data == "v2"


@override_settings(DATA_UPLOAD_MAX_MEMORY_SIZE=10)
def test_a_body_is_bounded_as_for_rest_clients(ann):
    with pytest.raises(ToolError, match="larger than this project takes"):
        running(ann, views.OrderViewSet, "create", {"number": "x" * 20})


def test_a_cancelled_call_is_not_swallowed_by_the_view(ann):
    from mcp_django.exceptions import Cancelled

    class Slow(viewsets.ViewSet):
        permission_classes = [permissions.IsAuthenticated]

        @action(detail=False)
        def wait(self, request):
            request.mcp.progress(1)
            return Response()

    request = request_of(ann)
    request.mcp.cancelled = True
    with pytest.raises(Cancelled):
        run(request, route_of(Slow, "wait"), {}, QueryDict(""), None)


# What goes before a deletion


def test_what_may_be_done_to_a_row_is_known_before_it_is_done(ann):
    mine = make_order(ann, "A1")
    theirs, hidden = (make_order(make_user(name), number) for name, number in (("b", "B1"), ("c", "hidden1")))
    route = route_of(views.OrderViewSet, "destroy", basename="order")
    check_object(request_of(ann), route, {"pk": str(mine.pk)}, throttled=True)
    with pytest.raises(ToolError, match=r"Permission denied\. Only its owner may write it\."):
        check_object(request_of(ann), route, {"pk": str(theirs.pk)}, throttled=True)
    for pk in (hidden.pk, 10**6):
        with pytest.raises(NotFound):
            check_object(request_of(ann), route, {"pk": str(pk)}, throttled=True)
    assert Order.objects.count() == 3


def test_throttles_count_when_they_are_asked(ann):
    route = route_of(views.ClockViewSet, "destroy", basename="clock")
    for _ in range(4):
        check_object(request_of(ann), route, {"pk": "1"}, throttled=False)
    for _ in range(2):
        check_object(request_of(ann), route, {"pk": "1"}, throttled=True)
    with pytest.raises(ToolError, match="Too many calls"):
        check_object(request_of(ann), route, {"pk": "1"}, throttled=True)


def test_a_row_is_shown_as_the_view_shows_it(ann):
    order = make_order(ann, "A1")
    route = route_of(views.OrderViewSet, "retrieve", basename="order")
    shown = show_object(request_of(ann), route, {"pk": str(order.pk)})
    assert shown == rest(ann, "get", f"orders/{order.pk}/").json()
    assert "secret" not in str(shown)
    assert show_object(request_of(ann), route, {"pk": "999999"}) is None


def test_who_may_not_look_is_shown_nothing(ann):
    order = make_order(ann, "A1")

    class Blind(views.OrderViewSet):
        def get_permissions(self):
            return [permissions.IsAdminUser()] if self.action == "retrieve" else super().get_permissions()

    route = route_of(Blind, "retrieve", basename="order")
    assert show_object(request_of(ann), route, {"pk": str(order.pk)}) is None
