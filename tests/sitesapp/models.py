"""Tables of tenants, a table with as many managers as projects write, and views of it."""

from typing import Any

from django.db import models
from django.db.models import Count, QuerySet

from . import tenancy


class TenantManager(models.Manager):
    def get_queryset(self) -> QuerySet[Any]:
        return super().get_queryset().filter(tenant=tenancy.current.get())


class TenantRows(QuerySet):
    """Rows of a tenant whichever way the queryset is made; nothing without a tenant, as `none()` is no SQL at all."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        fresh = kwargs.get("query") is None and len(args) < 2
        super().__init__(*args, **kwargs)
        if fresh and self.model is not None:
            if tenancy.current.get() == "*":
                return
            self.query.add_q(models.Q(tenant=tenancy.current.get()))


class Customer(models.Model):
    tenant = models.CharField(max_length=20)
    name = models.CharField(max_length=50)

    objects = TenantManager()
    everyone = models.Manager()

    class Meta:
        base_manager_name = "everyone"

    def __str__(self) -> str:
        return self.name


class Invoice(models.Model):
    tenant = models.CharField(max_length=20)
    number = models.CharField(max_length=20)
    paid = models.BooleanField(default=False)
    customer = models.ForeignKey(Customer, models.CASCADE, null=True, related_name="invoices")

    objects = TenantManager()
    everyone = models.Manager()

    def __str__(self) -> str:
        return self.number


class Receipt(models.Model):
    """Its queryset narrows itself, and its invoice may be another tenant's."""

    tenant = models.CharField(max_length=20)
    text = models.CharField(max_length=20)
    invoice = models.ForeignKey(Invoice, models.CASCADE, null=True)

    objects = TenantRows.as_manager()
    everyone = models.Manager()

    def __str__(self) -> str:
        return self.text


class Shelf(models.Model):
    """Open to all tenants, though what is on it is not."""

    name = models.CharField(max_length=20)
    customer = models.ForeignKey(Customer, models.CASCADE, null=True)
    receipts = models.ManyToManyField(Receipt)

    def __str__(self) -> str:
        return self.name


class Item(models.Model):
    kind = models.CharField(max_length=20)
    name = models.CharField(max_length=50)
    size = models.IntegerField(default=0)
    parent = models.ForeignKey("self", models.CASCADE, null=True, blank=True, related_name="parts")
    deleted = models.BooleanField(default=False)

    every = models.Manager()

    def __str__(self) -> str:
        return self.name


class KeptManager(models.Manager):
    def get_queryset(self) -> QuerySet[Any]:
        return super().get_queryset().filter(deleted=False)


class KeptItem(Item):
    """Its default manager is not the first one, and `objects` is not there."""

    rows = models.Manager()
    kept = KeptManager()

    class Meta:
        proxy = True
        default_manager_name = "kept"
        base_manager_name = "rows"


class Holder(models.Model):
    """Refers to rows that their manager hides."""

    item = models.ForeignKey(KeptItem, models.CASCADE)
    items = models.ManyToManyField(KeptItem, related_name="holders")

    def __str__(self) -> str:
        return f"{self.pk}"


class UnionManager(models.Manager):
    def get_queryset(self) -> QuerySet[Any]:
        rows = super().get_queryset()
        return rows.filter(kind="a").union(rows.filter(kind="b"))


class UnitedItem(Item):
    objects = UnionManager()

    class Meta:
        proxy = True


class SlicedManager(models.Manager):
    def get_queryset(self) -> QuerySet[Any]:
        return super().get_queryset().order_by("-size")[:3]


class SlicedItem(Item):
    objects = SlicedManager()

    class Meta:
        proxy = True


class ValuesManager(models.Manager):
    def get_queryset(self) -> Any:
        return super().get_queryset().filter(kind="a").values("id", "name")


class ValuesItem(Item):
    objects = ValuesManager()

    class Meta:
        proxy = True


class OnlyManager(models.Manager):
    def get_queryset(self) -> QuerySet[Any]:
        return super().get_queryset().only("kind")


class OnlyItem(Item):
    objects = OnlyManager()

    class Meta:
        proxy = True


class DeferManager(models.Manager):
    def get_queryset(self) -> QuerySet[Any]:
        return super().get_queryset().defer("name", "size", "parent")


class DeferItem(Item):
    objects = DeferManager()

    class Meta:
        proxy = True


class DistinctManager(models.Manager):
    def get_queryset(self) -> QuerySet[Any]:
        return super().get_queryset().filter(parts__size__gte=0).distinct().order_by("name")


class DistinctItem(Item):
    """Those with parts, each once."""

    objects = DistinctManager()

    class Meta:
        proxy = True


class AnnotatedManager(models.Manager):
    def get_queryset(self) -> QuerySet[Any]:
        return super().get_queryset().annotate(part_count=Count("parts"))


class AnnotatedItem(Item):
    objects = AnnotatedManager()

    class Meta:
        proxy = True


class AliasManager(models.Manager):
    def get_queryset(self) -> QuerySet[Any]:
        return super().get_queryset().using("default")


class AliasItem(Item):
    objects = AliasManager()

    class Meta:
        proxy = True


class StrictManager(models.Manager):
    """Wants to be told whose rows it should give."""

    def get_queryset(self, owner: str) -> QuerySet[Any]:  # type: ignore[override]
        return super().get_queryset().filter(kind=owner)


class StrictItem(Item):
    objects = StrictManager()

    class Meta:
        proxy = True


class KindTotal(models.Model):
    """A view that groups: no database can write it."""

    kind = models.CharField(max_length=20, primary_key=True)
    items = models.IntegerField()

    class Meta:
        managed = False
        db_table = "sitesapp_kindtotal"

    def __str__(self) -> str:
        return self.kind


class ItemLine(models.Model):
    """A view whose declared key repeats."""

    kind = models.CharField(max_length=20, primary_key=True)
    name = models.CharField(max_length=50)

    class Meta:
        managed = False
        db_table = "sitesapp_itemline"

    def __str__(self) -> str:
        return self.name
