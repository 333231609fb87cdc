"""What a deletion takes along or changes, found before it happens: it is what the database then shows."""

from typing import Any

import pytest
from django.db import connection
from django.db.models import ProtectedError
from django.utils import timezone

from mcp_django.differences.cascades import DeletionCollector, TooManyRows
from tests.factories import make_book
from tests.testapp.models import Loan
from tests.unit.differences.all_rows import changing, key_text
from tests.unit.differences.forest import (
    Bird,
    Elm,
    Ghost,
    Mast,
    Oak,
    RedOak,
    Remark,
    Shade,
    Sign,
    Tree,
    first,  # noqa: F401
    forest,  # noqa: F401
    grow,
    plant,
    registry,
    tables,
)

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db, pytest.mark.usefixtures("first")]
MODELS: Any = registry.all_models["testapp"]


def found_of(collector: DeletionCollector) -> dict[str, tuple[set[str], set[str]]]:
    """Return the texts of the keys that change, and of those that go, by table."""
    found: dict[str, tuple[set[str], set[str]]] = {}
    for position, kind in enumerate((collector.changed, collector.deleted)):
        for model, keys in kind.items():
            table = found.setdefault(model._meta.db_table, (set(), set()))
            table[position].update(map(key_text, keys))
    return found


def check(rows: list[Any]) -> DeletionCollector:
    """Compare what is found with what a deletion then does, in all tables."""
    collector = DeletionCollector("default", rows)
    found = found_of(collector)
    with changing(tables()) as happened:
        for row in rows:
            row.delete()

    # Nothing is changed that was not found, and what is found is either changed or deleted.
    for table, kinds in happened.items():
        gone = {key for key, kind in kinds.items() if kind == "deleted"}
        changed = kinds.keys() - gone
        assert gone == found[table][1], table
        assert changed <= found[table][0] <= changed | gone, table
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


def test_a_table_that_is_missing_stops_nothing_where_django_does_not_ask_for_it(monkeypatch: Any) -> None:
    tree = plant(1)
    Ghost.objects.all().delete()
    with monkeypatch.context() as patch:
        patch.setattr(Ghost._meta, "db_table", "nowhere")
        collector = DeletionCollector("default", [tree])
    assert collector.left == set()
    assert tree.pk in collector.deleted[Tree]
    check([tree])


class Elsewhere:
    """A router that keeps a table on another database."""

    def allow_migrate(self, db: str, app_label: str, model_name: str | None = None, **hints: Any) -> bool | None:
        return False if model_name == "ghost" else None


def test_tables_of_other_databases_are_not_asked_for(settings: Any) -> None:
    settings.DATABASE_ROUTERS = [Elsewhere()]
    assert check([plant(1)]).left == set()


def test_links_go_from_either_side() -> None:
    bird = Bird.objects.first()
    collector = check([bird])
    assert {model.__name__ for model in collector.deleted} == {"Bird", "Bird_trees", "Bird_friends", "Nest"}


@pytest.mark.parametrize("model", [*tables(), Shade], ids=lambda model: model.__name__)
def test_a_row_of_each_model(model: Any) -> None:
    plant(1)
    grow(1)
    rows = model._base_manager.exclude(pk=1) if model is Tree else model._base_manager
    for row in {rows.order_by("pk").first(), rows.order_by("pk").last()} - {None}:
        check([row])


@pytest.mark.skipif("connection.vendor != 'sqlite'", reason="other databases refuse such values")
def test_rows_with_values_that_nobody_can_read_are_found() -> None:
    tree = plant(1)
    with connection.cursor() as cursor:
        cursor.execute("UPDATE forest_branch SET thickness = 'thick'")
        cursor.execute("UPDATE forest_ring SET width = 'wide'")
        cursor.execute("UPDATE forest_sign SET changed = 'then'")
    check([tree])


def test_many_rows_at_once() -> None:
    check([plant(1), plant(2), plant(3)])


def test_rows_of_several_tables_cost_no_query_each(django_assert_max_num_queries: Any) -> None:
    oaks = [grow(number)[0] for number in range(9)]
    with django_assert_max_num_queries(65) as few:
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

    for model in (Sign, Remark, Ghost):
        model.objects.all().delete()
    tree = Tree.objects.create(name="T", code="T")
    Sign.objects.bulk_create(Sign(tree=tree) for _ in range(9))
    DeletionCollector("default", [tree])
    Remark.objects.create(target=tree)
    with pytest.raises(TooManyRows):
        DeletionCollector("default", [tree])
    Remark.objects.bulk_create(Remark(target=tree) for _ in range(99))
    with pytest.raises(TooManyRows):
        DeletionCollector("default", [tree])


def test_what_is_protected_is_told_as_by_the_deletion() -> None:
    book = make_book()
    with pytest.raises(ProtectedError):
        DeletionCollector("default", [book.author])


@pytest.mark.skipif("well" not in MODELS, reason="Django 6.1 lets the database delete rows")
def test_what_the_database_itself_deletes_and_changes_is_found() -> None:
    well, bucket, drop, rope = (MODELS[name] for name in ("well", "bucket", "drop", "rope"))
    shallow = well.objects.create(pk=1, name="shallow")
    deep = well.objects.create(pk=2, name="deep")
    for which in (shallow, deep):
        for hidden in (False, True):
            made = bucket.objects.create(well=which, hidden=hidden)
            drop.objects.create(bucket_id=made.pk)
        for model in (rope, *([MODELS["pump"]] if "pump" in MODELS else [])):
            model.objects.create(well=which)
    collector = check([deep])
    assert {model.__name__: len(keys) for model, keys in collector.deleted.items()} == {
        "Well": 1,
        "Bucket": 2,
        "Drop": 2,
    }
    assert {model.__name__ for model in collector.changed} == {"Rope", *(["Pump"] if "pump" in MODELS else [])}


def test_a_model_whose_constructor_reads_its_columns_is_read_whole(monkeypatch: Any) -> None:
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        super(Loan, self).__init__(*args, **kwargs)
        self.first = self.borrower, self.due

    book = make_book()
    Loan.objects.create(book=book, borrower="Ada", due=timezone.now())
    monkeypatch.setattr(Loan, "__init__", init)
    assert Loan in DeletionCollector("default", [book]).deleted
