"""An admin with a hook of each kind."""

from typing import Any

from django.contrib import admin, messages
from django.db import models
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse

from .models import AudioBook, Author, Book, Loan, Note, Profile, PublishedBook, Section, Shelf, Tag


class ProfileInline(admin.StackedInline):
    model = Profile
    # Django 5.2 warns of a default that changes with 6.0.
    formfield_overrides = {models.URLField: {"assume_scheme": "https"}}


@admin.register(Author)
class AuthorAdmin(admin.ModelAdmin):
    list_display = ["name", "email", "born", "number_of_books"]
    search_fields = ["name", "=email"]
    date_hierarchy = "born"
    inlines = [ProfileInline]

    @admin.display(description="books")
    def number_of_books(self, author: Author) -> int:
        return author.books.count()


@admin.register(Book)
class BookAdmin(admin.ModelAdmin):
    """Others than superusers see their own books and those of nobody, and change their own alone."""

    list_display = ["title", "author", "status", "price", "published", "is_long"]
    list_filter = ["status", "author", ("published", admin.DateFieldListFilter), "tags__name", "active"]
    list_select_related = ["author"]
    search_fields = ["title", "author__name", "^isbn"]
    autocomplete_fields = ["author", "tags"]
    readonly_fields = ["uuid", "created"]
    fieldsets = [
        (None, {"fields": [("title", "author"), "owner", "isbn", "price", "status", "active"]}),
        ("More", {"fields": ["published", "tags", "pages", "rating", "data", "reading_time", "cover"]}),
        ("Made by itself", {"fields": ["uuid", "created"]}),
    ]
    actions = ["publish", "withdraw", "export"]

    @admin.display(boolean=True, description="long", ordering="pages")
    def is_long(self, book: Book) -> bool:
        return book.pages > 500

    def get_queryset(self, request: HttpRequest) -> QuerySet[Book]:
        books = super().get_queryset(request)
        if request.user.is_superuser:
            return books
        return books.filter(owner=request.user) | books.filter(owner=None)

    def get_readonly_fields(self, request: HttpRequest, obj: Model | None = None) -> list[str]:
        return [*self.readonly_fields, *([] if request.user.is_superuser else ["owner"])]

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        allowed = super().has_change_permission(request, obj)
        return allowed and (obj is None or request.user.is_superuser or obj.owner_id == request.user.pk)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        allowed = super().has_delete_permission(request, obj)
        return allowed and (obj is None or obj.status != Book.Status.PUBLISHED)

    def has_publish_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("testapp.publish_book")

    def save_model(self, request: HttpRequest, obj: Book, form: Any, change: bool) -> None:
        if not change and obj.owner is None:
            obj.owner_id = request.user.pk
        super().save_model(request, obj, form, change)

    @admin.action(description="Publish the selected books", permissions=["publish"])
    def publish(self, request: HttpRequest, queryset: QuerySet[Book]) -> None:
        count = queryset.update(status=Book.Status.PUBLISHED)
        self.message_user(request, f"{count} published.", messages.SUCCESS)

    publish.mcp_destructive = False  # type: ignore[attr-defined]

    @admin.action(description="Withdraw the selected books", permissions=["change"])
    def withdraw(self, request: HttpRequest, queryset: QuerySet[Book]) -> None:
        count = queryset.update(status=Book.Status.WITHDRAWN)
        self.message_user(request, f"{count} withdrawn.", messages.WARNING)

    withdraw.mcp_destructive = False  # type: ignore[attr-defined]

    @admin.action(description="Export the selected books", permissions=["view"])
    def export(self, request: HttpRequest, queryset: QuerySet[Book]) -> HttpResponse:
        body = "".join(f"{book.isbn},{book.title}\n" for book in queryset)
        return HttpResponse(
            body, content_type="text/csv", headers={"Content-Disposition": 'attachment; filename="books.csv"'}
        )


@admin.register(Loan)
class LoanAdmin(admin.ModelAdmin):
    list_display = ["book", "borrower", "due"]
    search_fields = ["borrower", "book__title"]
    raw_id_fields = ["book"]


@admin.register(Tag, Section)
class NamedAdmin(admin.ModelAdmin):
    search_fields = ["name"]


@admin.register(Shelf)
class ShelfAdmin(admin.ModelAdmin):
    search_fields = ["code"]


admin.site.register([PublishedBook, AudioBook, Note])
