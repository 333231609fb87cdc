"""Primary keys, among the rows that a caller may view."""

import uuid

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from mcp_django import site as default_site
from mcp_django.orm.access import access_of
from mcp_django.orm.completed_values import ModelValues
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.library import reader, site_with
from tests.testapp.models import AudioBook, Author, Book, Profile, Section, Shelf, Tag

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]


@pytest.fixture
def root():
    return reader(make_superuser(), default_site)


def keys(request, model, text):
    found = ModelValues(access_of(request)[request.mcp.site.exposures[model]]).keys(text)
    return list(found.values)


def pks(*rows):
    return [str(row.pk) for row in rows]


def test_without_a_text_rows_come_in_the_order_of_the_exposure(root):
    second, first = make_author("B"), make_author("A")
    assert keys(root, Author, "") == pks(first, second)
    assert keys(root, Author, "  ") == pks(first, second)


def test_the_key_itself_comes_first_then_keys_that_begin_so_then_labels_then_the_rest(root):
    rest = make_author("Of 12 months", pk=5)
    label = make_author("12 Monkeys", pk=7)
    longer, exact, longest = (make_author("Somebody", pk=pk) for pk in (125, 12, 12000000000))
    make_author("Nobody", pk=512)
    assert keys(root, Author, "12") == pks(exact, longer, longest, label, rest)


@pytest.mark.parametrize("text", ["012", "+12", "1 2", "１２", "9" * 20, str(2**63 - 1), "-12", "1e1"])
def test_what_is_no_beginning_of_a_key_finds_no_key(root, text):
    make_author("Somebody", pk=12)
    assert keys(root, Author, text) == []


def test_the_search_of_the_exposure_finds_rows_by_its_own_fields(root):
    book = make_book("Rocannon", author=make_author("Ursula"))
    make_book("Other")
    assert keys(root, Book, "ursula") == pks(book)
    assert keys(root, Book, "rocan") == pks(book)


def test_without_a_search_the_label_finds_rows():
    request = reader(make_superuser(), site_with(Tag))
    inner, first, _ = (Tag.objects.create(name=name) for name in ("dark green", "green", "red"))
    assert keys(request, Tag, "GREEN") == pks(first, inner)


def test_without_a_search_and_a_plain_label_only_keys_do():
    request = reader(make_superuser(), site_with(Profile))
    profile = Profile.objects.create(author=make_author("Ursula"))
    assert keys(request, Profile, "Profile") == []
    assert keys(request, Profile, str(profile.pk)) == pks(profile)


def test_keys_are_spelt_as_in_uris_but_not_encoded(root):
    for code in ("A/1 ?", "A/10", "b", "50 %"):
        Shelf.objects.create(code=code)
    assert keys(root, Shelf, "A/1") == ["A/1 ?", "A/10"]
    assert keys(root, Shelf, "50 %") == ["50 %"]


@pytest.mark.skipif(connection.vendor == "mysql", reason="MySQL takes keys that differ in case for equal")
def test_a_key_in_the_very_letters_comes_before_one_in_others(root):
    for code in ("A/1", "A/10", "a/1"):
        Shelf.objects.create(code=code)
    assert keys(root, Shelf, "a/1")[0] == "a/1"


# Also of a random UUID and of a time, which MariaDB sorts by their last digits.
@pytest.mark.parametrize(
    "key", ["6f" + "0a" * 15, "6f0a1b2c3d4e4f5a8b6c7d8e9fa0b1c2", "6f0a1b2c3d4e1f5a8b6c7d8e9fa0b1c2"]
)
@pytest.mark.parametrize("digits", [1, 7, 8, 9, 13, 14, 19, 24, 35, 36])
def test_a_uuid_is_completed_from_its_first_digits(root, digits, key):
    section = Section.objects.create(pk=uuid.UUID(key), name="Here")
    for other in ("70" + "0a" * 15, "10112233445546678899aabbccddeeff", "f0112233445516678899000000000000"):
        Section.objects.create(pk=uuid.UUID(other), name="There")
    text = str(section.pk)[:digits]
    assert keys(root, Section, text) == keys(root, Section, text.upper().replace("-", "")) == pks(section)


def test_the_key_of_a_child_table_is_completed(root):
    heard = AudioBook.objects.create(pk=120, title="Heard", author=make_author(), isbn="x", price=5, narrator="N")
    assert keys(root, AudioBook, "12") == pks(heard)


@pytest.mark.parametrize("text", ["a\0b", "x" * 201, " ".join("abcdefghijklmnop"), "'; --", "%", "_", "\\"])
def test_an_odd_text_finds_nothing_and_fails_nothing(root, text):
    make_author("Somebody")
    assert keys(root, Author, text) == []


def test_135_only_rows_that_the_caller_may_view_are_given():
    user = make_user("viewer", "testapp.view_book")
    own, free = make_book("Mine", owner=user), make_book("Mine too")
    hidden = make_book("Mine not", pk=424242, owner=make_user("other"))
    request = reader(user, default_site)
    assert sorted(keys(request, Book, "Mine")) == sorted(pks(own, free))
    assert keys(request, Book, str(hidden.pk)) == []
    found = ModelValues(access_of(request)[default_site.exposures[Book]]).keys("")
    assert found.to_wire()["total"] == 2


def test_135_no_more_than_100_and_no_count_of_the_others(root):
    Author.objects.bulk_create(Author(name=f"Author {index:03}") for index in range(150))
    with CaptureQueriesContext(connection) as queries:
        found = ModelValues(access_of(root)[default_site.exposures[Author]]).keys("Author").to_wire()
    assert len(found["values"]) == 100
    assert found["hasMore"] is True
    assert "total" not in found
    statements = [query["sql"] for query in queries]
    assert all("LIMIT 101" in sql and "COUNT(" not in sql for sql in statements)


@pytest.mark.parametrize("number", [0, 3, 150])
@pytest.mark.parametrize(("text", "most"), [("", 1), ("1", 3), ("Author", 3)])
def test_135_the_number_of_queries_does_not_depend_on_that_of_rows(root, number, text, most):
    Author.objects.bulk_create(Author(name=f"Author {index:03}") for index in range(number))
    ModelValues(access_of(root)[default_site.exposures[Author]]).keys("")
    with CaptureQueriesContext(connection) as queries:
        ModelValues(access_of(root)[default_site.exposures[Author]]).keys(text)
    assert len(queries) <= most


def test_128_no_other_column_than_the_key_is_read(root):
    make_author("Ursula")
    with CaptureQueriesContext(connection) as queries:
        keys(root, Author, "Urs")
    assert queries
    quote = connection.ops.quote_name
    for query in queries:
        read = query["sql"].partition(" FROM ")[0]
        assert f"{quote('testapp_author')}.{quote('id')}" in read
        assert "," not in read
