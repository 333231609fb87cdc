"""Views as Django runs them for REST clients, and what they say before."""

import json

import pytest
from django.contrib.auth.models import AnonymousUser, User
from django.db import connection, transaction
from django.http import QueryDict
from django.test import override_settings
from rest_framework import VERSION, permissions, versioning, viewsets
from rest_framework.decorators import action
from rest_framework.request import Request
from rest_framework.response import Response

from mcp_django import ToolError
from mcp_django.exceptions import NotFound
from mcp_django.rest.parameters import Undecided
from mcp_django.rest.requests import Unknown, check_object, is_permitted, probe, rest_request, run, show_object
from tests.factories import make_superuser, make_user
from tests.restapp import views
from tests.restapp.calls import make_order, rest, route_of
from tests.restapp.models import Order
from tests.sqlite_file import noting_transactions
from tests.tool_calls import request_of

pytestmark = [pytest.mark.postgresql, pytest.mark.urls("tests.restapp.urls")]


def made(user=None, action="create", **options):
    request = request_of(user or User(pk=1))
    request.META |= {
        "HTTP_COOKIE": "sessionid=1",
        "HTTP_MCP_SESSION_ID": "s",
        "HTTP_MCP_PROTOCOL_VERSION": "x",
        "HTTP_IF_MATCH": "x",
        "HTTP_ORIGIN": "https://evil.example",
        "HTTP_ACCEPT": "text/event-stream",
        "HTTP_ACCEPT_LANGUAGE": "de",
        "REMOTE_ADDR": "192.0.2.1",
        "CONTENT_LENGTH": "999",
        "QUERY_STRING": "token=1",
    }
    request.COOKIES = {"sessionid": "1"}
    request.tenant = "north"
    return rest_request(request, route_of(views.OrderViewSet, action), {}, **options)


def test_row_186_authority_and_the_transports_headers_are_left_behind():
    request = made(path="/api/orders/")
    text = json.dumps({name: str(value) for name, value in request.META.items()})
    for secret in ("secret", "sessionid", "evil", "event-stream", "token", "HTTP_MCP", "HTTP_IF"):
        assert secret not in text
    assert request.COOKIES == {}
    assert not [name for name in request.headers if name in ("Authorization", "Cookie")]


def test_what_a_view_may_ask_of_a_request_is_there():
    request = made(path="/api/orders/", query=QueryDict("page=2"), body={"number": "ä\ud800"})
    assert (request.method, request.path, request.path_info) == ("POST", "/api/orders/", "/api/orders/")
    assert request.META["REMOTE_ADDR"] == "192.0.2.1"
    assert request.META["HTTP_ACCEPT_LANGUAGE"] == "de"
    assert request.tenant == "north"
    assert request.GET["page"] == "2"
    assert json.loads(request.body) == {"number": "ä\ud800"}
    assert request.content_type == "application/json"
    assert request.resolver_match.url_name == "thing-list"
    request.session["a"] = 1
    request.session.save()
    assert request.mcp is not None


def test_the_user_is_signed_in_already():
    user = User(pk=7)

    class Never:
        def authenticate(self, request):
            raise AssertionError

    request = Request(made(user), authenticators=[Never()])
    assert request.user is user
    assert request.auth is None


def test_a_request_without_a_body_has_none():
    request = made(action="list")
    assert (request.method, request.body, request.META["CONTENT_LENGTH"]) == ("GET", b"", "0")
    assert "CONTENT_TYPE" not in request.META


def test_its_own_address_names_the_caller_and_no_other_does():
    first, second = (made(User(pk=pk), path="/api/orders/") for pk in (1, 2))
    assert first.build_absolute_uri() != second.build_absolute_uri()
    assert first.build_absolute_uri().startswith("http://testserver/api/orders/#")
    assert first.build_absolute_uri("/x") == second.build_absolute_uri("/x") == "http://testserver/x"


class Asking(permissions.BasePermission):
    """Runs a function of the request and the view."""

    def __init__(self, ask):
        self.ask = ask

    def __call__(self):
        return self

    def has_permission(self, request, view):
        return self.ask(request, view)


def asking(ask, prefix="things"):
    class Asked(viewsets.ViewSet):
        permission_classes = [Asking(ask)]

        def create(self, request, **kwargs):
            return Response()

    return route_of(Asked, "create", prefix=prefix)


NESTED = r"a/(?P<a_pk>\d+)/things"


@pytest.mark.django_db
@pytest.mark.parametrize(
    ("ask", "listed"),
    [
        (lambda request, view: True, True),
        (lambda request, view: False, False),
        (lambda request, view: view.action == "create" and request.method == "POST", True),
        (lambda request, view: view.kwargs["a_pk"] == "1", True),
        (lambda request, view: view.kwargs.get("a_pk") == "1", True),
        (lambda request, view: "a_pk" in view.kwargs, True),
        (lambda request, view: bool(view.kwargs), True),
        (lambda request, view: list(view.kwargs) == [], True),
        (lambda request, view: request.data["number"] == 1, True),
        (lambda request, view: request.data.get("number") == 1, True),
        (lambda request, view: request.user.is_superuser and view.kwargs["a_pk"], False),
        (lambda request, view: 1 / 0, False),
    ],
)
def test_what_needs_no_parameters_decides_what_is_listed(ask, listed):
    assert is_permitted(request_of(make_user("ann")), asking(ask, NESTED)) is listed


@pytest.mark.django_db
def test_row_211_a_permission_that_fails_admits_nobody(caplog):
    def fail(request, view):
        raise RuntimeError("broken")

    assert is_permitted(request_of(make_superuser()), asking(fail)) is False
    assert "create_things" in caplog.text


@pytest.mark.django_db
def test_a_url_without_parameters_has_none():
    route = asking(lambda request, view: view.kwargs == {})
    assert is_permitted(request_of(make_user("ann")), route) is True


@pytest.mark.django_db
def test_model_permissions_of_rest_framework_decide():
    class Guarded(views.ClientViewSet, viewsets.ModelViewSet):
        permission_classes = [permissions.DjangoModelPermissions]

    user = make_user("ann", "restapp.add_client", staff=False)
    allowed = {name: is_permitted(request_of(user), route_of(Guarded, name)) for name in ("list", "create", "destroy")}
    assert allowed == {"list": True, "create": True, "destroy": False}


@pytest.mark.django_db
def test_nobody_is_somebody():
    route = route_of(views.OrderViewSet, "list")
    assert is_permitted(request_of(AnonymousUser()), route) is False
    assert is_permitted(request_of(make_user("ann")), route) is True


@pytest.mark.django_db
def test_the_view_is_ready_to_be_asked():
    view = probe(request_of(make_user("ann")), route_of(views.OrderViewSet, "partial_update"))
    assert view.action == "partial_update"
    assert view.get_serializer_class().__name__ == "StaffSerializer"
    assert view.get_serializer_context()["view"] is view
    assert view.request.version is None


def test_values_that_are_not_there_cannot_be_read():
    values = Unknown(known=1)
    assert (values["known"], values.get("known"), "known" in values) == (1, 1, True)
    for read in (
        lambda: values["other"],
        lambda: values.get("other"),
        lambda: "other" in values,
        lambda: list(values),
        lambda: len(values),
        lambda: dict(**values),
        values.items,
        values.copy,
    ):
        with pytest.raises(Undecided):
            read()


@pytest.fixture
def ann(db):
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


@pytest.mark.skipif(connection.vendor != "sqlite", reason="only SQLite has one writer at a time")
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("name", "expected"), [("mark_paid", "BEGIN IMMEDIATE"), ("retrieve", "BEGIN")])
def test_a_view_that_writes_has_its_turn_before_it_reads(ann, name, expected):
    order = make_order(ann, "A1")
    connection.settings_dict["ATOMIC_REQUESTS"] = True
    try:
        with noting_transactions() as begun:
            running(ann, views.OrderViewSet, name, pk=str(order.pk))
    finally:
        connection.settings_dict["ATOMIC_REQUESTS"] = False
    assert begun == [expected]


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


@pytest.mark.skipif(VERSION.startswith(("3.16", "3.17")), reason="this release of REST framework bounds no JSON")
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
