"""A world of visible rows, and everything hidden about it, which can become something else.

What is hidden are rows (by a queryset, by a manager, as rows of models that nobody may view) and fields (left out,
masked, named like secrets). Keys are fixed, so that visible rows are the same in every world.
"""

import json
from datetime import UTC, date, datetime, timedelta
from typing import Any

from django.contrib import admin
from django.contrib.admin.models import CHANGE, LogEntry
from django.contrib.auth.admin import UserAdmin
from django.contrib.auth.models import User
from django.contrib.contenttypes.models import ContentType
from django.db.models import Count, F, QuerySet
from django.db.models.functions import ExtractYear, Length, Upper
from rest_framework import serializers

from mcp_django import MCPSite, ModelExposure
from mcp_django.context.request import MCPRequest
from tests.factories import make_superuser, make_user
from tests.testapp.models import AudioBook, Author, Book, Loan, Placement, Profile, Section, Shelf, Tag

# Keys from here on are those of hidden rows.
HIDDEN = 900
# What hidden texts are made of in each world; visible ones are made of others.
WORDS = ("aardvark", "zyzzyva")
SEEN = ("ann", "bob", "cid", "dee")
DAYS = (date(1901, 1, 1), date(1999, 12, 31))
MONTHS = tuple(date(2024, 1, 1) + timedelta(days=31 * number) for number in range(6))
# What columns show that are made of hidden values: what an admin shows is the project's choice.
SHOWN = "computed"
VERBS = ("view", "change", "delete")
BOOK_FIELDS = ["title", "author", "tags", "pages", "price", "published", "status", "opens", "reading_time"]


class Visible(ModelExposure):
    """Shows the rows whose keys are below those of the hidden ones."""

    def get_queryset(self, request: MCPRequest) -> QuerySet[Any]:
        return super().get_queryset(request).filter(pk__lt=HIDDEN)


class Masking(Visible):
    def rating(self, book: Book) -> str:
        return "masked"


class AuthorSerializer(serializers.ModelSerializer):
    email = serializers.SerializerMethodField()

    class Meta:
        model = Author
        fields = ("id", "name", "born", "email")

    def get_email(self, author: Author) -> str:
        return "masked"


class Serialized(Visible):
    serializer_class = AuthorSerializer


class VisibleAdmin(admin.ModelAdmin):
    def get_queryset(self, request: Any) -> QuerySet[Any]:
        return super().get_queryset(request).filter(pk__lt=HIDDEN)


class ProfileInline(admin.StackedInline):
    model = Profile
    fields = ["biography"]


class LoanInline(admin.TabularInline):
    model = Loan
    fields = ["borrower", "due"]

    def get_queryset(self, request: Any) -> QuerySet[Any]:
        return super().get_queryset(request).filter(pk__lt=HIDDEN)


class AuthorAdmin(VisibleAdmin):
    fields = ["name", "born"]
    list_display = ["name", "born", "shouted", "years", "book_count", "life"]
    search_fields = ["name", "secret_token"]
    inlines = [ProfileInline]

    def get_queryset(self, request: Any) -> QuerySet[Any]:
        return super().get_queryset(request).annotate(years=ExtractYear("born"), written=Count("books"))

    @admin.display(ordering=Upper("name"))
    def shouted(self, author: Author) -> str:
        return author.name.upper()

    @admin.display(ordering="years")
    def years(self, author: Author) -> str:
        return SHOWN

    # Of rows and fields that callers do not see.

    @admin.display(ordering="written")
    def book_count(self, author: Author) -> str:
        return SHOWN

    @admin.display(ordering="profile__website")
    def life(self, author: Author) -> str:
        return SHOWN


class BookAdmin(VisibleAdmin):
    fields = BOOK_FIELDS
    ordering = ["status", "author__name"]
    list_display = [
        "title",
        "author",
        "pages",
        "worth",
        "longest",
        "loan_count",
        "tag_count",
        "score",
        "keeper",
        "writer",
    ]
    list_filter = ["status", "author", "tags"]
    search_fields = ["title", "author__name", "author__email", "isbn", "data", "owner__first_name", "owner__password"]
    inlines = [LoanInline]

    def get_queryset(self, request: Any) -> QuerySet[Any]:
        found = super().get_queryset(request).annotate(longest=Length("title"))
        return found.annotate(loaned=Count("loans", distinct=True), tagged=Count("tags", distinct=True))

    @admin.display(ordering=F("price") * F("pages"))
    def worth(self, book: Book) -> str:
        return SHOWN

    @admin.display(ordering="longest")
    def longest(self, book: Book) -> str:
        return SHOWN

    # Of rows and fields that callers do not see.

    @admin.display(ordering="loaned")
    def loan_count(self, book: Book) -> str:
        return SHOWN

    @admin.display(ordering="tagged")
    def tag_count(self, book: Book) -> str:
        return SHOWN

    @admin.display(ordering=F("rating") + F("pages"))
    def score(self, book: Book) -> str:
        return SHOWN

    @admin.display(ordering="author__name")
    def writer(self, book: Book) -> str:
        return SHOWN

    @admin.display(ordering="owner__first_name")
    def keeper(self, book: Book) -> str:
        return SHOWN


class OthersAdmin(UserAdmin):
    """Shows no user but those of whom each page is the same in every world."""

    def get_queryset(self, request: Any) -> QuerySet[Any]:
        return super().get_queryset(request).exclude(username__startswith="other")


class TagAdmin(VisibleAdmin):
    search_fields = ["name"]


def declared_site(author: type[ModelExposure] = Visible) -> MCPSite:
    """Return a site with exposures of its own; authors can be those of a serializer."""
    site = MCPSite("declared")
    fields: Any = ["name", "born"] if author is Visible else None
    site.register(Author, author, fields=fields, search_fields=["name"])
    site.register(
        Book,
        Masking,
        fields=[*BOOK_FIELDS, "rating"],
        search_fields=["title", "author__name", "tags__name"],
        ordering=["author"],
    )
    site.register(Tag, Visible, fields=["name", "books"], search_fields=["name"])
    site.register(Loan, Visible, fields=["book", "borrower", "due"])
    return site


def admin_site() -> MCPSite:
    """Return a site of an admin, with rows of inlines and the history."""
    pages = admin.AdminSite("of hidden worlds")
    pages.register(Author, AuthorAdmin)
    pages.register(Book, BookAdmin)
    pages.register(Tag, TagAdmin)
    pages.register(User, OthersAdmin)
    return MCPSite("of hidden worlds", admin_site=pages)


class World:
    """Some visible rows, and hidden ones that are others from one world to the other."""

    def __init__(self) -> None:
        self.root = make_superuser()
        self.member = make_user("member", *(f"testapp.{verb}_{name}" for verb in VERBS for name in ("book", "tag")))
        self.others = [make_user(f"other{number}") for number in range(2)]
        for number, name in enumerate((*SEEN, "?"), 1):
            pk = number if name in SEEN else HIDDEN
            author = Author.objects.create(pk=pk, name=name, born=MONTHS[number % 3] if number % 2 else None)
            Profile.objects.create(pk=pk, author=author, biography=f"life of {name}")
            Tag.objects.create(pk=pk, name=f"tag {name}")
        Book.objects.create(pk=HIDDEN, title="?", author_id=HIDDEN, isbn="hidden", price=1)
        for pk in range(1, 15):
            self._book(pk)
        self._log("Changed by hand.", 1, pk=1)
        self._log(_changed("Title", "Pages"), 2, pk=2)
        self._log(_changed("Owner"), 3, pk=3)

    def _book(self, pk: int) -> None:
        book = Book.objects.create(
            pk=pk,
            title=f"{'abc'[pk % 3]} of {SEEN[pk % 4]}",
            author_id=(1, 2, 3, 4, HIDDEN)[pk % 5],
            isbn=str(pk),
            price=("0.10", "0.20", "99.99", "-5.50")[pk % 4],
            pages=(0, 1, 7, 7, 2_000_000)[pk % 5],
            published=MONTHS[pk % 6] if pk % 4 else None,
            status=Book.Status.values[pk % 3],
            reading_time=timedelta(hours=pk) if pk % 3 else None,
        )
        book.tags.set([1 + pk % 4, 1 + pk % 3])
        for number in range(pk % 3):
            due = datetime.combine(MONTHS[number], datetime.min.time(), UTC) + timedelta(hours=pk)
            owing = book.pk if pk != 5 else HIDDEN
            Loan.objects.create(pk=pk * 10 + number, book_id=owing, borrower=SEEN[pk % 4], due=due)

    def _log(self, message: Any, book: int, *, pk: int) -> None:
        LogEntry.objects.create(
            pk=pk,
            user=self.root,
            content_type=ContentType.objects.get_for_model(Book),
            object_id=str(book),
            object_repr="as it was",
            action_flag=CHANGE,
            change_message=message if isinstance(message, str) else json.dumps(message),
            action_time=datetime(2024, 5, 1, tzinfo=UTC),
        )

    def become(self, number: int, *, related: bool = False) -> None:
        """Let everything that is hidden be what it is in the world of the number.

        With ``related`` that is also whatever books are related to, but for tags.
        """
        word, day = WORDS[number], DAYS[number]
        Author.objects.filter(pk__gt=HIDDEN).delete()
        Book.objects.filter(pk__gt=HIDDEN).delete()
        Tag.objects.filter(pk__gt=HIDDEN).delete()
        Loan.all_objects.filter(pk__gte=HIDDEN).delete()
        LogEntry.objects.filter(pk__gte=HIDDEN).delete()
        hidden = Author.objects.all() if related else Author.objects.filter(pk=HIDDEN)
        hidden.update(name=word, born=day)
        Author.objects.update(email=f"{word}@example.org", secret_token=word)
        Profile.objects.update(website=f"https://{word}.example.org/")
        (Profile.objects.all() if related else Profile.objects.filter(author=HIDDEN)).update(biography=word)
        (Loan.all_objects.all() if related else Loan.all_objects.filter(pk__gte=HIDDEN)).update(borrower=word)
        Tag.objects.filter(pk=HIDDEN).update(name=word)
        owner = self.others[number]
        Book.objects.update(rating=number * 9, data={word: number}, owner=owner, blob=word.encode())
        Book.objects.filter(pk=HIDDEN).update(title=word, pages=10**number, price=7 + number, published=day)
        User.objects.filter(pk=owner.pk).update(first_name=word, password=word)
        for pk in range(HIDDEN + 1, HIDDEN + 3 + 2 * number):
            self._hide(pk, number)
        # Of a visible row, but about a field that nobody sees.
        LogEntry.objects.filter(pk=3).update(change_message=json.dumps(_changed(("Owner", "Data")[number])))
        self._link(number)

    def _hide(self, pk: int, number: int) -> None:
        """Make hidden rows with this key, more of them in the second world."""
        word, day = WORDS[number], DAYS[number]
        Author.objects.create(pk=pk, name=f"{word} {pk}", born=day)
        Tag.objects.create(pk=pk, name=f"{word} {pk}")
        author = (pk % 4) + 1
        price, status = 8 + number, Book.Status.values[number]
        Book.objects.create(
            pk=pk, title=word, author_id=author, isbn=f"h{pk}", price=price, published=day, pages=9, status=status
        )
        due = datetime.combine(day, datetime.min.time(), UTC)
        Loan.objects.create(pk=pk, book_id=1 + pk % 5, borrower=word, due=due)
        Loan.all_objects.create(pk=pk + 100, book_id=1 + number, borrower=word, due=due, deleted=due)
        self._log(_changed("Price"), pk, pk=pk)

    def _link(self, number: int) -> None:
        """Link visible rows with hidden ones, and rows of models that are not exposed with visible ones."""
        word = WORDS[number]
        Tag.objects.get(pk=HIDDEN).books.set([1, 2 + number, HIDDEN])
        Tag.objects.get(pk=1).books.remove(HIDDEN, HIDDEN + 1)
        Tag.objects.get(pk=1).books.add(HIDDEN + number)
        Placement.objects.all().delete()
        Section.objects.all().delete()
        shelf, _ = Shelf.objects.get_or_create(code=word)
        for position in range(1 + number):
            Placement.objects.create(shelf=shelf, book_id=1 + position, position=position)
        Shelf.objects.exclude(pk=shelf.pk).delete()
        Section.objects.create(name=word)
        self._narrate(number)

    def _narrate(self, number: int) -> None:
        for audio in AudioBook.objects.all():
            audio.delete(keep_parents=True)
        parent = Book.objects.get(pk=6 + number)
        audio = AudioBook(book_ptr=parent, narrator=WORDS[number])
        audio.__dict__.update({key: value for key, value in parent.__dict__.items() if not key.startswith("_")})
        audio.save_base(raw=True)


def _changed(*names: str) -> list[Any]:
    return [{"changed": {"fields": list(names)}}]
