from django.db import models
from django.utils import timezone
from djmoney.models.fields import MoneyField
from filer.fields.file import FilerFileField
from filer.fields.image import FilerImageField
from markupfield.fields import MarkupField
from mptt.models import MPTTModel, TreeForeignKey
from parler.models import TranslatableModel, TranslatedFields
from polymorphic.models import PolymorphicModel
from simple_history.models import HistoricalRecords
from solo.models import SingletonModel
from taggit.managers import TaggableManager
from treebeard.mp_tree import MP_Node


class Genre(MPTTModel):
    """A tree of django-mptt."""

    name = models.CharField(max_length=50)
    parent = TreeForeignKey("self", models.CASCADE, null=True, blank=True, related_name="children")

    class MPTTMeta:
        order_insertion_by = ["name"]

    def __str__(self):
        return self.name


class Place(MP_Node):
    """A tree of django-treebeard."""

    name = models.CharField(max_length=50)
    node_order_by = ["name"]

    def __str__(self):
        return self.name


class Novel(models.Model):
    """Tagged, with files of django-filer and the history of django-simple-history; exported by django-import-export."""

    title = models.CharField(max_length=100)
    genre = TreeForeignKey(Genre, models.SET_NULL, null=True, blank=True)
    place = models.ForeignKey(Place, models.SET_NULL, null=True, blank=True)
    cover = FilerImageField(on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    text = FilerFileField(on_delete=models.SET_NULL, null=True, blank=True, related_name="+")
    pages = models.PositiveIntegerField(default=0)
    tags = TaggableManager(blank=True)
    history = HistoricalRecords()

    def __str__(self):
        return self.title


class Note(models.Model):
    """Versioned by django-reversion."""

    title = models.CharField(max_length=100)
    body = models.TextField(blank=True)

    def __str__(self):
        return self.title


class Parcel(models.Model):
    """Guarded by django-guardian, row by row."""

    name = models.CharField(max_length=100)

    def __str__(self):
        return self.name


class Loan(models.Model):
    """Exported by the actions of django-import-export, with values of django-money and django-markupfield."""

    novel = models.ForeignKey(Novel, models.CASCADE)
    days = models.PositiveIntegerField(default=14)
    fee = MoneyField(max_digits=8, decimal_places=2, default=0, default_currency="EUR")
    remark = MarkupField(blank=True, default_markup_type="loud", markup_choices=[("loud", str.upper)])
    lent_at = models.DateTimeField(default=timezone.now)

    def __str__(self):
        return f"{self.novel} for {self.days} days"


class News(models.Model):
    """In the languages of django-modeltranslation."""

    title = models.CharField(max_length=100)
    body = models.TextField(blank=True)

    def __str__(self):
        return self.title


class Article(TranslatableModel):
    """In the languages of django-parler."""

    slug = models.SlugField(unique=True)
    translations = TranslatedFields(title=models.CharField(max_length=100), body=models.TextField(blank=True))

    def __str__(self):
        return self.safe_translation_getter("title", any_language=True) or self.slug


class Medium(PolymorphicModel):
    """Of several types, by django-polymorphic."""

    name = models.CharField(max_length=50)

    def __str__(self):
        return self.name


class Disc(Medium):
    tracks = models.PositiveIntegerField(default=1)


class Map(Medium):
    scale = models.PositiveIntegerField(default=1000)


class Step(models.Model):
    """Ordered by hand, by django-admin-sortable2."""

    name = models.CharField(max_length=50)
    position = models.PositiveIntegerField(default=0, db_index=True)

    class Meta:
        ordering = ["position"]

    def __str__(self):
        return self.name


class Preferences(SingletonModel):
    """The one row of django-solo."""

    greeting = models.CharField(max_length=50, default="Hello")
    api_key = models.CharField(max_length=50, blank=True)

    def __str__(self):
        return "Preferences"
