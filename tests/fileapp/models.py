"""Records with files that are required, optional, of some types, images, and in the rows of an inline."""

from django.core.validators import FileExtensionValidator
from django.db import models


class Manual(models.Model):
    title = models.CharField(max_length=50)
    file = models.FileField(upload_to="manuals/%Y", validators=[FileExtensionValidator(["pdf", "txt"])])
    picture = models.ImageField(upload_to="pictures", blank=True)
    note = models.FileField(upload_to="notes", blank=True, max_length=30)

    def __str__(self) -> str:
        return self.title


class Page(models.Model):
    manual = models.ForeignKey(Manual, models.CASCADE, related_name="pages")
    number = models.PositiveIntegerField()
    scan = models.FileField(upload_to="scans", blank=True)

    class Meta:
        ordering = ["number"]

    def __str__(self) -> str:
        return str(self.number)
