import sys
from uuid import UUID

import orjson
import pytest
from django.contrib.auth.models import Group, Permission, User
from django.db import connection
from django.test.utils import CaptureQueriesContext, override_settings

from mcp_django.orm.permission_queries import FOUND, known_permissions, load_permissions, permission_columns
from tests.factories import make_superuser, make_user

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]


def fresh(user):
    return User.objects.get(pk=user.pk)


def make_member():
    user = make_user("member", "testapp.view_book", "testapp.add_tag")
    group = Group.objects.create(name="editors")
    group.permissions.set(Permission.objects.filter(codename__in=["view_book", "change_book", "delete_tag"]))
    readers = Group.objects.create(name="readers")
    readers.permissions.set(Permission.objects.filter(codename__in=["view_book", "view_tag"]))
    user.groups.add(group, readers)
    other = Group.objects.create(name="others")
    other.permissions.set(Permission.objects.filter(codename="delete_book"))
    return user


def test_the_answer_is_that_of_djangos_own_backend():
    member, stranger = make_member(), make_user("stranger")
    for user in (member, stranger):
        loaded = fresh(user)
        load_permissions(loaded)
        assert loaded.get_all_permissions() == fresh(user).get_all_permissions()


def test_a_key_that_the_driver_does_not_take_is_given_as_its_field_stores_it(monkeypatch):
    user = fresh(make_member())
    expected = fresh(user).get_all_permissions()
    monkeypatch.setattr(User._meta.pk, "get_db_prep_value", lambda value, *args, **kwargs: value.int)
    user.pk = UUID(int=user.pk)
    load_permissions(user)
    assert user.get_all_permissions() == expected


def test_one_query_and_none_afterwards(django_assert_num_queries):
    user = fresh(make_member())
    with django_assert_num_queries(1):
        load_permissions(user)
    with django_assert_num_queries(0):
        assert user.has_perm("testapp.change_book")
        assert not user.has_perm("testapp.delete_book")
        load_permissions(user)


def test_the_query_begins_with_what_the_user_has():
    with CaptureQueriesContext(connection) as captured:
        load_permissions(fresh(make_member()))
    sql = captured[-1]["sql"]
    quote = connection.ops.quote_name
    tables = [sql.index(f"FROM {quote(name)}") for name in ("auth_user_user_permissions", "auth_group_permissions")]
    assert tables == sorted(tables)
    assert quote("auth_group") not in sql


def test_a_superuser_has_every_permission_without_a_query(django_assert_num_queries):
    root = make_superuser()
    with django_assert_num_queries(0):
        load_permissions(root)
        known = known_permissions(root)
        assert "testapp.delete_book" in known
        assert not known.isdisjoint({"nowhere.at_all"})
        assert root.has_perm("nowhere.at_all")


def test_nothing_is_known_of_a_user_who_is_not_active(django_assert_num_queries):
    root, gone = make_superuser(), make_member()
    load_permissions(root)
    root.is_active = gone.is_active = False
    with django_assert_num_queries(0):
        load_permissions(gone)
    assert known_permissions(root) is known_permissions(gone) is None
    assert not gone.has_perm("testapp.view_book")
    assert not root.has_perm("testapp.view_book")


@pytest.mark.parametrize("make", [make_superuser, make_member])
def test_nothing_is_known_of_a_user_who_answers_by_a_method_of_its_own(make):
    user = make()
    load_permissions(user)
    user.has_perm = lambda name: False
    assert known_permissions(user) is None


def test_other_backends_are_asked_as_always(settings, django_assert_num_queries):
    settings.AUTHENTICATION_BACKENDS = ["django.contrib.auth.backends.AllowAllUsersModelBackend"]
    user = fresh(make_member())
    with django_assert_num_queries(0):
        load_permissions(user)
    assert user.has_perm("testapp.change_book")


def test_a_permission_that_is_taken_away_is_gone_with_the_next_request():
    user = make_member()
    loaded = fresh(user)
    load_permissions(loaded)
    user.groups.clear()
    again = fresh(user)
    load_permissions(again)
    assert loaded.has_perm("testapp.change_book")
    assert not again.has_perm("testapp.change_book")


class Elsewhere:
    """Reads users from another database than their tokens."""

    def db_for_read(self, model, **hints):
        return "elsewhere" if model is User else None


def test_a_query_in_another_database_than_the_users_does_not_read_their_permissions():
    # MariaDB cuts texts that are made of many rows, so permissions are read there by a query of their own.
    assert bool(permission_columns("default", "user_id")) is (connection.vendor != "mysql")
    with override_settings(DATABASE_ROUTERS=[Elsewhere()]):
        assert permission_columns("default", "user_id") == []


def test_more_permissions_run_no_more_python_code():
    """What a token's query has read is taken as it is, however much it is."""
    made = []
    # The first one also fills caches.
    for number in (2, 3, 1_000):
        user = fresh(make_user(f"reader {number}"))
        setattr(user, FOUND, ["[]", orjson.dumps([f"app.view_{name}" for name in range(number)]).decode()])
        calls = 0

        def count(frame, event, argument):
            nonlocal calls
            calls += event == "call"

        sys.setprofile(count)
        try:
            load_permissions(user)
        finally:
            sys.setprofile(None)
        assert user.has_perm(f"app.view_{number - 1}")
        made.append(calls)
    assert made[1] == made[2]
