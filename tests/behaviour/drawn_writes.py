"""Writes that are drawn: an endpoint with hooks of all kinds, rows to write, and calls of the tools that write.

A write that is drawn may be refused, as a caller's may be.
"""

import itertools
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from functools import partial
from typing import Any
from uuid import UUID

from django.contrib import admin
from django.contrib.contenttypes.admin import GenericTabularInline
from django.core.mail import send_mail
from django.db import transaction
from django.db.models.signals import post_save
from django.urls import include, path

from mcp_django import MCPSite, ModelExposure
from tests.fieldapp import models as fields
from tests.inlineapp import models as shop
from tests.inlineapp.admin import LabelInline, LineInline, RemarkInline, ShipmentInline
from tests.oddapp import models as odd
from tests.testapp import models as library

# The hooks


def told() -> None:
    """Run after the commit."""


class AuthorAdmin(admin.ModelAdmin):
    """Changes the same row by an UPDATE, sends a mail, and leaves work for after the commit."""

    class ProfileInline(admin.StackedInline):
        model = library.Profile
        fields = ["biography"]

    inlines = [ProfileInline]

    def save_model(self, request: Any, obj: Any, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        type(obj).objects.filter(pk=obj.pk).update(email=f"a{len(obj.name)}@example.com")
        send_mail("Saved", "text", None, ["a@example.com"])
        transaction.on_commit(told)


class BookAdmin(admin.ModelAdmin):
    """Changes another column on the instance, and rows of another table."""

    readonly_fields = ["uuid", "created"]

    def save_model(self, request: Any, obj: Any, form: Any, change: bool) -> None:
        obj.pages += 1
        super().save_model(request, obj, form, change)

    def save_related(self, request: Any, form: Any, formsets: Any, change: bool) -> None:
        super().save_related(request, form, formsets, change)
        library.Loan.all_objects.filter(book=form.instance.pk).update(borrower="saved")


class OrderAdmin(admin.ModelAdmin):
    class NoteInline(admin.TabularInline):
        model = shop.Note
        extra = 0

    class InvoiceInline(admin.StackedInline):
        model = shop.Invoice

    fields = ["number", "customer", "express"]
    inlines = [LineInline, ShipmentInline, RemarkInline, LabelInline, InvoiceInline, NoteInline]


class GuestAdmin(admin.ModelAdmin):
    """Writes an inline row by itself, and follows up in ``save_related``."""

    class MembershipInline(admin.TabularInline):
        model = fields.Membership
        extra = 0

    class RemarkInline(GenericTabularInline):
        model = fields.Remark
        extra = 0

    inlines = [MembershipInline, RemarkInline]

    def save_related(self, request: Any, form: Any, formsets: Any, change: bool) -> None:
        super().save_related(request, form, formsets, change)
        form.instance.friends.add(*fields.Guest.objects.filter(name="friend"))

    def delete_model(self, request: Any, obj: Any) -> None:
        fields.Club.objects.update(name="left")
        super().delete_model(request, obj)


class TaskAdmin(admin.ModelAdmin):
    fields = ["name", "state", "kind", "rank", "watchers"]


class PageAdmin(admin.ModelAdmin):
    class PartInline(admin.StackedInline):
        model = odd.Part
        fields = ["name"]
        extra = 0

    fields = ["title", "price"]
    inlines = [PartInline]


class SectionAdmin(admin.ModelAdmin):
    """Changes other rows of the same table, which the call may save afterwards."""

    def save_model(self, request: Any, obj: Any, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        if obj.name.endswith(("1", "3", "5")):
            library.Section.objects.filter(parent=obj).update(name=f"under {obj.name}")


class CurrencyAdmin(admin.ModelAdmin):
    """Changes rows of another table, which the call may save or delete afterwards."""

    def save_model(self, request: Any, obj: Any, form: Any, change: bool) -> None:
        super().save_model(request, obj, form, change)
        odd.Bid.objects.filter(currency=obj).update(name=f"in {obj.name}")


def tag_was_saved(sender: Any, instance: Any, **options: Any) -> None:
    """Count in the same row and in a table of another app, as receivers do."""
    library.Tag.objects.filter(pk=instance.pk).update(name=instance.name.lower())
    fields.Term.objects.update_or_create(word="tags", defaults={"meaning": instance.name[:100]})


pages = admin.AdminSite(name="drawn writes")
for model, options in {
    library.Author: AuthorAdmin,
    library.Book: BookAdmin,
    library.AudioBook: BookAdmin,
    shop.Order: OrderAdmin,
    fields.Guest: GuestAdmin,
    odd.Task: TaskAdmin,
    odd.Page: PageAdmin,
    library.Section: SectionAdmin,
    odd.Currency: CurrencyAdmin,
}.items():
    pages.register(model, options)
pages.register([library.Tag, library.Shelf, library.Loan, library.Note, library.Placement])
pages.register([shop.Product, shop.Label, shop.Line, shop.Claim, shop.Shipment])
pages.register([odd.Kind, odd.Bid, fields.Club, fields.Place, fields.Restaurant, fields.Term])
site = MCPSite("drawn", admin_site=pages)
for model in (fields.Seat, fields.Night, fields.Sample, fields.Passport):
    site.register(model, ModelExposure, fields="__all__")
urlpatterns = [path("mcp", site.urls), path("admin/", pages.urls), path("", include("mcp_django.oauth.urls"))]


def connect_receivers() -> Callable[[], Any]:
    """Connect what receives signals; return what disconnects it."""
    post_save.connect(tag_was_saved, sender=library.Tag)
    return partial(post_save.disconnect, tag_was_saved, sender=library.Tag)


# In each database, a trigger that changes another column of the row that is updated.
TRIGGERS: Mapping[str, tuple[list[str], list[str]]] = {
    "sqlite": (
        [
            "CREATE TRIGGER drawn AFTER UPDATE OF name ON fieldapp_place "
            "BEGIN UPDATE fieldapp_place SET rent = rent + 1 WHERE id = NEW.id; END"
        ],
        ["DROP TRIGGER drawn"],
    ),
    "postgresql": (
        [
            "CREATE FUNCTION drawn() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
            "UPDATE fieldapp_place SET rent = rent + 1 WHERE id = NEW.id; RETURN NULL; END $$",
            "CREATE TRIGGER drawn AFTER UPDATE OF name ON fieldapp_place FOR EACH ROW EXECUTE FUNCTION drawn()",
        ],
        ["DROP TRIGGER drawn ON fieldapp_place", "DROP FUNCTION drawn"],
    ),
    # A trigger of MySQL cannot write its own table afterwards.
    "mysql": (
        [
            "CREATE TRIGGER drawn BEFORE UPDATE ON fieldapp_place FOR EACH ROW "
            "SET NEW.rent = IF(BINARY NEW.name <> BINARY OLD.name, NEW.rent + 1, NEW.rent)"
        ],
        ["DROP TRIGGER drawn"],
    ),
}


# The rows


class World:
    """Rows that drawn writes are about."""

    def __init__(self, draw: random.Random) -> None:
        self.draw = draw
        self.numbers = itertools.count(1)
        self._library()
        self._shop()
        self._odd()
        self._fields()

    def fresh(self) -> str:
        """Return a text that no row has."""
        return f"N{next(self.numbers)}"

    def make(self, model: Any, number: int, /, **values: Callable[[], Any]) -> list[Any]:
        """Make rows, each with values of its own."""
        made = [model(**{name: value() for name, value in values.items()}) for _ in range(number)]
        for row in made:
            row.save(force_insert=True)
        return made

    def any_of(self, rows: list[Any]) -> Callable[[], Any]:
        return lambda: self.draw.choice(rows)

    def maybe(self, rows: list[Any]) -> Callable[[], Any]:
        return lambda: self.draw.choice([None, *rows])

    def _library(self) -> None:
        due = datetime(2030, 1, 1, tzinfo=UTC)
        tags = self.make(library.Tag, 3, name=self.fresh)
        authors = self.make(library.Author, 3, name=self.fresh, secret_token=self.fresh)
        library.Profile.objects.create(author=authors[0], biography="long")
        book = {"title": self.fresh, "author": self.any_of(authors), "isbn": self.fresh, "price": lambda: 5}
        books = self.make(library.Book, 3, **book)
        books += [one.book_ptr for one in self.make(library.AudioBook, 2, narrator=self.fresh, **book)]
        for book_ in books:
            book_.tags.set(self.draw.sample(tags, 2))
        loans = {"book": self.any_of(books), "borrower": self.fresh, "due": lambda: due}
        self.make(library.Loan, 3, **loans)
        # The default manager hides it.
        self.make(library.Loan, 1, **loans, deleted=lambda: due)
        shelves = self.make(library.Shelf, 2, code=self.fresh)
        position = itertools.count(100)
        placed = {"shelf": self.any_of(shelves), "book": self.any_of(books)}
        self.make(library.Placement, 3, position=lambda: next(position), **placed)
        sections: list[Any] = []
        for _ in range(4):
            sections += self.make(library.Section, 1, name=self.fresh, parent=self.maybe(sections))
        self.make(library.Note, 2, target=self.any_of([*books, *sections]), text=self.fresh)

    def _shop(self) -> None:
        products = self.make(shop.Product, 4, name=self.fresh)
        labels = self.make(shop.Label, 2, name=self.fresh)
        orders = self.make(shop.Order, 3, number=self.fresh, customer=self.fresh, api_token=self.fresh)
        lines = []
        for order in orders:
            for product in self.draw.sample(products[:3], 2):
                lines += self.make(shop.Line, 1, order=lambda one=order: one, product=lambda one=product: one)
            order.labels.set(self.draw.sample(labels, 1))
        for shipment in self.make(
            shop.Shipment, 3, code=self.fresh, order=self.any_of(orders), returned_for=self.maybe(orders)
        ):
            shipment.lines.set(self.draw.sample(lines, 2))
        self.make(shop.Claim, 1, line=lambda: lines[0], text=self.fresh)
        self.make(shop.Remark, 2, target=self.any_of(orders), text=self.fresh)
        shop.Invoice.objects.create(order=orders[1], text="to pay")
        self.make(shop.Note, 2, order=self.any_of(orders), text=self.fresh)

    def _odd(self) -> None:
        kinds = self.make(odd.Kind, 3, name=self.fresh)
        self.make(odd.Task, 4, name=self.fresh, kind=self.any_of(kinds), parent=self.maybe(kinds))
        number = itertools.count(100)
        code = {"code": lambda: f"C{next(self.numbers) % 100}", "number": lambda: next(number)}
        currencies = self.make(odd.Currency, 3, name=self.fresh, **code)
        self.make(odd.Bid, 4, name=self.fresh, currency=self.any_of(currencies), paid_in=self.maybe(currencies))
        sheets = self.make(odd.Page, 2, title=self.fresh, price=lambda: "3 EUR")
        parts = self.make(odd.Part, 3, page=self.any_of(sheets), name=self.fresh)
        self.make(odd.Detail, 3, part=self.any_of(parts), text=self.fresh)

    def _fields(self) -> None:
        guests: list[Any] = self.make(fields.Guest, 1, name=lambda: "friend")
        for _ in range(3):
            guests += self.make(fields.Guest, 1, name=self.fresh, host=self.maybe(guests))
        guests[1].friends.add(guests[2])
        clubs = self.make(fields.Club, 2, name=self.fresh)
        self.make(fields.Membership, 3, guest=self.any_of(guests), club=self.any_of(clubs))
        fields.Passport.objects.create(guest=guests[0], number="P1")
        self.make(fields.Place, 2, name=self.fresh, rent=lambda: 7)
        self.make(fields.Restaurant, 2, name=self.fresh, rent=lambda: 8, cuisine=self.fresh)
        number = itertools.count(1)
        self.make(fields.Seat, 3, hall=self.fresh, number=lambda: next(number), guest=self.maybe(guests))
        day = itertools.count(738_000)
        self.make(fields.Night, 3, guest=self.any_of(guests), day=lambda: date.fromordinal(next(day)))
        self.make(fields.Remark, 3, target=self.any_of(guests), text=self.fresh)
        self.make(fields.Term, 2, word=self.fresh, meaning=self.fresh)
        self.make(fields.Sample, 2, name=self.fresh, integer=lambda: 4, number=lambda: 0.1)


# The writes


@dataclass(frozen=True)
class DrawnCall:
    """A call of a tool that writes."""

    tool: str
    arguments: Mapping[str, Any]


class Writes:
    """Draws calls that write rows of a world."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.draw = world.draw
        text = world.fresh
        price = self._price
        # What a caller can give, by label and field.
        self.values: dict[str, dict[str, Callable[[], Any]]] = {
            "testapp.author": {"name": text, "born": self._day},
            "testapp.book": {
                **{"title": text, "isbn": text, "price": price, "pages": self._number, "published": self._day},
                **{"rating": lambda: self.draw.choice([None, 0.1, 4.0]), "data": lambda: {"b": 1, "a": [None, 1.5]}},
                **{"author": self._key(library.Author), "tags": self._keys(library.Tag)},
            },
            "testapp.audiobook": {"title": text, "narrator": text, "price": price, "tags": self._keys(library.Tag)},
            "testapp.tag": {"name": text},
            "testapp.shelf": {"code": text},
            "testapp.placement": {"shelf": self._key(library.Shelf), "position": self._number},
            "testapp.section": {"name": text, "parent": self._key(library.Section, empty=True)},
            "testapp.loan": {"borrower": text, "book": self._key(library.Book)},
            "inlineapp.order": {"number": text, "customer": text},
            "inlineapp.product": {"name": text},
            "inlineapp.shipment": {"returned_for": self._key(shop.Order, empty=True), "lines": self._keys(shop.Line)},
            "oddapp.task": {"name": text, "state": lambda: "done", "kind": self._key(odd.Kind), "rank": self._number},
            "oddapp.currency": {"name": text, "number": self._number},
            "oddapp.bid": {"name": text, "currency": self._key(odd.Currency)},
            "oddapp.page": {"title": text, "price": lambda: f"{price()} EUR"},
            "fieldapp.guest": {"name": text, "host": self._key(fields.Guest, empty=True)},
            "fieldapp.club": {"name": text},
            "fieldapp.place": {"name": text},
            "fieldapp.restaurant": {"name": text, "cuisine": text},
            "fieldapp.seat": {"note": text, "guest": self._key(fields.Guest, empty=True)},
            "fieldapp.night": {"price": price},
            "fieldapp.term": {"meaning": text},
            "fieldapp.sample": {
                **{"name": text, "upper": text, "integer": self._number, "decimal": price, "flag": lambda: True},
                **{"number": lambda: 0.1 + self._number(), "point": lambda: "1;2", "data": lambda: [1.0, "ü", None]},
            },
        }
        self.labels = list(self.values)
        self.models: dict[str, Any] = {exposure.label: model for model, exposure in site.exposures.items()}
        # Fields that a new row needs besides.
        self.needed: dict[str, dict[str, Callable[[], Any]]] = {
            "testapp.audiobook": {"isbn": text, "author": self._key(library.Author)},
            "testapp.placement": {"book": self._key(library.Book)},
            "testapp.loan": {"due": lambda: "2031-01-01T00:00:00Z"},
            "inlineapp.shipment": {"code": text, "order": self._key(shop.Order)},
            "oddapp.currency": {"code": lambda: f"X{next(world.numbers) % 100}"},
            "fieldapp.seat": {"hall": text, "number": self._number},
            "fieldapp.night": {"guest": self._key(fields.Guest), "day": self._day},
            "fieldapp.term": {"word": text},
        }
        # Unique fields by which rows are named.
        self.by = {
            **{"testapp.book": ["isbn"], "testapp.tag": ["name"], "testapp.placement": ["shelf", "position"]},
            **{"inlineapp.order": ["number"], "oddapp.currency": ["code"], "oddapp.task": ["name", "kind"]},
        }

    def _number(self) -> int:
        return self.draw.choice([0, 1, 7, 42, 90])

    def _price(self) -> str:
        return self.draw.choice(["0.10", "5.00", "19.99", "1234.50"])

    def _day(self) -> Any:
        return self.draw.choice(["2020-02-29", "2021-03-01", "1999-12-31"])

    def _key(self, model: Any, *, empty: bool = False) -> Callable[[], Any]:
        def drawn() -> Any:
            keys = list(model._base_manager.order_by("pk").values_list("pk", flat=True))
            found = self.draw.choice([None, *keys] if empty else keys)
            return str(found) if isinstance(found, UUID) else found

        return drawn

    def _keys(self, model: Any) -> Callable[[], Any]:
        return lambda: self.draw.sample(list(model._base_manager.order_by("pk").values_list("pk", flat=True)), 2)

    def rows(self, label: str) -> list[Any]:
        """Return the rows that the caller sees."""
        return list(self.models[label]._default_manager.order_by("pk"))

    def pk(self, row: Any) -> Any:
        """Return a key as callers write it."""
        return [str(part) for part in row.pk] if isinstance(row.pk, tuple) else str(row.pk)

    def some_values(self, label: str, number: int = 2) -> dict[str, Any]:
        known = self.values[label]
        return {name: known[name]() for name in self.draw.sample(list(known), min(number, len(known)))}

    def new_values(self, label: str) -> dict[str, Any]:
        known = {**self.values[label], **self.needed.get(label, {})}
        return {name: value() for name, value in known.items()}

    def drawn(self, *kinds: str) -> DrawnCall:
        """Return one call, of one of these kinds if any are given."""
        if kinds:
            return getattr(self, self.draw.choice(kinds))()
        every: list[Callable[[], DrawnCall]] = [
            *(self.create, self.update, self.update, self.inlines, self.inlines, self.named, self.named),
            *(self.alike, self.expressed, self.delete, self.delete, self.delete_many, self.several, self.several),
        ]
        return self.draw.choice(every)()

    def create(self) -> DrawnCall:
        label = self.draw.choice(self.labels)
        return DrawnCall("create_record", {"model": label, "values": self.new_values(label)})

    def update(self) -> DrawnCall:
        label = self.draw.choice(self.labels)
        row = self.draw.choice(self.rows(label))
        return DrawnCall("update_record", {"model": label, "pk": self.pk(row), "values": self.some_values(label)})

    def inlines(self) -> DrawnCall:
        """Add, change and delete rows of inlines."""
        draw, text = self.draw, self.world.fresh
        label = draw.choice(["inlineapp.order", "inlineapp.order", "fieldapp.guest", "testapp.author", "oddapp.page"])
        row = draw.choice(self.rows(label))
        parts: dict[str, tuple[Any, Callable[[], dict[str, Any]], Callable[[], dict[str, Any]]]] = {}
        if label == "inlineapp.order":
            product = self._key(shop.Product)
            parts = {
                "lines": (
                    row.lines,
                    lambda: {"quantity": draw.randrange(1, 30)},
                    lambda: {"product": product(), "quantity": 2},
                ),
                "shipments": (row.shipments, lambda: {"lines": []}, lambda: {"code": text()}),
                "remarks": (row.remarks, lambda: {"text": text()}, lambda: {"text": text()}),
                "note_set": (row.note_set, lambda: {"text": text()}, lambda: {"text": text()}),
            }
        elif label == "fieldapp.guest":
            club = self._key(fields.Club)
            parts = {
                "membership_set": (row.membership_set, lambda: {"since": self._day()}, lambda: {"club": club()}),
                "remarks": (row.remarks, lambda: {"text": text()}, lambda: {"text": text()}),
            }
        elif label == "oddapp.page":
            parts = {"parts": (row.parts, lambda: {"name": text()}, lambda: {"name": text()})}
        else:
            profiles = library.Profile.objects.filter(author=row)
            parts = {"profile": (profiles, lambda: {"biography": text()}, lambda: {"biography": text()})}
        name = draw.choice(list(parts))
        children, changed, new = parts[name]
        given: list[dict[str, Any]] = []
        for child in children.all():
            # A row whose text is its key has none once it is deleted, and Django's history asks for it.
            kind = draw.choice([0, 2] if name == "shipments" else [0, 1, 2])
            if kind:
                given.append({"pk": str(child.pk), **({"delete": True} if kind == 1 else changed())})
        if draw.randrange(2) or not given:
            given.append(new())
        values = {name: given, **(self.some_values(label, 1) if draw.randrange(2) else {})}
        return DrawnCall("update_record", {"model": label, "pk": self.pk(row), "values": values})

    def named(self) -> DrawnCall:
        """Give rows values of their own."""
        label = self.draw.choice([*self.by, *self.labels])
        rows = self.draw.sample(self.rows(label), min(2, len(self.rows(label))))
        by = self.by.get(label) if self.draw.randrange(2) else None
        arguments: dict[str, Any] = {"model": label}
        given: list[dict[str, Any]] = []
        for row in rows:
            values = {name: value for name, value in self.some_values(label, 3).items() if name not in (by or ())}
            key = {"pk": self.pk(row)}
            if by:
                attnames = {name: row._meta.get_field(name).attname for name in by}
                key = {name: getattr(row, attname) for name, attname in attnames.items()}
            if values:
                given.append({**key, **values})
        if by:
            arguments["by"] = by
            if self.draw.randrange(2):
                given.append(self.new_values(label))
                arguments["create_missing"] = True
        return DrawnCall("update_record", {**arguments, "rows": given})

    def picked(self, label: str) -> dict[str, Any]:
        """Pick some rows by their keys or by a filter."""
        rows = self.rows(label)
        chosen = self.draw.sample(rows, min(self.draw.randrange(1, 4), len(rows)))
        if self.draw.randrange(3) or isinstance(rows[0].pk, tuple):
            return {"pks": [self.pk(row) for row in chosen]}
        return {"filters": {"pk__in": [self.pk(row) for row in chosen]}}

    def alike(self) -> DrawnCall:
        label = self.draw.choice(self.labels)
        return DrawnCall("update_record", {"model": label, **self.picked(label), "values": self.some_values(label, 1)})

    def expressed(self) -> DrawnCall:
        """Compute values from the row."""
        label, values = self.draw.choice(
            [
                ("testapp.book", {"price": {"field": "price*1.05", "round": "0.10"}}),
                ("testapp.book", {"pages": {"field": "pages+1"}, "title": "same"}),
                ("fieldapp.sample", {"decimal": {"field": "integer*2"}}),
                ("fieldapp.place", {"rent": {"field": "rent*2"}}),
            ]
        )
        row = self.draw.choice(self.rows(label))
        picked = {"pk": self.pk(row)} if self.draw.randrange(2) else self.picked(label)
        return DrawnCall("update_record", {"model": label, **picked, "values": values})

    def _deletable(self) -> str:
        others = ["inlineapp.claim", "inlineapp.line", "oddapp.kind", "fieldapp.passport", "testapp.note"]
        return self.draw.choice([*self.labels, *others])

    def delete(self) -> DrawnCall:
        label = self._deletable()
        row = self.draw.choice(self.rows(label))
        return DrawnCall("delete_record", {"model": label, "pk": self.pk(row)})

    def delete_many(self) -> DrawnCall:
        label = self._deletable()
        return DrawnCall("delete_record", {"model": label, **self.picked(label)})

    def several(self) -> DrawnCall:
        """Several writes in one call, some of which name the rows of others."""
        steps = []
        for number in range(self.draw.randrange(2, 5)):
            found = self.draw.choice([self.create, self.update, self.inlines, self.named, self.alike, self.delete])()
            op = found.tool.partition("_")[0]
            step = {"op": op, **found.arguments}
            if op == "create":
                step["ref"] = f"r{number}"
                steps += [step, *self._naming(step)]
            else:
                steps.append(step)
        return DrawnCall("write_records", {"writes": steps})

    def _naming(self, step: Mapping[str, Any]) -> list[dict[str, Any]]:
        """Return a write that names the new row of a step."""
        ref = {"ref": step["ref"]}
        uses = {
            "testapp.author": ("testapp.book", "author", ref),
            "testapp.tag": ("testapp.book", "tags", [ref]),
            "testapp.section": ("testapp.section", "parent", ref),
            "testapp.book": ("testapp.loan", "book", ref),
            "fieldapp.guest": ("fieldapp.seat", "guest", ref),
            "oddapp.currency": ("oddapp.bid", "currency", ref),
        }
        if step["model"] not in uses:
            return []
        label, name, value = uses[step["model"]]
        row = self.draw.choice(self.rows(label))
        if self.draw.randrange(2):
            return [{"op": "create", "model": label, "values": {**self.new_values(label), name: value}}]
        return [{"op": "update", "model": label, "pk": self.pk(row), "values": {name: value}}]
