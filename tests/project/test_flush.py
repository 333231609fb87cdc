"""After a test that commits the databases are as they were before it, whichever way they become so."""

import pytest
from django.contrib.auth.models import Group, Permission
from django.contrib.contenttypes.models import ContentType
from django.test import TransactionTestCase

from tests.factories import make_superuser

pytestmark = pytest.mark.django_db(transaction=True)


def empty() -> None:
    TransactionTestCase("run")._fixture_teardown()


def test_rows_are_gone_and_permissions_are_those_that_were_there() -> None:
    before = list(Permission.objects.order_by("pk").values_list())
    Group.objects.create(name="staff").permissions.set(Permission.objects.all())
    user = make_superuser()
    user.groups.set(Group.objects.all())
    empty()
    assert not Group.objects.exists()
    assert not type(user).objects.exists()
    assert not Group.permissions.through.objects.exists()
    assert list(Permission.objects.order_by("pk").values_list()) == before != []


def test_permissions_that_a_test_takes_away_adds_or_renames_are_mended() -> None:
    before = sorted(Permission.objects.values_list("content_type__app_label", "codename", "name"))
    Permission.objects.filter(codename__startswith="view_").delete()
    Permission.objects.update(name="renamed")
    Permission.objects.create(codename="new", name="New", content_type=ContentType.objects.first())
    empty()
    assert sorted(Permission.objects.values_list("content_type__app_label", "codename", "name")) == before
