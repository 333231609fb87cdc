"""Beginnings of values, as the database finds them."""

import uuid

import pytest
from django.db import connection, models
from hypothesis import given
from hypothesis import strategies as st

from mcp_django.orm.completed_values import _digits, beginning
from tests.factories import make_author
from tests.testapp.models import Author, Book, Section, Shelf

KEY = Author._meta.pk


def holds(condition, number):
    """Tell what a condition of ranges says of a number."""
    if isinstance(condition, models.Q):
        verdicts = [holds(child, number) for child in condition.children]
        return any(verdicts) if condition.connector == models.Q.OR else all(verdicts)
    path, bound = condition
    lookup = path.rpartition("__")[2]
    return {"gte": number >= bound, "lte": number <= bound}.get(lookup, number == bound)


@given(st.integers(1, 2**63 - 1), st.integers(0, 2**63 - 1))
def test_ranges_hold_the_numbers_that_begin_with_the_digits_and_no_others(start, number):
    condition = _digits("id", start, len(str(start)))
    assert holds(condition, number) is str(number).startswith(str(start))


@given(st.integers(1, 10**6), st.integers(0, 10**12 - 1))
def test_longer_numbers_are_found_by_their_first_digits(start, more):
    assert holds(_digits("id", start, len(str(start))), int(f"{start}{more}"))


@pytest.mark.parametrize("text", ["", "0", "01", "-1", "+1", "1.0", "1e1", "a", "１", "9" * 20])
def test_what_no_integer_begins_with_is_no_beginning(text):
    assert beginning("id", KEY, text, "default") is None


@pytest.mark.parametrize("text", ["", "-", "g", "0" * 33])
def test_what_no_uuid_begins_with_is_no_beginning(text):
    assert beginning("id", Section._meta.pk, text, "default") is None


@pytest.mark.parametrize("name", ["price", "published", "created", "active", "rating", "opens"])
def test_other_types_have_no_beginnings(name):
    assert beginning(name, Book._meta.get_field(name), "1", "default") is None


@pytest.mark.django_db
@pytest.mark.parametrize("text", ["1", "12", "9", "922337203685477580", str(2**63 - 1)])
def test_the_database_finds_them(text):
    keys = [1, 12, 129, 2, 9, 99, 2**31, 2**63 - 1]
    for key in keys:
        make_author(f"Author {key}", pk=key)
    found = Author.objects.filter(beginning("id", KEY, text, "default")).values_list("pk", flat=True)
    assert sorted(found) == sorted(key for key in keys if str(key).startswith(text))


@pytest.mark.django_db
def test_the_database_finds_uuids_and_texts():
    for digit in "08f":
        Section.objects.create(pk=uuid.UUID(digit * 32), name=digit)
        Shelf.objects.create(code=f"{digit}%_")
    for digit in "08f":
        assert Section.objects.get(beginning("id", Section._meta.pk, digit * 9, "default")).name == digit
        assert Shelf.objects.get(beginning("code", Shelf._meta.pk, f"{digit}%", "default")).code == f"{digit}%_"
    assert not Shelf.objects.filter(beginning("code", Shelf._meta.pk, "_", "default")).exists()


def test_a_uuid_that_mariadb_sorts_otherwise_is_found_by_its_text(monkeypatch):
    monkeypatch.setattr("mcp_django.orm.completed_values.sorts_uuids_by_digits", lambda using: False)
    for text, start in {
        "6": "6",
        "6F0A1B2C": "6f0a1b2c",
        "6f0a1b2c3": "6f0a1b2c-3",
        "6f0a1b2c-3": "6f0a1b2c-3",
    }.items():
        assert beginning("id", Section._meta.pk, text, "default") == models.Q(id__istartswith=start)
    whole = str(uuid.uuid4())
    assert beginning("id", Section._meta.pk, whole, "default") == models.Q(id__istartswith=whole)


@pytest.mark.django_db
@pytest.mark.skipif(connection.vendor != "postgresql", reason="plans of PostgreSQL")
def test_keys_are_found_by_an_index():
    Author.objects.bulk_create(Author(name=f"Author {index}") for index in range(20_000))
    with connection.cursor() as cursor:
        cursor.execute("ANALYZE testapp_author")
    plan = Author.objects.filter(beginning("id", KEY, "12", "default")).order_by("pk")[:101].explain()
    assert "Index" in plan
    assert "Seq Scan" not in plan
