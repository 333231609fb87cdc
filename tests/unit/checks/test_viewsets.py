import pytest
from django.contrib.auth.models import User
from rest_framework import serializers, viewsets

from mcp_django import MCPSite
from mcp_django.checks import viewsets as checks
from mcp_django.checks.settings import DEPLOYMENT_CHECKS
from tests.restapp.models import Order

pytestmark = pytest.mark.django_db
LISTED = ["id", "username"]


def serializer(model=User, declared=None, **options):
    meta = type("Meta", (), {"model": model, **options})
    return type("Made", (serializers.ModelSerializer,), {"Meta": meta, **(declared or {})})


def viewset(serializer_class, model=User, **members):
    values = {"queryset": model.objects.all(), "serializer_class": serializer_class, **members}
    return type("PeopleViewSet", (viewsets.ModelViewSet,), values)


@pytest.fixture
def warned(monkeypatch):
    """Return the warnings about a registered ViewSet."""

    def warnings(given):
        site = MCPSite("people")
        site.register_viewset("people", given)
        monkeypatch.setattr(checks, "all_sites", lambda: [site])
        return [message for run in DEPLOYMENT_CHECKS for message in run() if message.id == "mcp_django.W053"]

    return warnings


@pytest.mark.parametrize("options", [{"fields": "__all__"}, {"exclude": ["email"]}])
def test_fields_that_nobody_named_are_told(warned, options):
    [message] = warned(viewset(serializer(**options)))
    assert message.msg == (
        "PeopleViewSet has fields that hold secrets or give rights, and that no Meta.fields names: "
        "password, is_superuser, is_staff, groups, user_permissions."
    )


def test_named_and_declared_fields_are_not_told(warned):
    assert warned(viewset(serializer(fields=[*LISTED, "password", "is_staff"]))) == []
    rights = ["is_superuser", "is_staff", "groups", "user_permissions"]
    assert warned(viewset(serializer(exclude=["password", *rights]))) == []
    declared = {"password": serializers.CharField(write_only=True)}
    [message] = warned(viewset(serializer(declared=declared, fields="__all__")))
    assert "password" not in message.msg


def test_fields_of_related_rows_are_told(warned):
    [message] = warned(viewset(serializer(Order, fields="__all__", depth=1), Order))
    assert "owner.password, owner.is_superuser" in message.msg
    [message] = warned(viewset(serializer(Order, fields="__all__"), Order))
    assert message.msg.endswith(" names: secret.")


def test_fields_of_a_nested_serializer_are_told(warned):
    inner = serializer(fields="__all__")(many=True)
    [message] = warned(viewset(serializer(declared={"people": inner}, fields=[*LISTED, "people"])))
    assert "people.password" in message.msg
    assert ": people.password, people.is_superuser" in message.msg


def test_serializers_of_single_actions_count_and_those_that_fail_do_not(warned):
    def by_action(self):
        return serializer(fields="__all__") if self.action == "create" else serializer(fields=LISTED)

    def by_user(self):
        return serializer(fields="__all__" if self.request.user.is_staff else LISTED)

    assert warned(viewset(None, get_serializer_class=by_action))
    assert warned(viewset(None, get_serializer_class=by_user)) == []
    assert warned(viewset(serializer(fields="__all__"), get_serializer_class=by_user))
    assert warned(viewset(serializer(fields=["missing"]))) == []
    assert warned(viewset(serializers.Serializer)) == []


def test_a_serializer_within_itself_ends(warned):
    class Endless(serializers.ModelSerializer):
        class Meta:
            model = User
            fields = LISTED

        def get_fields(self):
            return {**super().get_fields(), "next": Endless()}

    assert warned(viewset(Endless)) == []
