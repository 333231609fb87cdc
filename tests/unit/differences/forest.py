"""Models that refer to each other in every way, in a registry of their own, and a look at all of their rows.

A tree can be felled; what hangs on it goes, stays, or changes. The database takes care of what hangs on a ``Well``,
which only Django 6.1 can let it do.
"""

import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from django.apps.registry import Apps
from django.contrib.contenttypes.fields import GenericForeignKey, GenericRelation
from django.contrib.contenttypes.models import ContentType
from django.core.management.color import no_style
from django.db import connection, models

registry = Apps(["tests.testapp"])


class Base:
    apps = registry
    app_label = "testapp"


class HidingManager(models.Manager):
    def get_queryset(self) -> models.QuerySet:
        return super().get_queryset().filter(hidden=False)


def cascade_if_old(collector: Any, field: Any, rows: Any, using: str) -> None:
    """What a project may write: old rows go, the others stay."""
    models.CASCADE(collector, field, rows.filter(old=True), using)
    models.SET_NULL(collector, field, rows.filter(old=False), using)


def last_tree() -> Any:
    return Tree.objects.order_by("-pk").first()


class Remark(models.Model):
    content_type = models.ForeignKey(ContentType, models.CASCADE, related_name="+")
    object_id = models.CharField(max_length=50)
    target = GenericForeignKey("content_type", "object_id")
    text = models.CharField(max_length=50)

    class Meta(Base):
        db_table = "forest_remark"


class Tree(models.Model):
    name = models.CharField(max_length=50, db_column="called")
    code = models.CharField(max_length=10, unique=True)
    parent = models.ForeignKey("self", models.SET_NULL, null=True, related_name="saplings")
    remarks = GenericRelation(Remark)

    class Meta(Base):
        db_table = "forest_tree"


class Shade(Tree):
    """A proxy."""

    class Meta(Base):
        proxy = True


class Oak(Tree):
    acorns = models.IntegerField(default=0)

    class Meta(Base):
        db_table = "forest_oak"


class RedOak(Oak):
    red = models.CharField(max_length=9, default="dark")

    class Meta(Base):
        db_table = "forest_redoak"


class Elm(Tree):
    """A child whose key is not its link to the parent."""

    tag = models.CharField(max_length=5, primary_key=True)
    tree = models.OneToOneField(Tree, models.CASCADE, parent_link=True, db_column="the_tree")

    class Meta(Base):
        db_table = "forest_elm"


class Branch(models.Model):
    id = models.UUIDField(primary_key=True, default=uuid.uuid4)
    tree = models.ForeignKey(Tree, models.CASCADE, db_column="grows_on")
    thickness = models.FloatField(default=1.0)

    class Meta(Base):
        db_table = "forest_branch"


class Leaf(models.Model):
    """Nothing refers to it: Django deletes it without reading it."""

    branch = models.ForeignKey(Branch, models.CASCADE)

    class Meta(Base):
        db_table = "forest_leaf"


class Sign(models.Model):
    tree = models.ForeignKey(Tree, models.SET_NULL, null=True)
    changed = models.DateTimeField(auto_now=True)

    class Meta(Base):
        db_table = "forest_sign"


class Plaque(models.Model):
    tree = models.ForeignKey(Tree, models.SET_DEFAULT, default=1)

    class Meta(Base):
        db_table = "forest_plaque"


class Path(models.Model):
    tree = models.ForeignKey(Tree, models.SET(1), to_field="id")

    class Meta(Base):
        db_table = "forest_path"


class Bench(models.Model):
    tree = models.ForeignKey(Tree, models.SET(last_tree))

    class Meta(Base):
        db_table = "forest_bench"


class Bird(models.Model):
    name = models.CharField(max_length=50)
    trees: Any = models.ManyToManyField(Tree, related_name="birds")
    friends: Any = models.ManyToManyField("self")
    nests: Any = models.ManyToManyField(Tree, through="Nest", related_name="nesting")

    class Meta(Base):
        db_table = "forest_bird"


class Nest(models.Model):
    tree = models.ForeignKey(Tree, models.CASCADE)
    bird = models.ForeignKey(Bird, models.CASCADE)
    eggs = models.IntegerField(default=0)

    class Meta(Base):
        db_table = "forest_nest"


class Lantern(models.Model):
    tree = models.ForeignKey(Shade, models.CASCADE)

    class Meta(Base):
        db_table = "forest_lantern"


class Mast(models.Model):
    oak = models.ForeignKey(Oak, models.CASCADE)

    class Meta(Base):
        db_table = "forest_mast"


class Ghost(models.Model):
    tree = models.ForeignKey(Tree, models.DO_NOTHING, db_constraint=False)

    class Meta(Base):
        db_table = "forest_ghost"


class Lichen(models.Model):
    tree = models.ForeignKey(Tree, cascade_if_old, null=True)
    old = models.BooleanField(default=False)

    class Meta(Base):
        db_table = "forest_lichen"


class Mushroom(models.Model):
    """Its manager hides rows, but not those that Django deletes."""

    tree = models.ForeignKey(Tree, models.CASCADE, to_field="code")
    hidden = models.BooleanField(default=False)
    objects = HidingManager()

    class Meta(Base):
        db_table = "forest_mushroom"


class Ring(models.Model):
    pk = models.CompositePrimaryKey("tree", "year")
    tree = models.ForeignKey(Tree, models.CASCADE)
    year = models.IntegerField()
    width = models.DecimalField(max_digits=5, decimal_places=2, default=1)

    class Meta(Base):
        db_table = "forest_ring"


MODELS: list[type[models.Model]] = [
    *(Remark, Tree, Oak, RedOak, Elm, Branch, Leaf, Sign, Plaque, Path, Bench, Bird, Nest, Lantern, Mast, Ghost),
    *(Lichen, Mushroom, Ring),
]

if hasattr(models, "DB_CASCADE"):

    class Well(models.Model):
        name = models.CharField(max_length=50)

        class Meta(Base):
            db_table = "forest_well"

    class Bucket(models.Model):
        """Not even Django's own manager shows all rows."""

        well = models.ForeignKey(Well, models.DB_CASCADE)
        hidden = models.BooleanField(default=False)
        objects = HidingManager()

        class Meta(Base):
            base_manager_name = "objects"
            db_table = "forest_bucket"

    class Drop(models.Model):
        bucket = models.ForeignKey(Bucket, models.DB_CASCADE)

        class Meta(Base):
            db_table = "forest_drop"

    class Rope(models.Model):
        well = models.ForeignKey(Well, models.DB_SET_NULL, null=True)

        class Meta(Base):
            db_table = "forest_rope"

    MODELS += [Well, Bucket, Drop, Rope]
    # Foreign keys of MySQL have no SET DEFAULT.
    if connection.vendor != "mysql":

        class Pump(models.Model):
            well = models.ForeignKey(Well, models.DB_SET_DEFAULT, db_default=1)

            class Meta(Base):
                db_table = "forest_pump"

        MODELS += [Pump]


@pytest.fixture(scope="module", autouse=True)
def forest(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """Make the tables of the models until the tests of a module have run."""
    with django_db_blocker.unblock():
        with connection.schema_editor() as editor:
            for model in MODELS:
                editor.create_model(model)
        yield
        with connection.schema_editor() as editor:
            for model in reversed(MODELS):
                editor.delete_model(model)


def tables() -> list[type[models.Model]]:
    """Return all models that have tables, those of links too."""
    found = registry.get_models(include_auto_created=True)
    return [model for model in found if not model._meta.proxy]


@pytest.fixture
def first(db: None) -> Any:
    """Plant trees that stay, on the first of which others hang by default."""
    # Those of the models here are gone with each test.
    ContentType.objects.clear_cache()
    tree = Tree.objects.create(pk=1, name="first", code="first")
    with connection.cursor() as cursor:
        for sql in connection.ops.sequence_reset_sql(no_style(), [Tree]):
            cursor.execute(sql)
    plant(0)
    return tree


def plant(number: int) -> Any:
    """Make a tree with two of each thing that can hang on it, some of them seen only by Django."""
    code = f"T{number}"
    tree = Tree.objects.create(name=code, code=code)
    for which in range(2):
        child = Tree.objects.create(name=f"{code}-{which}", code=f"{code}-{which}", parent=tree)
        Remark.objects.create(target=tree, text="high")
        Remark.objects.create(target=child, text="low")
        branch = Branch.objects.create(tree=tree, thickness=which)
        Leaf.objects.create(branch=branch)
        Leaf.objects.create(branch=branch)
        for model in (Sign, Plaque, Path, Bench, Ghost):
            model.objects.create(tree=tree)
        Lantern.objects.create(tree=Shade.objects.get(pk=tree.pk))
        bird = Bird.objects.create(name=f"{code}-{which}")
        bird.trees.add(tree, child)
        bird.friends.add(Bird.objects.order_by("pk").first())
        Nest.objects.create(tree=tree, bird=bird)
        Lichen.objects.create(tree=tree, old=bool(which))
        Mushroom.objects.create(tree=tree, hidden=bool(which))
        Ring.objects.create(tree=tree, year=which)
    return tree


def grow(number: int) -> tuple[Any, Any]:
    """Make trees that are rows of several tables, with a mast that hangs on the oak."""
    oak = RedOak.objects.create(name="Oak", code=f"O{number}", acorns=number)
    elm = Elm.objects.create(name="Elm", code=f"E{number}", tag=f"e{number}")
    Mast.objects.create(oak=oak)
    for tree in (oak, elm):
        Branch.objects.create(tree_id=tree.tree_ptr_id if tree is oak else tree.tree_id)
        Sign.objects.create(tree_id=tree.tree_ptr_id if tree is oak else tree.tree_id)
    return oak, elm
