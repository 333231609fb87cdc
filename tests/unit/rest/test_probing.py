import pytest
from django.contrib.auth.models import AnonymousUser
from rest_framework import permissions, viewsets
from rest_framework.response import Response

from mcp_django.rest.probing import Undecided, Unknown, is_permitted, probe
from tests.factories import make_superuser, make_user
from tests.restapp import views
from tests.restapp.calling import route_of
from tests.writing import request_of

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.restapp.urls")]


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


def test_row_211_a_permission_that_fails_admits_nobody(caplog):
    def fail(request, view):
        raise RuntimeError("broken")

    assert is_permitted(request_of(make_superuser()), asking(fail)) is False
    assert "create_things" in caplog.text


def test_a_url_without_parameters_has_none():
    route = asking(lambda request, view: view.kwargs == {})
    assert is_permitted(request_of(make_user("ann")), route) is True


def test_model_permissions_of_rest_framework_decide():
    class Guarded(views.ClientViewSet, viewsets.ModelViewSet):
        permission_classes = [permissions.DjangoModelPermissions]

    user = make_user("ann", "restapp.add_client", staff=False)
    allowed = {name: is_permitted(request_of(user), route_of(Guarded, name)) for name in ("list", "create", "destroy")}
    assert allowed == {"list": True, "create": True, "destroy": False}


def test_nobody_is_somebody():
    route = route_of(views.OrderViewSet, "list")
    assert is_permitted(request_of(AnonymousUser()), route) is False
    assert is_permitted(request_of(make_user("ann")), route) is True


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
