"""Models of users and of what people sign in with are closed wherever they live, and rights are given by name alone."""

from typing import Any

import pytest
from django.conf import settings
from django.contrib import admin
from django.contrib.admin import ModelAdmin
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.base_user import AbstractBaseUser
from django.contrib.auth.models import AbstractUser, Group, Permission, PermissionsMixin, User
from django.db import models
from django.test.utils import isolate_apps, override_settings
from django.urls import path
from oauth2_provider.models import AbstractApplication

from mcp_django import AdminExposure, MCPSite, ModelExposure
from mcp_django.checks.declarations import _check_fields
from mcp_django.schema.secrets import gives_rights, is_account, is_user
from mcp_django.testing import MCPClient
from tests.factories import make_superuser
from tests.testapp.models import Author

pages = admin.AdminSite(name="of accounts")
pages.register(User, UserAdmin)
pages.register(Group)
pages.register(Author)
as_admin = MCPSite("as admin", admin_site=pages, history=False)
as_admin.register(User)
as_admin.register(Group, AdminExposure)
closed = MCPSite("closed", admin_site=pages, history=False)
declared = MCPSite("declared", admin_site=None, history=False)
declared.register(User, ModelExposure, fields="__all__")
named = MCPSite("named", admin_site=pages, history=False)
named.register(User, AdminExposure, fields=["username", "is_staff"])
SITES = {"as-admin": as_admin, "closed": closed, "declared": declared, "named": named}
urlpatterns = [path(name, site.urls) for name, site in SITES.items()]


def text(**options: Any) -> Any:
    return models.CharField(max_length=200, **options)


def to(model: type[models.Model]) -> Any:
    return models.ForeignKey(model, models.CASCADE, related_name="+")


def of_user() -> Any:
    return to(User)


def made(name: str, /, *bases: type, **fields: Any) -> type[models.Model]:
    options = {"app_label": "testapp"}
    if any(base._meta.abstract is False for base in bases):
        options["proxy"] = not fields
    meta = type("Meta", (), options)
    return type(name, (*bases, *(() if bases else (models.Model,))), {"Meta": meta, "__module__": __name__, **fields})


ACCOUNTS = {
    "a user like Django's": lambda: made("Person", AbstractUser, groups=None, user_permissions=None),
    "a user that is a password and a name": lambda: made("Member", AbstractBaseUser, name=text()),
    "a model with permissions": lambda: made("Robot", PermissionsMixin, groups=None, user_permissions=None),
    "another face of the users": lambda: made("Colleague", User),
    "a child of the users": lambda: made("Employee", User, desk=text()),
    "another face of the groups": lambda: made("Team", Group),
    "who is in which group": lambda: User.groups.through,
    "which permission somebody has": lambda: made("Grant", user=of_user(), right=to(Permission)),
    "an address to sign in with": lambda: made(
        "Address", user=of_user(), mail=models.EmailField(), verified=models.BooleanField()
    ),
    "an address and when it was confirmed": lambda: made(
        "Mailbox", user=of_user(), mail=models.EmailField(), confirmed=models.DateTimeField(null=True)
    ),
    "an account elsewhere": lambda: made("Login", user=of_user(), provider=text(), uid=text()),
    "a passkey": lambda: made("Passkey", user=of_user(), credential=text()),
    "a token": lambda: made("ApiToken", user=of_user(), key=text()),
    "a device": lambda: made("BackupOTPDevice", user=of_user(), key=text()),
    "an application of its own": lambda: made("Client", AbstractApplication, user=of_user()),
}
OTHERS = {
    "a reader of news": lambda: made("Subscriber", mail=models.EmailField(), verified=models.BooleanField()),
    "what is told of a user": lambda: made("Profile2", user=of_user(), bio=text(), mail=models.EmailField()),
    "what belongs to a group": lambda: made("Paper", group=to(Group), title=text()),
    "what a provider sends": lambda: made("Parcel", user=of_user(), provider=text(), weight=models.IntegerField()),
    "an invitation to a party": lambda: made("Invitation", user=of_user(), place=text()),
    "a type of tokens": lambda: made("TokenType", name=text()),
    "a model with a key of some service": lambda: made("Shop", name=text(), api_key=text()),
}


@pytest.mark.parametrize("kind", ACCOUNTS)
def test_models_of_accounts_are_closed_wherever_they_live(kind: str) -> None:
    with isolate_apps("tests.testapp"):
        model = ACCOUNTS[kind]()
        assert is_account(model)
        gate = admin.AdminSite(name="gate")
        if not model._meta.auto_created:
            gate.register(model, ModelAdmin)
        assert not MCPSite("gate", admin_site=gate, history=False).exposures
        assert not MCPSite("gate", admin_site=gate).may_show(model)
        # Who registers it means it.
        site = MCPSite("meant", admin_site=gate, history=False)
        site.register(model, ModelExposure, fields=["pk"])
        assert list(site.exposures) == [model]


@pytest.mark.parametrize("kind", OTHERS)
def test_what_only_resembles_them_is_open(kind: str) -> None:
    with isolate_apps("tests.testapp"):
        model = OTHERS[kind]()
        gate = admin.AdminSite(name="gate")
        gate.register(model, ModelAdmin)
        assert list(MCPSite("gate", admin_site=gate, history=False).exposures) == [model]


def test_the_user_model_is_closed_whatever_it_is_made_of() -> None:
    assert not is_account(Author)
    with override_settings(AUTH_USER_MODEL="testapp.Author"):
        assert is_account(Author)
        assert is_user(Author)
        assert gives_rights("groups", Author)


def test_every_relation_of_users_to_groups_and_permissions_gives_rights() -> None:
    with isolate_apps("tests.testapp"):
        teams = models.ManyToManyField(Group, related_name="+")
        person = made("Person", AbstractBaseUser, name=text(), teams=teams, is_admin=models.BooleanField())
        assert [field.name for field in person._meta.get_fields() if gives_rights(field.name, person)] == [
            "password",
            "is_admin",
            "teams",
        ]
    rights = {field.name for field in User._meta.get_fields() if gives_rights(field.name, User)}
    assert rights == {"password", "is_superuser", "is_staff", "groups", "user_permissions"}
    assert gives_rights("permissions", Group)
    assert not gives_rights("groups", Author)


RIGHTS = {"is_superuser": True, "is_staff": True, "groups": [], "user_permissions": [], "password": "x"}


@pytest.mark.urls(__name__)
@pytest.mark.django_db
@pytest.mark.parametrize("name", ["as-admin", "declared"])
@pytest.mark.parametrize("field", [*RIGHTS, "password1"])
def test_an_exposed_user_gets_no_rights_by_fields_that_no_exposure_names(name: str, field: str) -> None:
    client, user = MCPClient(make_superuser(), path=f"/{name}"), User.objects.create_user("plain")
    before = User.objects.filter(pk=user.pk).values().get()
    values = {field: RIGHTS.get(field, "Sesame-123")}
    told = client.call("update_record", model="auth.user", pk=user.pk, values=values)
    assert told.is_error
    made = client.call("create_record", model="auth.user", values={"username": "new", **values})
    assert made.is_error
    assert User.objects.filter(pk=user.pk).values().get() == before
    assert not user.groups.exists()
    shown = client.call("get_record", model="auth.user", pk=user.pk).structured
    assert field not in shown["fields"]
    assert client.call("query_records", model="auth.user", filters={field: True}).is_error
    # All else is written as in the admin.
    saved = client.call("update_record", model="auth.user", pk=user.pk, values={"first_name": "Ada"})
    assert not saved.is_error, saved.text
    assert User.objects.filter(pk=user.pk).values().get() == {**before, "first_name": "Ada"}


@pytest.mark.urls(__name__)
@pytest.mark.django_db
def test_an_exposed_group_gives_no_permissions() -> None:
    client, group = MCPClient(make_superuser(), path="/as-admin"), Group.objects.create(name="readers")
    some = Permission.objects.first()
    assert some is not None
    told = client.call("update_record", model="auth.group", pk=group.pk, values={"permissions": [some.pk]})
    assert told.is_error
    assert not group.permissions.exists()


@pytest.mark.urls(__name__)
@pytest.mark.django_db
def test_a_right_that_an_exposure_names_is_written_and_a_check_says_so() -> None:
    client, user = MCPClient(make_superuser(), path="/named"), User.objects.create_user("plain")
    done = client.call("update_record", model="auth.user", pk=user.pk, values={"is_staff": True})
    assert not done.is_error, done.text
    user.refresh_from_db()
    assert user.is_staff
    refused = client.call("update_record", model="auth.user", pk=user.pk, values={"is_superuser": True})
    assert refused.is_error
    found = [message for message in _check_fields(named.exposures[User]) if message.id == "mcp_django.W052"]
    assert ["'is_staff'" in message.msg for message in found] == [True]


@pytest.mark.urls(__name__)
@pytest.mark.django_db
def test_the_users_of_this_project_are_closed() -> None:
    client = MCPClient(make_superuser(), path="/closed")
    assert settings.AUTH_USER_MODEL == "auth.User"
    told = client.call("update_record", model="auth.user", pk=1, values={"is_superuser": True})
    assert told.is_error
    assert "auth." not in client.call("list_models").text
