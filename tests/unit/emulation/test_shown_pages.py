"""A version refuses a lost update, and tells nothing of what it was made of."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.db import connection, connections, transaction
from django.test import override_settings
from django.test.utils import CaptureQueriesContext
from rest_framework import serializers

from mcp_django.emulation.record import Record
from mcp_django.emulation.shown_pages import CHANGED
from mcp_django.exceptions import ToolError
from mcp_django.orm.access import access_of
from mcp_django.orm.column_values import pk_text
from mcp_django.orm.row_finder import RowFinder
from mcp_django.orm.row_reading import FoundRow
from mcp_django.tools.get_record import GetRecord
from mcp_django.tools.write_tools import DeleteRecord, UpdateRecord
from tests.factories import make_author, make_book, make_superuser, make_user
from tests.fieldapp.models import Restaurant, Seat
from tests.inlineapp.factories import ORDER, make_order, shop_request
from tests.inlineapp.models import Label, Line, Order, Remark, Shipment
from tests.testapp.models import Author, Book, PublishedBook, Tag
from tests.tool_calls import call, refusal, request_of, site_with

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]
GET, UPDATE, DELETE = GetRecord(), UpdateRecord(), DeleteRecord()


@pytest.fixture
def root() -> Any:
    return shop_request(make_superuser())


def version(request: Any, order: Order, **arguments: Any) -> str:
    found: str = call(GET, request, **ORDER, pk=order.pk, **arguments)["version"]
    return found


def test_H150_an_update_of_a_row_that_has_changed_is_refused_and_nothing_is_written(root: Any) -> None:
    order = make_order("1")
    read = version(root, order)
    Order.objects.update(customer="Bob")
    text = refusal(UPDATE, root, **ORDER, pk=order.pk, values={"number": "2"}, version=read)
    assert text == CHANGED
    assert refusal(DELETE, root, **ORDER, pk=order.pk, version=read) == CHANGED
    assert Order.objects.values_list("number", "customer").get() == ("1", "Bob")
    assert not LogEntry.objects.exists()


def test_each_update_gives_the_version_for_the_next(root: Any) -> None:
    order = make_order("1", 2)
    read = version(root, order)
    assert read == version(root, order) == version(root, order, fields=["number"])
    for number in ("2", "3"):
        updated = call(UPDATE, root, **ORDER, pk=order.pk, values={"number": number}, version=read)
        assert updated["version"] != read
        read = updated["version"]
    assert read == version(root, order)
    token = call(DELETE, root, **ORDER, pk=order.pk, version=read)["confirm_token"]
    assert call(DELETE, root, **ORDER, pk=order.pk, version=read, confirm_token=token)["deleted"] is True


def test_H150_what_changes_between_a_preview_and_its_confirmation_is_noticed(root: Any) -> None:
    order = make_order("1")
    read = version(root, order)
    token = call(DELETE, root, **ORDER, pk=order.pk, version=read)["confirm_token"]
    Order.objects.update(customer="Bob")
    assert refusal(DELETE, root, **ORDER, pk=order.pk, version=read, confirm_token=token) == CHANGED
    assert Order.objects.exists()


def test_without_a_version_the_last_write_wins(root: Any) -> None:
    order = make_order("1")
    Order.objects.update(customer="Bob")
    call(UPDATE, root, **ORDER, pk=order.pk, values={"customer": "Cleo"})
    assert Order.objects.get().customer == "Cleo"


@pytest.mark.parametrize("given", ["nonsense", 5, "é" * 16, ["a"], {"a": 1}, True, "x" * 10_000])
def test_row_85_whatever_is_no_version_is_refused(root: Any, given: Any) -> None:
    order = make_order("1")
    assert refusal(UPDATE, root, **ORDER, pk=order.pk, values={"customer": "Bob"}, version=given) == CHANGED


def test_H150_rows_of_inlines_and_relations_count(root: Any) -> None:
    order = make_order("1", 2)
    other = make_order("2", 2)
    seen = {version(root, order)}
    changes = [
        lambda: Line.objects.filter(order=order).update(quantity=3),
        lambda: Remark.objects.create(target=order, text="x"),
        lambda: Shipment.objects.create(code="S1", order=order),
        lambda: order.labels.add(Label.objects.create(name="red")),
        lambda: order.lines.all().delete(),
    ]
    for change in changes:
        change()
        found = version(root, order)
        assert found not in seen
        seen.add(found)
    read = version(root, order)
    Line.objects.filter(order=other).update(quantity=9)
    assert version(root, order) == read
    book = make_book()
    request = request_of(root.user)
    first = call(GET, request, model="testapp.book", pk=book.pk)["version"]
    book.tags.add(Tag.objects.create(name="new"))
    assert call(GET, request, model="testapp.book", pk=book.pk)["version"] != first


def test_H128_what_the_caller_does_not_see_has_no_part_in_it(root: Any) -> None:
    order = make_order("1", 2)
    read = version(root, order)
    Order.objects.update(api_token="other")
    Line.objects.update(secret_code="other")
    assert version(root, order) == read
    reader = shop_request(make_user("clerk", "inlineapp.view_order"))
    read = version(reader, order)
    Line.objects.update(quantity=9)
    assert version(reader, order) == read


def test_a_version_is_a_keyed_digest_of_one_row(root: Any) -> None:
    order, same = make_order("1"), make_order("2")
    read = version(root, order)
    assert len(read) == 16
    assert read != version(root, same)
    with override_settings(SECRET_KEY="another", SECRET_KEY_FALLBACKS=[]):
        assert version(root, order) != read
    assert refusal(UPDATE, root, **ORDER, pk=same.pk, values={"customer": "x"}, version=read) == CHANGED


def test_a_version_of_an_older_key_is_good_while_the_key_is_a_fallback(root: Any, settings: Any) -> None:
    order = make_order("1")
    read = version(root, order)
    older = settings.SECRET_KEY
    with override_settings(SECRET_KEY="another", SECRET_KEY_FALLBACKS=[older]):
        call(UPDATE, root, **ORDER, pk=order.pk, values={"customer": "x"}, version=read)


def test_every_type_of_value_has_a_version_that_stays(root: Any) -> None:
    request = request_of(root.user)
    book = make_book(blob=b"\0\1", data={"b": [1, {"a": None}]}, rating=1.5, cover="x.png", opens="08:00")
    found = {call(GET, request, model="testapp.book", pk=book.pk)["version"] for _ in range(3)}
    assert len(found) == 1
    Book.objects.update(data={"b": [1, {"a": 0}]})
    assert call(GET, request, model="testapp.book", pk=book.pk)["version"] not in found


@pytest.mark.skipif(not connection.features.has_select_for_update, reason="the database locks no rows")
@pytest.mark.django_db(transaction=True)
def test_H150_of_two_updates_with_one_version_the_second_is_refused() -> None:
    user = make_superuser()
    order = make_order("1")
    read = version(shop_request(user), order)
    together = threading.Barrier(2)

    def update(name: str) -> str:
        try:
            together.wait(20)
            call(UPDATE, shop_request(user), **ORDER, pk=order.pk, values={"customer": name}, version=read)
        except ToolError as error:
            return error.message
        finally:
            connections.close_all()
        return name

    with ThreadPoolExecutor(2) as pool:
        answers = list(pool.map(update, ["Bob", "Cleo"]))
    assert CHANGED in answers
    assert [answer for answer in answers if answer != CHANGED] == [Order.objects.get().customer]
    assert LogEntry.objects.count() == 1


@pytest.mark.skipif(connection.vendor != "mysql", reason="plain reads are no older than those that lock")
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize("routers", [[], [object()]], ids=["one query", "several"])
@pytest.mark.parametrize("isolation", ["read committed", "repeatable read"])
def test_a_change_since_the_transaction_has_begun_is_seen(
    routers: list[Any], isolation: str, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(connection.settings_dict["OPTIONS"], "isolation_level", isolation)
    connection.close()
    request, order = shop_request(make_superuser()), make_order("1")
    read = version(request, order)
    settings.DATABASE_ROUTERS = routers

    def change() -> None:
        Order.objects.update(customer="Bob")
        connection.close()

    with transaction.atomic():
        assert Order.objects.get().customer != "Bob"
        with ThreadPoolExecutor(1) as pool:
            pool.submit(change).result(20)
        assert refusal(UPDATE, request, **ORDER, pk=order.pk, values={"customer": "Cleo"}, version=read) == CHANGED
        if isolation != "read committed":
            # A bulk write shows what a plain read sees.
            told = refusal(UPDATE, request, **ORDER, pks=[order.pk], values={"customer": "Cleo"})
            assert told.startswith("Someone else was changing these rows.")
    connection.close()


@pytest.mark.skipif(not connection.features.has_select_for_update, reason="the database locks no rows")
@pytest.mark.django_db(transaction=True)
def test_H150_of_two_deletions_one_succeeds_and_one_finds_nothing() -> None:
    user = make_superuser()
    order = make_order("1")
    tokens = [call(DELETE, shop_request(user), **ORDER, pk=order.pk)["confirm_token"] for _ in range(2)]
    together = threading.Barrier(2)

    def delete(token: str) -> str:
        try:
            together.wait(20)
            call(DELETE, shop_request(user), **ORDER, pk=order.pk, confirm_token=token)
        except ToolError as error:
            return error.message
        finally:
            connections.close_all()
        return "deleted"

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(delete, tokens)) == sorted([RowFinder.NOT_FOUND, "deleted"])
    assert LogEntry.objects.count() == 1


def test_a_record_makes_no_query_for_its_version_where_it_has_no_inlines(
    root: Any, django_assert_num_queries: Any
) -> None:
    request = request_of(root.user)
    book = make_book()
    book.tags.add(Tag.objects.create(name="new"))
    call(GET, request, model="testapp.book", pk=book.pk)
    with CaptureQueriesContext(connection) as queries:
        shown = call(GET, request, model="testapp.book", pk=book.pk)
    with django_assert_num_queries(len(queries)):
        row = FoundRow.find(access_of(request)[request.mcp.site.exposures[Book]], book.pk)
        Record(access_of(request)[request.mcp.site.exposures[Book]], row.row, row.labels).payload()
    only_title = call(GET, request, model="testapp.book", pk=book.pk, fields=["title"])
    assert only_title["version"] == shown["version"]


def test_H126_child_tables_proxies_and_composite_keys_have_versions_too() -> None:
    request = request_of(make_superuser(), site_with(Seat, Restaurant, PublishedBook))
    book = make_book(status="published")
    rows = [
        (Seat.objects.create(hall="A/1", number=2), {"note": "window"}),
        (Restaurant.objects.create(name="Chez", cuisine="new"), {"cuisine": "old"}),
        (PublishedBook.published_books.get(pk=book.pk), {"pages": 7}),
    ]
    for row, values in rows:
        named = {"model": row._meta.label_lower, "pk": pk_text(row.pk)}
        read = call(GET, request, **named)["version"]
        updated = call(UPDATE, request, **named, values=values, version=read)
        assert updated["version"] == call(GET, request, **named)["version"] != read
        assert refusal(UPDATE, request, **named, values=values, version=read) == CHANGED


class MaskingSerializer(serializers.ModelSerializer):
    email = serializers.SerializerMethodField()
    name = serializers.SerializerMethodField()

    class Meta:
        model = Author
        fields = ("id", "name", "email", "born")

    def get_email(self, author: Author) -> str:
        return "masked"

    def get_name(self, author: Author) -> str:
        return author.name.upper()


def test_what_a_serializer_masks_has_no_part_in_the_version_and_what_it_shows_has() -> None:
    request = request_of(make_superuser(), site_with(Author, serializer_class=MaskingSerializer))
    author = make_author("Ann", email="a@example.org")

    def read() -> str:
        return str(call(GET, request, model="testapp.author", pk=author.pk)["version"])

    first = read()
    Author.objects.update(email="b@example.org", secret_token="x")
    assert read() == first
    Author.objects.update(name="Bob")
    assert read() != first
