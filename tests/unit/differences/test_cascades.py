"""What a deletion takes along or changes, found before it happens: it is what the database then shows."""

from typing import Any

import pytest
from django.contrib.contenttypes.models import ContentType
from django.core.management.color import no_style
from django.db import connection
from django.db.models import ProtectedError

from mcp_django.differences.cascades import DeletionCollector, TooManyRows
from tests.unit.differences import forest
from tests.unit.differences.forest import Bird, Elm, Mast, Oak, RedOak, Shade, Tree, changing, grow, plant
from tests.unit.differences.forest import forest as _forest  # noqa: F401

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db]


@pytest.fixture(autouse=True)
def others() -> Any:
    """Rows that stay, the first of which others refer to by default."""
    # Those of the models here are gone with each test.
    ContentType.objects.clear_cache()
    tree = Tree.objects.create(pk=1, name="first", code="first")
    with connection.cursor() as cursor:
        for sql in connection.ops.sequence_reset_sql(no_style(), [Tree]):
            cursor.execute(sql)
    plant(0)
    return tree


def found_of(collector: DeletionCollector) -> dict[str, tuple[set[Any], set[Any]]]:
    """Return the tables with the texts of keys that go, and of those that change."""
    found: dict[str, tuple[set[Any], set[Any]]] = {}
    for position, kind in enumerate((collector.changed, collector.deleted)):
        for model, keys in kind.items():
            table = found.setdefault(model._meta.db_table, (set(), set()))
            table[position].update(map(key_text, keys))
    return found


def key_text(key: Any) -> str:
    return ",".join(map(str, key if isinstance(key, tuple) else (key,))).replace("-", "")


def check(rows: list[Any]) -> DeletionCollector:
    """Compare what is found with what a deletion then does, in all tables."""
    collector = DeletionCollector("default", rows)
    found = found_of(collector)
    with changing() as happened:
        for row in rows:
            row.delete()

    # Nothing is changed that was not found, and what is found is either changed or deleted.
    for table, (changed, added, deleted) in happened.items():
        assert not added
        gone = {key_text(key) for key in deleted}
        assert gone == found[table][1], table
        assert {key_text(key) for key in changed} <= found[table][0], table
        assert found[table][0] <= {key_text(key) for key in changed} | gone, table
    assert {table for table, keys in found.items() if any(keys)} == happened.keys()
    assert happened.keys() <= {model._meta.db_table for model in collector.looked_at}
    return collector


def test_everything_that_hangs_on_a_row_is_found() -> None:
    tree = plant(1)
    collector = check([tree])

    assert {model.__name__ for model, keys in collector.deleted.items() if keys} == {
        *("Tree", "Remark", "Branch", "Leaf", "Bird_trees", "Nest", "Lantern", "Lichen", "Mushroom", "Ring"),
    }
    assert {model.__name__ for model in collector.changed} == {"Tree", "Sign", "Plaque", "Path", "Bench", "Lichen"}
    assert collector.left == {"testapp.Ghost.tree"}


def test_rows_of_several_tables_go_from_whichever_one_is_deleted() -> None:
    for number, model in enumerate((RedOak, Oak, Tree, Shade), 1):
        oak, _ = grow(number)
        collector = check([model.objects.get(pk=oak.pk)])
        assert {"Tree", "Oak", "RedOak", "Mast", "Branch"} <= {model.__name__ for model in collector.deleted}


def test_a_child_whose_key_is_not_that_of_its_parent() -> None:
    _, elm = grow(1)
    collector = check([elm])
    assert collector.deleted[Elm] == {"e1"}
    assert collector.deleted[Tree] == {elm.tree_id}
    _, elm = grow(2)
    check([Tree.objects.get(pk=elm.tree_id)])


def test_links_go_from_either_side() -> None:
    bird = Bird.objects.first()
    collector = check([bird])
    assert {model.__name__ for model in collector.deleted} == {"Bird", "Bird_trees", "Bird_friends", "Nest"}


def test_many_rows_at_once() -> None:
    check([plant(1), plant(2), plant(3)])


def test_rows_of_several_tables_cost_no_query_each(django_assert_max_num_queries: Any) -> None:
    oaks = [grow(number)[0] for number in range(9)]
    with django_assert_max_num_queries(60) as few:
        DeletionCollector("default", [Tree.objects.get(pk=oaks[0].tree_ptr_id)])
    number = len(few.captured_queries)
    trees = [Tree.objects.get(pk=oak.tree_ptr_id) for oak in oaks]
    with django_assert_max_num_queries(number - 1):
        DeletionCollector("default", trees)


def test_more_rows_than_are_kept_are_not_even_read(settings: Any, django_assert_max_num_queries: Any) -> None:
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "MAX_BULK_ROWS": 1}
    oak = RedOak.objects.create(name="Oak", code="O1")
    Mast.objects.bulk_create(Mast(oak=oak) for _ in range(7))
    # The tree, the oak, the red oak and seven masts.
    DeletionCollector("default", [oak])
    Mast.objects.create(oak=oak)
    with pytest.raises(TooManyRows):
        DeletionCollector("default", [oak])
    Mast.objects.all().delete()

    for model in (forest.Sign, forest.Remark, forest.Ghost):
        model.objects.all().delete()
    tree = Tree.objects.create(name="T", code="T")
    forest.Sign.objects.bulk_create(forest.Sign(tree=tree) for _ in range(9))
    DeletionCollector("default", [tree])
    forest.Remark.objects.create(target=tree)
    with pytest.raises(TooManyRows):
        DeletionCollector("default", [tree])
    forest.Remark.objects.bulk_create(forest.Remark(target=tree) for _ in range(99))
    with pytest.raises(TooManyRows):
        DeletionCollector("default", [tree])


def test_what_is_protected_is_told_as_by_the_deletion() -> None:
    from tests.factories import make_book

    book = make_book()
    with pytest.raises(ProtectedError):
        DeletionCollector("default", [book.author])


@pytest.mark.skipif(not hasattr(forest, "Well"), reason="Django 6.1 lets the database delete rows")
def test_what_the_database_itself_deletes_and_changes_is_found() -> None:
    first = forest.Well.objects.create(pk=1, name="first")
    well = forest.Well.objects.create(pk=2, name="deep")
    for which in (first, well):
        for hidden in (False, True):
            bucket = forest.Bucket(well=which, hidden=hidden)
            bucket.save_base(force_insert=True)
            forest.Drop.objects.create(bucket_id=bucket.pk)
        forest.Rope.objects.create(well=which)
        if forest.Pump in forest.MODELS:
            forest.Pump.objects.create(well=which)
    collector = check([well])
    assert {model.__name__: len(keys) for model, keys in collector.deleted.items()} == {
        "Well": 1,
        "Bucket": 2,
        "Drop": 2,
    }
