"""Instances from a plan: Django's query compiled once, and Django's own iterable over what its SQL gives.

Compiling is a third of what a page of instances costs. How a row becomes an instance with its related ones is left to
``ModelIterable``, for which a kept query stands in for the queryset and its compiler.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from django.db import router
from django.db.models import F, Model, Q, QuerySet
from django.db.models.fields.related_descriptors import ForwardManyToOneDescriptor
from django.db.models.lookups import Exact
from django.db.models.query import ModelIterable

from ..exceptions import ToolError
from .managers import follows_every_row
from .plans import Bind, Plan, Slot, cached_plan, plan_of, prepare
from .shapes import Shape, shape_of, with_slots
from .unreadable import LOST


@dataclass(frozen=True, slots=True, eq=False)
class InstancePlan:
    """A plan whose rows are instances, and what a compiler knows of its columns: which field of which instance."""

    plan: Plan
    select: Any
    klass_info: Any
    annotation_col_map: Any

    @property
    def has_own_params(self) -> bool:
        """See :class:`~mcp_django.orm.plans.Plan`."""
        return self.plan.has_own_params


def shape_of_instances(queryset: QuerySet[Any], using: str) -> Shape | None:
    """Return the shape of a queryset whose instances come from its SQL alone, with what it loads with each."""
    rows: Any = queryset
    if rows._iterable_class is not ModelIterable or rows._prefetch_related_lookups or rows._known_related_objects:
        return None
    shape = shape_of(queryset, using)
    if shape is None:
        return None
    names, is_defer = rows.query.deferred_loading
    return Shape((shape.key, _frozen(rows.query.select_related), frozenset(names), is_defer), shape.values)


def _frozen(related: Any) -> Any:
    return tuple((name, _frozen(inner)) for name, inner in related.items()) if isinstance(related, dict) else related


def compile_instances(queryset: QuerySet[Any], using: str) -> InstancePlan:
    """Return the plan of a queryset of instances, whose filters may hold :class:`~mcp_django.orm.plans.Bind`."""
    rows: Any = queryset
    compiler = rows.query.get_compiler(using=using)
    plan = plan_of(compiler)
    return InstancePlan(plan, compiler.select, compiler.klass_info, compiler.annotation_col_map)


def row_by_key(queryset: QuerySet[Any], key: Any) -> list[Model] | None:
    """Return the row with a primary key, if there is one; None where it takes another road to know.

    Raises:
        ToolError: no row of the database can have the key.
    """
    using = queryset.db
    own = shape_of_instances(queryset, using)
    if own is None:
        return None
    opts = queryset.model._meta
    params = key_params(opts, key, using)

    def build() -> InstancePlan:
        rows = with_slots(queryset, len(params)).filter(by_key(opts)).order_by()
        return compile_instances(rows[:1], using)

    plan = cached_plan((InstancePlan, queryset.model, using, own.key), build)
    return instances_of(plan, using, [*params, *own.values], queryset)


def load_related(row: Model, field: Any) -> None:
    """Load the row that a foreign key leads to, as its attribute does, where a plan can: no way of its own is asked."""
    related: Any = field.related_model
    own = type(getattr(type(row), field.name, None)) is ForwardManyToOneDescriptor
    if not own or not follows_every_row(related) or len(field.foreign_related_fields) != 1 or field.is_cached(row):
        return
    using = router.db_for_read(related, instance=row)
    target: Any = field.target_field
    rows = related._base_manager.using(using)

    def build() -> InstancePlan:
        return compile_instances(rows.filter(Q(Exact(F(target.attname), Bind(Slot(0))))).order_by()[:1], using)

    try:
        params = [prepare(target, getattr(row, field.attname), using)]
    except ToolError:
        return
    found = instances_of(cached_plan((InstancePlan, related, target, using), build), using, params, rows)
    if found:
        field.set_cached_value(row, found[0])


def key_params(opts: Any, key: Any, using: str) -> list[Any]:
    """Return the parts of a primary key, prepared for the database.

    Raises:
        ToolError: the database has no such value.
    """
    fields = opts.pk_fields
    parts = [key] if len(fields) == 1 else key
    return [prepare(field, part, using) for field, part in zip(fields, parts, strict=True)]


def by_key(opts: Any) -> Q:
    """Return the condition that the primary key is what the first slots hold."""
    condition = Q()
    for index, field in enumerate(opts.pk_fields):
        condition &= Q(Exact(F(field.attname), Bind(Slot(index))))
    return condition


def instances_of(plan: InstancePlan, using: str, values: Sequence[Any], queryset: QuerySet[Any]) -> list[Model] | None:
    """Return the instances; None where a value cannot be read. ``queryset`` is that of the call."""
    columns = plan.plan.columns(using, values)
    if not columns:
        return []
    if any(value is LOST for column in columns for value in column):
        return None
    kept: Any = _Kept(plan, using, list(zip(*columns, strict=True)), queryset)
    return list(ModelIterable(kept))


class _Kept:
    """What ``ModelIterable`` asks of a queryset, of its query and of its compiler, without compiling anything."""

    _known_related_objects: ClassVar[dict[Any, Any]] = {}

    def __init__(self, plan: InstancePlan, using: str, rows: list[Any], queryset: Any) -> None:
        self.db, self.model, self.rows = using, queryset.model, rows
        self.select, self.klass_info = plan.select, plan.klass_info
        self.annotation_col_map = plan.annotation_col_map
        # Django 6.1: how what was not loaded is fetched.
        self._fetch_mode = getattr(queryset, "_fetch_mode", None)

    @property
    def query(self) -> "_Kept":
        return self

    def get_compiler(self, using: str) -> "_Kept":
        return self

    def execute_sql(self, **options: Any) -> None:
        """Do nothing: the rows are there."""

    def results_iter(self, results: None) -> Iterator[Any]:
        """Return the rows."""
        return iter(self.rows)
