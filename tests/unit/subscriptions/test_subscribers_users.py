import pytest
from django.contrib.auth.models import AnonymousUser, Group, Permission, User

from mcp_django.orm import pagination
from mcp_django.subscriptions.subscribers import identity, reload
from tests.factories import make_superuser, make_user

pytestmark = pytest.mark.django_db


class Elsewhere:
    """A user of some other system."""

    def __init__(self, pk):
        self.pk = pk


class Failing:
    """A backend that a project might have."""

    def get_all_permissions(self, user, obj=None):
        raise ZeroDivisionError


class Generous:
    """A backend that gives everybody something."""

    def get_all_permissions(self, user, obj=None):
        return {"testapp.view_tag"}

    def has_perm(self, user, permission, obj=None):
        return permission in self.get_all_permissions(user)


def digest(user):
    return reload([user])[identity(user)].digest


def member(name="member"):
    user = make_user(name, "testapp.view_book")
    group, _ = Group.objects.get_or_create(name="editors")
    group.permissions.set(Permission.objects.filter(codename__in=["view_tag", "view_book"]))
    user.groups.add(group)
    return user


def test_users_are_told_apart_by_class_and_key():
    first, second = make_user("a"), make_user("b")
    assert identity(first) == identity(User.objects.get(pk=first.pk)) != identity(second)
    assert identity(AnonymousUser()) == identity(AnonymousUser())
    assert identity(Elsewhere(1)) == identity(Elsewhere(1)) != identity(first)
    assert identity(Elsewhere(None)) != identity(Elsewhere(None))


def test_fresh_users_have_djangos_permissions_and_ask_for_none(django_assert_num_queries):
    users = [member(), make_user("stranger"), make_superuser()]
    fresh = [person.user for person in reload(users).values()]
    with django_assert_num_queries(0):
        found = [(user.has_perm("testapp.view_tag"), user.has_perm("testapp.view_book")) for user in fresh]
    assert found == [(True, True), (False, False), (True, True)]
    expected = User.objects.get(pk=users[0].pk).get_all_permissions()
    assert fresh[0].get_all_permissions() == expected == {"testapp.view_tag", "testapp.view_book"}


def test_many_users_take_a_few_queries(django_assert_num_queries, monkeypatch):
    users = [member(f"user{number}") for number in range(10)]
    with django_assert_num_queries(4):
        assert len(reload([*users, *users])) == 10
    monkeypatch.setattr(pagination, "CHUNK", 5)
    with django_assert_num_queries(8):
        assert len(reload(users)) == 10


def test_a_user_is_as_the_database_has_it():
    user = make_user("old")
    User.objects.filter(pk=user.pk).update(is_active=False)
    found = reload([user])[identity(user)]
    assert not found.is_active
    assert found.user is not user
    gone = User(pk=999)
    assert reload([gone]) == {identity(gone): None}


def test_users_that_are_no_rows_stay_as_they_are(django_assert_num_queries):
    anonymous, other = AnonymousUser(), Elsewhere(1)
    with django_assert_num_queries(0):
        found = reload([anonymous, other])
    assert {person.user for person in found.values()} == {anonymous, other}
    assert all(person.is_active for person in found.values())


def test_the_digest_changes_with_permissions_groups_and_the_row_alone():
    user, group = member(), Group.objects.get()
    steps = [
        lambda: group.permissions.clear(),
        lambda: user.user_permissions.clear(),
        lambda: user.groups.clear(),
        lambda: User.objects.update(is_staff=False),
        lambda: User.objects.update(is_active=False),
    ]
    digests = [digest(user)]
    for step in steps:
        step()
        digests.append(digest(user))
    assert len(set(digests)) == len(steps) + 1
    User.objects.update(last_login="2024-01-01T00:00:00Z")
    assert digest(user) == digests[-1]


def test_other_backends_are_asked_for_each_user(settings):
    user = member()
    before = digest(user)
    settings.AUTHENTICATION_BACKENDS = [f"{__name__}.Generous"]
    fresh = reload([user])[identity(user)]
    assert fresh.user.has_perm("testapp.view_tag")
    assert not fresh.user.has_perm("testapp.view_book")
    assert fresh.digest != before


def test_211_a_backend_that_fails_is_logged_and_gives_nothing(settings, caplog):
    user = member()
    settings.AUTHENTICATION_BACKENDS = [f"{__name__}.Failing"]
    assert reload([user])[identity(user)].digest
    assert "cannot be read" in caplog.text
