"""The difference of a write in one line, as people and models read it."""

from datetime import UTC, datetime

import pytest

from mcp_django import ModelExposure
from mcp_django.differences.difference import Difference
from mcp_django.models import Change
from mcp_django.tools.write_tools import CreateRecord, DeleteRecord, UpdateRecord, WriteRecords
from tests.factories import make_author, make_book, make_superuser
from tests.inlineapp.models import Invoice, Line, Order, Product, Shipment
from tests.testapp.models import AudioBook, Author, Book, Loan, Note, Profile, Section, Shelf, Tag
from tests.tool_calls import call, request_of, site_with

pytestmark = pytest.mark.django_db

CREATE, UPDATE, DELETE, WRITE = CreateRecord(), UpdateRecord(), DeleteRecord(), WriteRecords()
DUE = datetime(2030, 1, 1, tzinfo=UTC)


@pytest.fixture
def request_():
    """A caller who sees all rows of two small apps."""
    ada, bob = make_author("Ada Evans"), make_author("Bob Ibarra")
    red, _ = Tag.objects.create(name="red"), Tag.objects.create(name="blue")
    dune = make_book("Dune", author=ada, isbn="A1", price="5.00", pages=412, status="published")
    emma = make_book("Emma", author=bob, isbn="A2", price="7.50", pages=474)
    make_book("Ulysses", author=bob, isbn="A3", price="9.00", pages=732)
    dune.tags.add(red)
    for name in ("Ann", "Ben", "Cleo"):
        Loan.objects.create(book=dune, borrower=name, due=DUE)
    Loan.objects.create(book=emma, borrower="Dan", due=DUE)
    shelf = Shelf.objects.create(code="A/1")
    shelf.placement_set.create(book=dune, position=1)
    root = Section.objects.create(name="Root")
    Section.objects.create(name="Leaf", parent=root)
    Note.objects.create(target=dune, text="Worn")
    order, other = (
        Order.objects.create(number="SO-1", customer="Ada"),
        Order.objects.create(number="SO-2", customer="Bob"),
    )
    lamp, desk = Product.objects.create(name="Lamp"), Product.objects.create(name="Desk")
    Line.objects.create(order=order, product=lamp, quantity=2)
    Line.objects.create(order=order, product=desk, quantity=1)
    Shipment.objects.create(code="S1", order=order)
    Shipment.objects.create(code="S2", order=other, returned_for=order)
    Invoice.objects.create(order=order, text="Paid")
    site = site_with(
        Author, AudioBook, Loan, Tag, Shelf, Section, Note, Profile, Order, Product, Shipment, Invoice, Line
    )
    site.register(Book, ModelExposure, fields=[field.name for field in (*Book._meta.fields, *Book._meta.many_to_many)])
    return request_of(make_superuser(), site)


def pk(model, **where):
    return model.objects.get(**where).pk


def book(**where):
    return {"model": "testapp.book", "pk": pk(Book, **where)}


CASES = {
    "no difference": lambda: (UPDATE, {**book(isbn="A1"), "values": {}}),
    "book Dune: price 5.00 -> 6.00": lambda: (UPDATE, {**book(isbn="A1"), "values": {"price": "6"}}),
    "book Dune: price 5.00 -> 6.00, pages 412 -> 3": lambda: (
        UPDATE,
        {**book(isbn="A1"), "values": {"price": "6", "pages": 3}},
    ),
    "book Dune: author Ada Evans -> Bob Ibarra": lambda: (
        UPDATE,
        {**book(isbn="A1"), "values": {"author": pk(Author, name="Bob Ibarra")}},
    ),
    "book Dune: title Dune -> Dune Messiah": lambda: (UPDATE, {**book(isbn="A1"), "values": {"title": "Dune Messiah"}}),
    "book Dune: published nothing -> 1965-08-01": lambda: (
        UPDATE,
        {**book(isbn="A1"), "values": {"published": "1965-08-01"}},
    ),
    "book Dune: active true -> false": lambda: (UPDATE, {**book(isbn="A1"), "values": {"active": False}}),
    'book Dune: data {} -> “{"a": [1, 2]}”': lambda: (UPDATE, {**book(isbn="A1"), "values": {"data": {"a": [1, 2]}}}),
    "book Dune: tags red -> red, blue": lambda: (
        UPDATE,
        {**book(isbn="A1"), "values": {"tags": [pk(Tag, name="red"), pk(Tag, name="blue")]}},
    ),
    "book Dune: tags red -> nothing": lambda: (UPDATE, {**book(isbn="A1"), "values": {"tags": []}}),
    "book Dune: title Dune -> xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx…": lambda: (
        UPDATE,
        {**book(isbn="A1"), "values": {"title": "x" * 150}},
    ),
    "book Dune: isbn A1 -> 9, price 5.00 -> 1.00, status published -> draft, pages 412 -> 2, 2 more columns": lambda: (
        UPDATE,
        {
            **book(isbn="A1"),
            "values": {"price": 1, "pages": 2, "rating": 3, "active": False, "status": "draft", "isbn": "9"},
        },
    ),
    "book Dune: price 5.00 -> 10.00": lambda: (UPDATE, {**book(isbn="A1"), "values": {"price": {"field": "price*2"}}}),
    "3 books: status -> withdrawn": lambda: (
        UPDATE,
        {"model": "testapp.book", "filters": {"price__gt": 1}, "values": {"status": "withdrawn"}},
    ),
    "2 books: author Bob Ibarra -> Ada Evans": lambda: (
        UPDATE,
        {
            "model": "testapp.book",
            "filters": {"author": pk(Author, name="Bob Ibarra")},
            "values": {"author": pk(Author, name="Ada Evans")},
        },
    ),
    "3 books: price": lambda: (
        UPDATE,
        {
            "model": "testapp.book",
            "filters": {"price__gt": 1},
            "values": {"price": {"field": "price*1.1", "round": "0.1"}},
        },
    ),
    "3 books: price -> 1.00, pages -> 1": lambda: (
        UPDATE,
        {"model": "testapp.book", "filters": {"price__gt": 1}, "values": {"pages": 1, "price": "1"}},
    ),
    "2 books: price": lambda: (
        UPDATE,
        {"model": "testapp.book", "by": "isbn", "rows": [{"isbn": "A1", "price": 1}, {"isbn": "A2", "price": 2}]},
    ),
    "2 tags added": lambda: (
        UPDATE,
        {"model": "testapp.tag", "by": "name", "create_missing": True, "rows": [{"name": "green"}, {"name": "grey"}]},
    ),
    "tag green added": lambda: (CREATE, {"model": "testapp.tag", "values": {"name": "green"}}),
    "author Cleo added": lambda: (CREATE, {"model": "testapp.author", "values": {"name": "Cleo"}}),
    "book New added": lambda: (
        CREATE,
        {
            "model": "testapp.book",
            "values": {"title": "New", "isbn": "1", "price": 1, "author": pk(Author, name="Ada Evans")},
        },
    ),
    "tag red deleted": lambda: (DELETE, {"model": "testapp.tag", "pk": pk(Tag, name="red")}),
    "book Dune deleted; 3 loans deleted; 1 other row": lambda: (
        DELETE,
        {"model": "testapp.book", "pk": pk(Book, isbn="A1")},
    ),
    "book Ulysses deleted": lambda: (DELETE, {"model": "testapp.book", "pk": pk(Book, isbn="A3")}),
    "3 books deleted; 4 loans deleted; 1 other row": lambda: (
        DELETE,
        {"model": "testapp.book", "filters": {"price__gt": 1}},
    ),
    "2 sections deleted": lambda: (DELETE, {"model": "testapp.section", "pk": str(pk(Section, name="Root"))}),
    "loan Ann, until 2030-01-01 deleted": lambda: (DELETE, {"model": "testapp.loan", "filters": {"borrower": "Ann"}}),
    "order SO-1: customer Ada -> Cleo": lambda: (
        UPDATE,
        {"model": "inlineapp.order", "pk": pk(Order, number="SO-1"), "values": {"customer": "Cleo"}},
    ),
    (
        "order SO-1 deleted; 2 lines deleted; shipment S1 deleted; shipment S2: returned_for SO-1 -> nothing; "
        "invoice Paid deleted"
    ): lambda: (
        DELETE,
        {"model": "inlineapp.order", "pk": pk(Order, number="SO-1")},
    ),
    "shipment S1 deleted": lambda: (DELETE, {"model": "inlineapp.shipment", "pk": "S1"}),
    "shipment S2: returned_for SO-1 -> nothing": lambda: (
        UPDATE,
        {"model": "inlineapp.shipment", "pk": "S2", "values": {"returned_for": None}},
    ),
    "2 books: author Bob Ibarra -> Ada Evans; author Bob Ibarra deleted": lambda: (
        WRITE,
        {
            "writes": [
                {
                    "op": "update",
                    "model": "testapp.book",
                    "filters": {"author": pk(Author, name="Bob Ibarra")},
                    "values": {"author": pk(Author, name="Ada Evans")},
                },
                {"op": "delete", "model": "testapp.author", "pk": pk(Author, name="Bob Ibarra")},
            ]
        },
    ),
    "author Cleo added; book Dune: author Ada Evans -> Cleo": lambda: (
        WRITE,
        {
            "writes": [
                {"op": "create", "model": "testapp.author", "ref": "new", "values": {"name": "Cleo"}},
                {
                    "op": "update",
                    "model": "testapp.book",
                    "pk": pk(Book, isbn="A1"),
                    "values": {"author": {"ref": "new"}},
                },
            ]
        },
    ),
    "tag blue deleted; 2 tags added": lambda: (
        WRITE,
        {
            "writes": [
                {"op": "create", "model": "testapp.tag", "values": {"name": "green"}},
                {"op": "create", "model": "testapp.tag", "values": {"name": "grey"}},
                {"op": "delete", "model": "testapp.tag", "pk": pk(Tag, name="blue")},
            ]
        },
    ),
    "2 books: price, pages; loan Ann, until 2030-01-01: borrower Ann -> Anna; section Leaf deleted": lambda: (
        WRITE,
        {
            "writes": [
                {"op": "update", "model": "testapp.book", "pk": pk(Book, isbn="A1"), "values": {"price": 1}},
                {"op": "update", "model": "testapp.book", "pk": pk(Book, isbn="A2"), "values": {"pages": 1}},
                {
                    "op": "update",
                    "model": "testapp.loan",
                    "filters": {"borrower": "Ann"},
                    "values": {"borrower": "Anna"},
                },
                {"op": "delete", "model": "testapp.section", "pk": str(pk(Section, name="Leaf"))},
            ]
        },
    ),
    "book Dune: title Dune -> “a b; 5 books deleted”": lambda: (
        UPDATE,
        {**book(isbn="A1"), "values": {"title": "a\nb; 5 books deleted"}},
    ),
    "book Dune: reading_time nothing -> “1 day, 2:00:00”": lambda: (
        UPDATE,
        {**book(isbn="A1"), "values": {"reading_time": "P1DT2H"}},
    ),
    "book Dune: rating nothing -> 4.5": lambda: (UPDATE, {**book(isbn="A1"), "values": {"rating": 4.5}}),
    "book Dune: price 5.00 -> 6.50": lambda: (
        UPDATE,
        {"model": "testapp.book", "filters": {"isbn": "A1"}, "values": {"price": "6.5"}},
    ),
    "section Leaf: parent Root -> nothing": lambda: (
        UPDATE,
        {"model": "testapp.section", "pk": str(pk(Section, name="Leaf")), "values": {"parent": None}},
    ),
}


@pytest.mark.parametrize("sentence", CASES)
def test_the_sentence_says_what_a_write_does(request_, sentence):
    tool, arguments = CASES[sentence]()
    shown = call(tool, request_, dry_run=True, **arguments)
    assert shown["summary"] == sentence
    assert len(sentence) <= Difference.MAX_SENTENCE


def test_a_row_that_leaves_the_caller_s_sight_is_not_deleted(request_, monkeypatch):
    exposure = request_.mcp.site.exposures[Book]
    monkeypatch.setattr(type(exposure), "get_queryset", lambda self, request: self.model.objects.exclude(pages=1))
    shown = call(UPDATE, request_, dry_run=True, **book(isbn="A1"), values={"pages": 1, "title": "Gone"})
    assert shown["summary"] == "book Dune: no longer visible to you"
    assert shown["counts"] == {"testapp.book": {"changed": 1}}
    [row] = shown["changed"]["testapp.book"]
    # Nothing is told of the row as it would be then, which the caller could not read.
    assert row == {"pk": pk(Book, isbn="A1"), "label": "Dune", "columns": {}, "note": "no longer visible to you"}


def test_a_write_after_which_the_caller_sees_nothing_is_summed_up_without_columns(request_, monkeypatch):
    exposure = request_.mcp.site.exposures[Book]
    monkeypatch.setattr(type(exposure), "get_queryset", lambda self, request: self.model.objects.exclude(pages=1))
    number = call(UPDATE, request_, **book(isbn="A1"), values={"pages": 1})["change"]
    assert Change.objects.get(pk=number).summary == f"book {pk(Book, isbn='A1')} changed"


def test_one_row_of_rows_is_summed_up_as_one(request_):
    rows = [{"isbn": "A1", "price": "6.00"}]
    number = call(UPDATE, request_, model="testapp.book", by=["isbn"], rows=rows)["change"]
    assert Change.objects.get(pk=number).summary == "1 row of testapp.book: price"
