"""One model for each thing that the app has to cope with, and no more fields than that takes."""

import uuid
from typing import Any

from django.conf import settings
from django.contrib.contenttypes.fields import GenericForeignKey
from django.contrib.contenttypes.models import ContentType
from django.db import models


class Tag(models.Model):
    name = models.CharField(max_length=50, unique=True)

    class Meta:
        ordering = ["name"]

    def __str__(self) -> str:
        return self.name


class Author(models.Model):
    name = models.CharField(max_length=100)
    email = models.EmailField(blank=True)
    born = models.DateField(null=True, blank=True)
    secret_token = models.CharField(max_length=100, blank=True)

    class Meta:
        ordering = ["name", "pk"]

    def __str__(self) -> str:
        return self.name


class Profile(models.Model):
    author = models.OneToOneField(Author, models.CASCADE, related_name="profile")
    biography = models.TextField(blank=True)
    website = models.URLField(blank=True)

    def __str__(self) -> str:
        return f"Profile of {self.author}"


class Book(models.Model):
    """Nearly every type of field. `owner` decides who sees the row in the admin."""

    class Status(models.TextChoices):
        DRAFT = "draft", "In preparation"
        PUBLISHED = "published", "Published"
        WITHDRAWN = "withdrawn", "Withdrawn"

    title = models.CharField(max_length=200)
    author = models.ForeignKey(Author, models.PROTECT, related_name="books")
    owner = models.ForeignKey(settings.AUTH_USER_MODEL, models.SET_NULL, null=True, blank=True)
    isbn = models.CharField("ISBN", max_length=13, unique=True)
    price = models.DecimalField(max_digits=8, decimal_places=2, help_text="In euro, with tax.")
    published = models.DateField(null=True, blank=True)
    status = models.CharField(max_length=10, choices=Status.choices, default=Status.DRAFT)
    tags = models.ManyToManyField(Tag, blank=True, related_name="books")
    pages = models.PositiveIntegerField(default=0)
    rating = models.FloatField(null=True, blank=True)
    data = models.JSONField(default=dict, blank=True)
    uuid = models.UUIDField(default=uuid.uuid4, editable=False, unique=True)
    created = models.DateTimeField(auto_now_add=True)
    opens = models.TimeField(null=True, blank=True)
    reading_time = models.DurationField(null=True, blank=True)
    address = models.GenericIPAddressField(null=True, blank=True)
    blob = models.BinaryField(default=bytes, blank=True)
    active = models.BooleanField(default=True)
    cover = models.FileField(upload_to="covers/", blank=True)

    class Meta:
        ordering = ["title", "pk"]
        permissions = [("publish_book", "Can publish books")]

    def __str__(self) -> str:
        return self.title

    @property
    def price_per_page(self) -> Any:
        """Fails for a book with no pages."""
        return self.price / self.pages


class PublishedBookManager(models.Manager):
    def get_queryset(self) -> models.QuerySet:
        return super().get_queryset().filter(status=Book.Status.PUBLISHED)


class PublishedBook(Book):
    """A proxy with rows of its own."""

    published_books = PublishedBookManager()

    class Meta:
        default_manager_name = "published_books"
        proxy = True


class AudioBook(Book):
    """A child table."""

    narrator = models.CharField(max_length=100)


class Shelf(models.Model):
    """A primary key of free text: `A/1`, `50 %`, `?x=1`."""

    code = models.CharField(max_length=50, primary_key=True)
    books = models.ManyToManyField(Book, through="Placement", blank=True)

    def __str__(self) -> str:
        return f"Shelf {self.code}"


class Placement(models.Model):
    shelf = models.ForeignKey(Shelf, models.CASCADE)
    book = models.ForeignKey(Book, models.CASCADE)
    position = models.SmallIntegerField(default=0)

    class Meta:
        constraints = [models.UniqueConstraint(fields=["shelf", "position"], name="one_book_for_each_position")]


class Section(models.Model):
    """A tree, with UUIDs as primary keys."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=100)
    parent = models.ForeignKey("self", models.CASCADE, null=True, blank=True, related_name="children")

    def __str__(self) -> str:
        return self.name


class Note(models.Model):
    """Hangs on a row of any model."""

    content_type = models.ForeignKey(ContentType, models.CASCADE)
    object_id = models.CharField(max_length=50)
    target = GenericForeignKey("content_type", "object_id")
    text = models.TextField()

    def __str__(self) -> str:
        return self.text[:20]


class LiveManager(models.Manager):
    def get_queryset(self) -> models.QuerySet:
        return super().get_queryset().filter(deleted=None)


class Loan(models.Model):
    """Deleted rows stay in the table; the default manager hides them."""

    book = models.ForeignKey(Book, models.CASCADE, related_name="loans")
    borrower = models.CharField(max_length=100)
    due = models.DateTimeField()
    deleted = models.DateTimeField(null=True, blank=True, editable=False)

    objects = LiveManager()
    all_objects = models.Manager()

    def __str__(self) -> str:
        return f"{self.borrower}, until {self.due:%Y-%m-%d}"
