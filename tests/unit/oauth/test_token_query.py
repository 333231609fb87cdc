from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection
from django.utils import timezone
from oauth2_provider.models import AccessToken, Application

from mcp_django.oauth import token_query
from mcp_django.orm import permission_queries
from tests.unit.orm.test_permission_queries import make_member

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]
# How many queries ask for permissions that did not come with the token.
LATER = 0 if connection.vendor in permission_queries.AS_ONE else 1


def test_the_query_is_compiled_once_for_a_database(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []
    original = token_query._compile
    token_query._forget()

    def compiled(using: str) -> Any:
        calls.append(using)
        return original(using)

    monkeypatch.setattr(token_query, "_compile", compiled)
    assert token_query.find_token("0" * 64) is None
    assert token_query.find_token("1" * 64) is None
    assert calls == ["default"]


def test_a_changed_setting_drops_the_plan(settings: Any) -> None:
    token_query.find_token("0" * 64)
    assert token_query._plans
    settings.TIME_ZONE = "Europe/Paris"
    assert not token_query._plans


def test_values_go_through_djangos_converters() -> None:
    user = get_user_model().objects.create_user("ada")
    row = AccessToken.objects.create(
        user=user, token="x", scope="a b", expires=timezone.now(), resource=["https://a/", "https://b/"]
    )
    row.refresh_from_db()
    found = token_query.find_token(row.token_checksum)
    assert found == token_query.TokenRow(user, row.expires, "a b", ["https://a/", "https://b/"], "")
    assert found.user.date_joined == user.date_joined  # type: ignore[union-attr]


def user_of_a_token(owner: Any) -> Any:
    """The user as a call finds them."""
    token = AccessToken.objects.create(user=owner, token="x", scope="a", expires=timezone.now())
    found = token_query.find_token(token.token_checksum)
    assert found is not None
    return found.user


def test_the_permissions_come_with_the_token(django_assert_num_queries: Any) -> None:
    user = user_of_a_token(make_member())
    with django_assert_num_queries(LATER):
        permission_queries.load_permissions(user)
        assert user.has_perm("testapp.change_book")
        assert not user.has_perm("testapp.delete_book")
    assert user._perm_cache == get_user_model().objects.get(pk=user.pk).get_all_permissions()


def test_a_user_without_permissions_has_none(django_assert_num_queries: Any) -> None:
    user = user_of_a_token(get_user_model().objects.create_user("ada"))
    with django_assert_num_queries(LATER):
        permission_queries.load_permissions(user)
        assert not user.has_perm("testapp.view_book")


def test_where_the_database_makes_no_json_of_many_rows_they_are_asked_for(
    django_assert_num_queries: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(permission_queries, "AS_ONE", {})
    monkeypatch.setattr(token_query, "_plans", {})
    user = user_of_a_token(make_member())
    with django_assert_num_queries(1):
        permission_queries.load_permissions(user)
        assert user.has_perm("testapp.change_book")


def test_other_backends_are_asked_as_always(settings: Any) -> None:
    settings.AUTHENTICATION_BACKENDS = ["django.contrib.auth.backends.AllowAllUsersModelBackend"]
    user = user_of_a_token(make_member())
    permission_queries.load_permissions(user)
    assert not hasattr(user, "_perm_cache")
    assert user.has_perm("testapp.change_book")


@pytest.mark.parametrize(
    "changes",
    [
        {"OAUTH2_VALIDATOR_CLASS": "tests.unit.oauth.test_bearer.OwnValidator"},
        {"RESOURCE_SERVER_INTROSPECTION_URL": "https://as.example/"},
        {"RESOURCE_SERVER_TOKEN_RESOURCE_VALIDATOR": "tests.unit.oauth.test_token_query.allow_everything"},
    ],
)
def test_a_project_with_rules_of_its_own_gets_them(settings: Any, changes: dict[str, str]) -> None:
    assert token_query.plannable()
    settings.OAUTH2_PROVIDER = settings.OAUTH2_PROVIDER | changes
    assert not token_query.plannable()


def test_a_client_model_that_can_be_switched_off_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Application, "is_usable", lambda self, request: False)
    token_query._forget()
    assert not token_query.plannable()
    monkeypatch.undo()
    token_query._forget()


def test_the_toolkits_own_validator_is_planned_too(settings: Any) -> None:
    settings.OAUTH2_PROVIDER = settings.OAUTH2_PROVIDER | {
        "OAUTH2_VALIDATOR_CLASS": "oauth2_provider.oauth2_validators.OAuth2Validator"
    }
    assert token_query.plannable()


def allow_everything(uri: str, audiences: list[str]) -> bool:
    return True
