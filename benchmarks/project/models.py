"""A table of some width with one relation, and long ones."""

from django.db import models


class Author(models.Model):
    """Who wrote an article."""

    name = models.CharField(max_length=100)

    class Meta:
        app_label = "bench"

    def __str__(self) -> str:
        return self.name


class Article(models.Model):
    """Thirteen columns of the usual types."""

    class Status(models.TextChoices):
        DRAFT = "draft", "Draft"
        PUBLISHED = "published", "Published"
        WITHDRAWN = "withdrawn", "Withdrawn"

    title = models.CharField(max_length=200)
    slug = models.CharField(max_length=200)
    summary = models.TextField()
    author = models.ForeignKey(Author, on_delete=models.PROTECT)
    status = models.CharField(max_length=10, choices=Status.choices)
    language = models.CharField(max_length=5)
    price = models.DecimalField(max_digits=8, decimal_places=2)
    words = models.IntegerField()
    rating = models.FloatField(null=True)
    featured = models.BooleanField()
    published = models.DateTimeField()
    modified = models.DateTimeField()

    class Meta:
        app_label = "bench"
        # Serves the measured query, so that it is the code that is measured and not a sort of 100,000 rows.
        indexes = (models.Index(fields=("status", "-published", "-id"), name="bench_article_listing"),)

    def __str__(self) -> str:
        return self.title


class OwnArticle(Article):
    """The same rows, of an exposure with a queryset of its own."""

    class Meta:
        app_label = "bench"
        proxy = True


class ComputedArticle(Article):
    """The same rows, of an exposure with a computed column."""

    class Meta:
        app_label = "bench"
        proxy = True


class SerializedArticle(Article):
    """The same rows, of an exposure with a serializer of REST framework."""

    class Meta:
        app_label = "bench"
        proxy = True


class Event(models.Model):
    """A row of a table that is long."""

    created = models.DateTimeField()
    kind = models.CharField(max_length=20)
    amount = models.DecimalField(max_digits=10, decimal_places=2)

    class Meta:
        app_label = "bench"

    def __str__(self) -> str:
        return f"{self.kind} {self.pk}"


class Visit(models.Model):
    """A row of the table that is ten times as long, on PostgreSQL."""

    created = models.DateTimeField()
    kind = models.CharField(max_length=20)
    amount = models.DecimalField(max_digits=10, decimal_places=2)

    class Meta:
        app_label = "bench"
        indexes = (
            models.Index(fields=("created",), name="bench_visit_created"),
            models.Index(fields=("kind", "-created", "-id"), name="bench_visit_listing"),
        )

    def __str__(self) -> str:
        return f"{self.kind} {self.pk}"
