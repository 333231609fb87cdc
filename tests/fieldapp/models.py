"""Every type of field that all databases have, and every way in which a model can hang on another one."""

import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from django import forms
from django.contrib.contenttypes.fields import GenericForeignKey, GenericRelation
from django.contrib.contenttypes.models import ContentType
from django.db import models
from django.utils.translation import gettext_lazy as _


@dataclass(frozen=True)
class Point:
    """What a column of :class:`PointField` holds."""

    x: int
    y: int

    def __str__(self) -> str:
        return f"{self.x};{self.y}"


def point_of(text: str) -> Point:
    x, y = text.split(";")
    return Point(int(x), int(y))


class PointFormField(forms.CharField):
    """Takes a point as its text."""

    def prepare_value(self, value: Any) -> Any:
        return str(value) if isinstance(value, Point) else value

    def to_python(self, value: Any) -> Any:
        text = super().to_python(value)
        if not text:
            return None
        try:
            return point_of(text)
        except ValueError:
            raise forms.ValidationError("Give a point such as 1;2.") from None


class PointField(models.Field):
    """A field of the project's own: its values are objects, its column a text."""

    def db_type(self, connection: Any) -> str:
        return "varchar(40)"

    def from_db_value(self, value: Any, expression: Any, connection: Any) -> Any:
        return None if value is None else point_of(value)

    def get_prep_value(self, value: Any) -> Any:
        return None if value is None else str(value)

    def formfield(self, **kwargs: Any) -> Any:
        return super().formfield(**{"form_class": PointFormField, **kwargs})


class UpperField(models.CharField):
    """A field of the project's own, with values of a type that Django knows."""

    def get_prep_value(self, value: Any) -> Any:
        prepared = super().get_prep_value(value)
        return prepared.upper() if isinstance(prepared, str) else prepared


class WebField(models.URLField):
    """Says what Django 5.2 warns about, and Django 6 does by itself."""

    def formfield(self, **kwargs: Any) -> Any:
        return super().formfield(**{"assume_scheme": "https", **kwargs})


class Colour(models.TextChoices):
    RED = "r", _("Red")
    GREEN = "g", _("Green")
    __empty__ = "no colour"


class Level(models.IntegerChoices):
    LOW = 1, "Low"
    HIGH = 10, "High"


GROUPS = {"Audio": {"vinyl": "Vinyl", "cd": "CD"}, "unknown": "Unknown"}


def answers() -> list[tuple[str, Any]]:
    return [("y", _("Yes")), ("n", _("No"))]


def folder() -> str:
    return str(Path(__file__).parent / "migrations")


class Sample(models.Model):
    """A column of each type; all but the name may be empty."""

    name = models.CharField(max_length=100)
    text = models.TextField(blank=True)
    slug = models.SlugField(blank=True)
    url = WebField(blank=True)
    email = models.EmailField(blank=True)
    upper = UpperField(max_length=20, blank=True)
    integer = models.IntegerField(null=True, blank=True)
    small = models.SmallIntegerField(null=True, blank=True)
    big = models.BigIntegerField(null=True, blank=True)
    positive = models.PositiveIntegerField(null=True, blank=True)
    flag = models.BooleanField(default=False)
    maybe = models.BooleanField(null=True, blank=True)
    decimal = models.DecimalField(max_digits=12, decimal_places=4, null=True, blank=True)
    number = models.FloatField(null=True, blank=True)
    day = models.DateField(_("day"), null=True, blank=True)
    moment = models.DateTimeField(null=True, blank=True)
    clock = models.TimeField(null=True, blank=True)
    length = models.DurationField(null=True, blank=True)
    key = models.UUIDField(null=True, blank=True)
    ip = models.GenericIPAddressField(null=True, blank=True)
    data = models.JSONField(null=True, blank=True)
    blob = models.BinaryField(null=True, blank=True)
    path = models.FilePathField(path=folder, match=r".*\.py$", max_length=300, blank=True)
    document = models.FileField(upload_to="documents/", blank=True)
    colour = models.CharField(max_length=1, choices=Colour, null=True, blank=True)
    level = models.IntegerField(choices=Level, null=True, blank=True)
    medium = models.CharField(max_length=10, choices=GROUPS, blank=True)
    answer = models.CharField(max_length=1, choices=answers, blank=True)
    point = PointField(null=True, blank=True)
    doubled = models.GeneratedField(
        expression=models.F("integer") * 2, output_field=models.BigIntegerField(null=True), db_persist=True, null=True
    )

    def __str__(self) -> str:
        return self.name


class Guest(models.Model):
    name = models.CharField(max_length=100)
    host = models.ForeignKey("self", models.SET_NULL, null=True, blank=True, related_name="invited")
    friends = models.ManyToManyField("self", blank=True)
    clubs = models.ManyToManyField("Club", through="Membership", blank=True, related_name="guests")
    remarks = GenericRelation("Remark")

    def __str__(self) -> str:
        return self.name


class Club(models.Model):
    name = models.CharField(max_length=100)

    def __str__(self) -> str:
        return self.name


class Membership(models.Model):
    """Links with a column of their own."""

    guest = models.ForeignKey(Guest, models.CASCADE)
    club = models.ForeignKey(Club, models.CASCADE)
    since = models.DateField(null=True, blank=True)


class Passport(models.Model):
    """One for each guest; its key is the guest's."""

    guest = models.OneToOneField(Guest, models.CASCADE, primary_key=True, related_name="passport")
    number = models.CharField(max_length=20)

    def __str__(self) -> str:
        return self.number


class Remark(models.Model):
    """Hangs on a row of any model."""

    content_type = models.ForeignKey(ContentType, models.CASCADE)
    object_id = models.PositiveBigIntegerField()
    target = GenericForeignKey("content_type", "object_id")
    text = models.CharField(max_length=100)

    def __str__(self) -> str:
        return self.text


class Place(models.Model):
    name = models.CharField(max_length=100)
    rent = models.DecimalField(max_digits=8, decimal_places=2, default=0)

    def __str__(self) -> str:
        return self.name


class Restaurant(Place):
    """A child table."""

    cuisine = models.CharField(max_length=50)


class Seat(models.Model):
    """A key of two columns."""

    pk = models.CompositePrimaryKey("hall", "number")
    hall = models.CharField(max_length=50)
    number = models.IntegerField()
    guest = models.ForeignKey(Guest, models.SET_NULL, null=True, blank=True, related_name="seats")
    note = models.CharField(max_length=100, blank=True)

    def __str__(self) -> str:
        return f"{self.hall} {self.number}"


class Night(models.Model):
    """A key that holds a foreign key and a date."""

    pk = models.CompositePrimaryKey("guest", "day")
    guest = models.ForeignKey(Guest, models.CASCADE, related_name="nights")
    day = models.DateField()
    price = models.DecimalField(max_digits=8, decimal_places=2, default=0)


class Term(models.Model):
    """A key of free text."""

    word = models.CharField(max_length=100, primary_key=True)
    meaning = models.CharField(max_length=100, blank=True)

    def __str__(self) -> str:
        return self.word


class Memo(models.Model):
    """Hangs on a row of any model, whatever its key is."""

    content_type = models.ForeignKey(ContentType, models.CASCADE, related_name="+")
    object_id = models.CharField(max_length=50)
    target = GenericForeignKey("content_type", "object_id")
    text = models.CharField(max_length=100)
    stars = models.IntegerField(null=True, blank=True)
    made = models.DateField(null=True, blank=True)

    def __str__(self) -> str:
        return self.text


class Room(models.Model):
    """A key that is a number."""

    name = models.CharField(max_length=100)
    memos = GenericRelation(Memo)
    remarks = GenericRelation(Remark)

    def __str__(self) -> str:
        return self.name


class Suite(Room):
    """A child table, whose rows have memos of their own."""

    view = models.CharField(max_length=50)


class QuietRoom(Room):
    """The same table, with memos that are only there under this name of it."""

    hints = GenericRelation(Memo, for_concrete_model=False)

    class Meta:
        proxy = True


class Parcel(models.Model):
    """A key that is a UUID."""

    id = models.UUIDField(primary_key=True, default=uuid.uuid4, editable=False)
    name = models.CharField(max_length=100)
    room = models.ForeignKey(Room, models.CASCADE, null=True, blank=True)
    memos = GenericRelation(Memo)
    # A text is no number.
    remarks = GenericRelation(Remark)

    def __str__(self) -> str:
        return self.name


class Phrase(models.Model):
    """A key that is a text."""

    name = models.CharField(max_length=50, primary_key=True)
    memos = GenericRelation(Memo)

    def __str__(self) -> str:
        return self.name
