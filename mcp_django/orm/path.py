"""Ways to other models, as far as the caller could follow them by reading row after row.

A path such as ``customer__city__name`` goes through relations to one row: each hop is one that the caller reads, to a
model that they may view, and the column at the end is one that they may read there. A related row that is hidden from
them has no values: what it holds is NULL. Of the rows that point to a row, or are linked with it, only those count that
the caller may view (:class:`Link`).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from hashlib import blake2b
from typing import Any, Final

from django.core.exceptions import FieldDoesNotExist, FieldError
from django.db.models import (
    Case,
    CompositePrimaryKey,
    DecimalField,
    F,
    Field,
    ForeignKey,
    Model,
    OneToOneRel,
    OuterRef,
    Q,
    QuerySet,
    Subquery,
    When,
    Window,
)
from django.db.models.expressions import Col, OrderBy, RawSQL, Star
from django.db.models.sql import Query

from ..context.request import MCPRequest
from ..exceptions import ToolError
from ..exposures.base import ModelExposure
from ..exposures.managers import among
from .access import MAX_NAME, access_of
from .columns import MAX_DIGITS, Column, is_generic_key, is_generic_relation, linked_reader, resolve_column
from .kinds import is_joinable, is_stored_as_text, kind_of
from .lookups import resolve_path
from .wording import alternatives

# Each hop is a join.
MAX_HOPS: Final = 4
# What the names of values begin with that are null where the caller may not see the row.
GUARDED: Final = "mcp_way_"


class NoField(ToolError):
    """A path leads to no field that is of use here: ``accepts`` says of another path whether it does."""

    def __init__(
        self, message: str, exposure: ModelExposure, text: str, known: Sequence[str], accepts: Callable[[str], bool]
    ) -> None:
        super().__init__(f"{message} {alternatives(text.replace('.', '__'), known)}")
        self.lead, self.exposure, self.text, self.known, self.accepts = message, exposure, text, known, accepts


@dataclass(frozen=True, slots=True)
class Target:
    """A column that the caller may read: its ``name``, the ``expression`` of its value, and the column itself.

    ``narrowed`` are the labels of models on the way of which the caller may not see every row. The value is NULL where
    the way leads through a row that they may not see.
    """

    name: str
    column: Column
    expression: Any
    narrowed: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Way:
    """A way through relations to one row: their names, where it leads, and the rows on it that have to be visible."""

    exposure: ModelExposure
    names: tuple[str, ...] = ()
    visible: tuple[Q, ...] = ()
    narrowed: tuple[str, ...] = ()


def is_countable(column: Column) -> bool:
    """Return whether the column is one of the database, whose values are shown as they are stored."""
    return column.is_stored


def is_summable(column: Column) -> bool:
    """Return whether values can be added."""
    is_number = is_countable(column) and column.kind == "field" and kind_of(column.field).summable
    return is_number and not is_stored_as_text(column.field)


def is_comparable(column: Column) -> bool:
    """Return whether one value can be the least."""
    return is_countable(column) and column.kind == "field" and "gt" in kind_of(column.field).lookups


def is_groupable(column: Column) -> bool:
    """Return whether the database can group by the column."""
    return is_countable(column) and kind_of(column.field).sortable


def is_period(column: Column) -> bool:
    """Return whether the column holds dates."""
    return is_countable(column) and kind_of(column.field).word in ("date", "datetime")


def is_ordering(column: Column) -> bool:
    """Return whether all databases sort values alike: numbers, dates and durations."""
    return is_summable(column) or is_period(column)


def target_of(
    request: MCPRequest, exposure: ModelExposure, text: str, usable: Callable[[Column], bool], *more: str
) -> Target:
    """Return the column of a field, or of a path such as ``customer__country``, that is ``usable``.

    The caller has to be able to follow the path by reading: each field on it is visible, and so is the model that it
    leads to. ``more`` are further valid names for the message.
    """
    given, text = text, text.replace(".", "__")
    *hops, last = _names(text)
    way = follow(request, exposure, hops)
    # The exposure may list a path as a field of its own.
    ends = [(Way(exposure), text)] + ([(way, last)] if len(way.names) == len(hops) else [])
    for end, name in ends:
        found = _found(request, exposure, end, name, usable)
        if found is not None:
            return found
    known = [
        "__".join([*way.names, name])
        for name in access_of(request)[way.exposure].fields
        if _found(request, exposure, way, name, usable) is not None
    ]

    def accepts(path: str) -> bool:
        try:
            return target_of(request, exposure, path, usable) is not None
        except NoField:
            return False

    message = f"{exposure.label} has no field {text[:60]!r} for this.{hops_told(request, exposure, text)}"
    raise NoField(message, exposure, given, [*known, *more], accepts)


def related_column(request: MCPRequest, exposure: ModelExposure, text: str) -> Column | None:
    """Return the column of a related row, such as ``customer__email`` or ``customer.email``; None for no such column.

    Where the caller may not see every row on the way, its ``path`` is a name for what :func:`guarded_values` gives.
    """
    *hops, last = _names(text)
    way = follow(request, exposure, hops)
    column = _visible_column(request, way.exposure, last) if hops and len(way.names) == len(hops) else None
    if column is None or not is_countable(column) or kind_of(column.field).word in ("file", "image"):
        return None
    return _through(way.names, column, bool(way.narrowed))


@lru_cache(maxsize=4096)
def _through(names: tuple[str, ...], column: Column, guarded: bool) -> Column:
    name, path = "__".join([*names, column.name]), "__".join([*names, column.path])
    if guarded:
        # A column of the result cannot have a name that is a path.
        path = f"{GUARDED}{blake2b(path.encode(), digest_size=8).hexdigest()}"
    return Column(name, column.kind, path=path, field=column.field, through=names)


def guarded_values(request: MCPRequest, exposure: ModelExposure, columns: Sequence[Column]) -> Mapping[str, Any]:
    """Return the values of columns of related rows not all of which the caller may see, by their paths."""
    found = {}
    for column in columns:
        if column.is_guarded:
            way = follow(request, exposure, column.through)
            source = _visible_column(request, way.exposure, column.name.rpartition("__")[2])
            assert source is not None
            found[column.path] = _target(way, source).expression
    return found


def names_behind(request: MCPRequest, exposure: ModelExposure, text: str) -> list[str]:
    """Return the paths that begin as this one does, as far as the caller can follow it: for messages."""
    *hops, _ = _names(text)
    way = follow(request, exposure, hops)
    paths = ("__".join([*way.names, name]) for name in access_of(request)[way.exposure].fields)
    return [path for path in paths if related_column(request, exposure, path) is not None]


def hops_told(request: MCPRequest, exposure: ModelExposure, text: str) -> str:
    """Return what to say of a path that leads on from where paths end; "" of any other."""
    *hops, _ = _names(text)
    is_longer = len(hops) > MAX_HOPS and len(follow(request, exposure, hops).names) == MAX_HOPS
    return f" A path goes through at most {MAX_HOPS} relations." if is_longer else ""


def _names(text: str) -> list[str]:
    """Return the names of a path, which are joined by dots or by two underscores."""
    return text.replace(".", "__").split("__") if len(text) <= MAX_NAME else [text]


def _visible_column(request: MCPRequest, exposure: ModelExposure, text: str) -> Column | None:
    name = access_of(request)[exposure].field_named(text)
    return resolve_column(exposure, name) if name is not None else None


def computed_target(
    request: MCPRequest, exposure: ModelExposure, text: str, usable: Callable[[Column], bool]
) -> Target | None:
    """Return a column that the admin computes, of this model or behind foreign keys; None for any other column."""
    *hops, last = _names(text)
    way = follow(request, exposure, hops)
    column = _visible_column(request, way.exposure, last) if len(way.names) == len(hops) else None
    computed = column is not None and column.kind == "computed"
    return _found(request, exposure, way, last, usable) if computed else None


def computed_word(request: MCPRequest, exposure: ModelExposure, name: str) -> str:
    """Return the type of a column that the admin computes, where the caller can ask for it; "" if it is only shown."""
    target = computed_target(request, exposure, name, lambda column: True)
    return kind_of(target.column.field).word if target is not None else ""


def _found(
    request: MCPRequest, exposure: ModelExposure, way: Way, name: str, usable: Callable[[Column], bool]
) -> Target | None:
    """Return the column at the end of the way, None for one that is of no use or not for this caller."""
    column = _visible_column(request, way.exposure, name)
    if column is None or column.kind != "computed":
        return _target(way, column) if column is not None and usable(column) else None
    return _computed(request, exposure, way, column, usable)


def _computed(
    request: MCPRequest, exposure: ModelExposure, way: Way, column: Column, usable: Callable[[Column], bool]
) -> Target | None:
    """Return a column that the admin computes, by what it is sorted by: a path, or an expression."""
    name, source = "__".join([*way.names, column.name]), order_source(column)
    if column.order_field is not None and isinstance(source, str) and resolve_path(way.exposure.model, source):
        *hops, last = [*way.names, *source.split("__")]
        end = follow(request, exposure, hops)
        plain = _visible_column(request, end.exposure, last) if len(end.names) == len(hops) else None
        if plain is None or not usable(plain) or (column.shows_truth and kind_of(plain.field).word != "boolean"):
            return None
        return replace(_target(end, plain), name=name)
    made = computed_value(request, way.exposure, column, "__".join([*way.names, "pk"]))
    if made is None or not usable(made[0]):
        return None
    return Target(name, made[0], _guarded(way, made[1]), way.narrowed)


def follow(request: MCPRequest, exposure: ModelExposure, hops: Sequence[str]) -> Way:
    """Return the way as far as the caller can follow it."""
    way = Way(exposure)
    for hop in hops[:MAX_HOPS]:
        relation = _to_one(request, way.exposure, hop)
        related = access_of(request).exposure_of(relation.related_model) if relation is not None else None
        if related is None:
            break
        names = (*way.names, relation.name)
        guard = _guard(request, related, relation, names)
        visible, narrowed = ((guard,), (related.label,)) if guard is not None else ((), ())
        way = Way(related, names, way.visible + visible, way.narrowed + narrowed)
    return way


def _guard(request: MCPRequest, related: ModelExposure, relation: Any, names: Sequence[str]) -> Q | None:
    """Return the condition that the row at the end of ``names`` is one that the caller may view, None where all are."""
    if access_of(request)[related].sees_every_row:
        return None
    key = relation.target_field.attname if relation.concrete else related.opts.pk.attname
    rows = related.get_queryset(request).order_by().values(key)
    return Q(("__".join(names if relation.concrete else [*names, "pk"]) + "__in", rows))


def guards_on(request: MCPRequest, model: Any, path: str) -> tuple[Q, ...] | None:
    """Return what rows along a path of the project's own have to meet to be the caller's.

    None stands for a path through a model that the caller may not view, or into another database. One that is exposed
    to nobody hides nothing: what the project declared on it stands.
    """
    found: list[Q] = []
    names = path.split("__")
    for position, name in enumerate(names[:-1]):
        try:
            relation = model._meta.get_field(model._meta.pk.name if name == "pk" else name)
        except FieldDoesNotExist:
            break
        model = relation.related_model
        if model is None:
            break
        if not is_joinable(relation):
            return None
        if model in request.mcp.site.exposures:
            related = access_of(request).exposure_of(model)
            if related is None:
                return None
            guard = _guard(request, related, relation, names[: position + 1])
            found += [guard] if guard is not None else []
    return tuple(found)


def _to_one(request: MCPRequest, exposure: ModelExposure, name: str) -> Any:
    """Return the relation to one row that has this name here: a foreign key, or the other end of a one-to-one field."""
    column = resolve_column(exposure, name) if name in access_of(request)[exposure].fields else None
    if column is not None and column.kind == "relation":
        return column.field if column.is_plain and is_joinable(column.field) else None
    link = link_of(request, exposure, name)
    # Instances and queries have to know it by one name.
    if link is None or not isinstance(link.field, OneToOneRel) or link.field.name != link.field.get_accessor_name():
        return None
    return link.field if not link.exposure.opts.is_composite_pk else None


def _target(way: Way, column: Column) -> Target:
    value = _guarded(way, F("__".join([*way.names, column.path])))
    return Target("__".join([*way.names, column.name]), column, value, way.narrowed)


def _guarded(way: Way, value: Any) -> Any:
    """Return the value, which is NULL where the way leads through a row that the caller may not see."""
    return Case(When(Q(*way.visible), then=value)) if way.narrowed else value


# Related rows


@dataclass(frozen=True, slots=True)
class Link:
    """A relation to other rows, to one or to several: its name, the field as Django has it, and the rows' exposure."""

    name: str
    field: Any
    exposure: ModelExposure

    @property
    def to_many(self) -> bool:
        """Whether a row can have several related rows."""
        return bool(self.field.many_to_many or self.field.one_to_many)


def link_of(request: MCPRequest, exposure: ModelExposure, text: str) -> Link | None:
    """Return the relation of that name, None where the caller could not find the related rows by reading.

    The caller reads the relation here, or the foreign key that makes it, there. It has the name of the field, or the
    one by which Django's queries or instances know it.
    """
    column = resolve_column(exposure, text) if text in access_of(request)[exposure].fields else None
    if column is not None:
        field = column.field if column.is_plain or column.kind in ("many", "reverse") else None
    else:
        field = _pointing(exposure).get(text)
        there = access_of(request).exposure_of(field.related_model) if field is not None else None
        if field is None or there is None or access_of(request)[there].field_named(field.field.name) is None:
            return None
    if field is None or not field.is_relation or is_generic_key(field) or is_generic_relation(field):
        return None
    related = access_of(request).exposure_of(field.related_model)
    return Link(text, field, related) if related is not None and is_joinable(field) else None


@lru_cache(maxsize=1024)
def _pointing(exposure: ModelExposure) -> Mapping[str, Any]:
    """Return the relations of other models to this one, by their names in queries and on instances."""
    found: dict[str, Any] = {}
    for rel in exposure.opts.related_objects:
        if not rel.hidden and not isinstance(rel.field.target_field, CompositePrimaryKey):
            found |= {str(rel.get_accessor_name()): rel, rel.name: rel}
    return found


def links_of(request: MCPRequest, exposure: ModelExposure) -> list[Link]:
    """Return the relations to several rows that the caller can follow from here, each by one name."""
    names = [*access_of(request)[exposure].fields, *(rel.get_accessor_name() for rel in exposure.opts.related_objects)]
    links = (link_of(request, exposure, name) for name in dict.fromkeys(names) if name)
    found: dict[Any, Link] = {}
    for link in links:
        if link is not None and link.to_many:
            found.setdefault(link.field, link)
    return list(found.values())


def linked_rows(request: MCPRequest, link: Link) -> QuerySet[Any]:
    """Return the related rows of the row that the query around is about, which are the caller's to see."""
    rows, related = linked(link), link.exposure
    if access_of(request)[related].sees_every_row:
        return rows
    return rows.filter(among(related.get_queryset(request)))


def linked(link: Link) -> QuerySet[Any]:
    """Return the related rows of the row that the query around is about, whoever may see them."""
    rows = link.exposure.model._base_manager.order_by()
    return _linked_to(link, rows, OuterRef(OuterRef("pk")), OuterRef)


def rows_linked_to(link: Link, row: Model, queryset: QuerySet[Any]) -> QuerySet[Any]:
    """Return those rows of the queryset, which is one of the related model, that are related to the row."""
    return _linked_to(link, queryset, row.pk, partial(getattr, row))


def _linked_to(link: Link, rows: QuerySet[Any], pk: Any, value: Callable[[str], Any]) -> QuerySet[Any]:
    """Return the rows that are related to a row with this ``pk``, which has ``value`` of its columns."""
    field = link.field
    if field.many_to_many:
        if isinstance(field, Field) and linked_reader(field) is not None:
            # A relation of another class keeps its links in its own way, which a path alone knows.
            return rows.filter(pk__in=field.model._base_manager.filter(pk=pk).order_by().values(field.name))
        through, source, target = link_table(field)
        return rows.filter(pk__in=through._base_manager.filter(**{source: pk}).order_by().values(target))
    if field.concrete:
        return rows.filter(**{field.target_field.attname: value(field.attname)})
    return rows.filter(**{field.field.attname: value(field.field.target_field.attname)})


def link_table(field: Any) -> tuple[type[Model], str, str]:
    """Return the model of a many-to-many relation's table, and its columns for this row and for the related one."""
    forward = isinstance(field, Field)
    own = field if forward else field.field
    through = field.remote_field.through if forward else field.through
    names = (own.m2m_field_name(), own.m2m_reverse_field_name())
    source, target = (through._meta.get_field(name).attname for name in (names if forward else reversed(names)))
    return through, source, target


# The name of the value in its subquery.
VALUE: Final = "mcp_computed"
# Of decimals that the database computes.
PLACES: Final = 6
_OPAQUE: Final = (RawSQL, Star, Window)


# Columns that the admin computes. Such a value is made by code of the project, of whatever rows it names. It is the
# caller's to measure where they could read all that it is made of: each column, and of other models all rows.


def order_source(column: Column) -> Any:
    """Return what a computed column is sorted by, without a direction: a name, an expression, or its own name."""
    order = column.order_field if column.order_field is not None else column.name
    order = order.expression if isinstance(order, OrderBy) else order
    order = order.name if isinstance(order, F) else order  # type: ignore[attr-defined]
    return order.lstrip("+-") if isinstance(order, str) else order


def parts_of(expression: Any) -> Iterator[Any]:
    """Yield an expression and all that it is made of, conditions too."""
    yield expression
    for part in expression.get_source_expressions() if hasattr(expression, "get_source_expressions") else ():
        if part is not None:
            yield from parts_of(part)


def computed_value(
    request: MCPRequest, exposure: ModelExposure, column: Column, pk: str
) -> tuple[Column, "Subquery"] | None:
    """Return the column's values as those of a column, and their expression for a query that has the key as ``pk``.

    None stands for a value that the database does not compute, or that is made of what the caller may not read.
    """
    source = order_source(column)
    rows = exposure.get_queryset(request).order_by()
    if column.kind != "computed" or exposure.opts.is_composite_pk or rows.query.is_sliced or rows.query.combinator:
        return None
    if column.order_field is None and source not in rows.query.annotation_select:
        return None
    try:
        rows = rows.annotate(**{VALUE: F(source) if isinstance(source, str) else source})
        found = rows.query.annotations[VALUE]
        field = found.output_field
    except (FieldError, TypeError, ValueError):
        return None
    if not is_readable(request, exposure, rows, found) or (column.shows_truth and kind_of(field).word != "boolean"):
        return None
    if kind_of(field).word == "decimal" and field.decimal_places is None:
        field = DecimalField(max_digits=MAX_DIGITS, decimal_places=PLACES)
    value = Subquery(rows.filter(pk=OuterRef(pk)).values(VALUE)[:1], output_field=field)
    return Column(column.name, "field", field=field), value


def is_readable(
    request: MCPRequest, exposure: ModelExposure, rows: QuerySet[Any], expression: Any, *, nested: bool = False
) -> bool:
    """Return whether the caller could read all columns and rows that the value is made of, by subqueries if nested."""
    query: Any = rows.query
    own = _own_tables(query)
    parts = list(parts_of(expression))
    if any(isinstance(part, _OPAQUE) for part in parts):
        return False
    inner = [part for part in parts if isinstance(part, Query)]
    if not all(nested and _reads_query(request, exposure, part, own) for part in inner):
        return False
    columns = [part for part in parts if isinstance(part, Col)]
    if not all(_reads(request, exposure, column.target, column.alias in own) for column in columns):
        return False
    if expression.contains_aggregate:
        # What is joined for other reasons is counted with.
        joins = [alias for alias, count in query.alias_refcount.items() if count]
    else:
        joins = [alias for column in columns for alias in _way_to(query, column.alias)]
    return all(
        _follows(request, exposure, query.alias_map[alias], own, several=expression.contains_aggregate)
        for alias in joins
        if alias not in own
    )


def _reads_query(request: MCPRequest, exposure: ModelExposure, query: Any, own: set[str]) -> bool:
    """Return whether the caller could read the columns and rows of a subquery of one table."""
    found = [part for source in (*query.select, *query.annotations.values(), query.where) for part in parts_of(source)]
    tables = [alias for alias, count in query.alias_refcount.items() if count]
    names = [name.lstrip("+-") if isinstance(name, str) else "" for name in query.order_by]
    sorted_by = [resolve_path(query.model, name) for name in names]
    if len(tables) > 1 or query.combinator or not _sees_all(request, query.model) or None in sorted_by:
        return False
    columns = [part for part in found if isinstance(part, Col)]
    inside = [column.target for column in columns if column.alias in query.alias_map]
    inside += [path.field for path in sorted_by if path is not None and "__" not in path.column]
    outside = [column for column in columns if column.alias not in query.alias_map]
    return (
        not any(isinstance(part, (*_OPAQUE, Query)) for part in found)
        and not any("__" in name for name in names)
        and all(_reads(request, exposure, target, False) for target in inside)
        and all(column.alias in own and _reads(request, exposure, column.target, True) for column in outside)
    )


def _own_tables(query: Any) -> set[str]:
    """Return the tables that hold the row itself: the model's, and those of its parents."""
    own = {query.get_initial_alias()}
    for alias, join in query.alias_map.items():
        field = getattr(join, "join_field", None)
        if field is not None and join.parent_alias in own and isinstance(field, ForeignKey):
            own |= {alias} if field.remote_field.parent_link else set()
    return own


def _way_to(query: Any, alias: str) -> Iterator[str]:
    """Yield the tables that lead to one from the model's own."""
    while getattr(query.alias_map[alias], "parent_alias", None) is not None:
        yield alias
        alias = query.alias_map[alias].parent_alias


def _follows(request: MCPRequest, exposure: ModelExposure, join: Any, own: set[str], *, several: bool) -> bool:
    """Return whether the caller could follow a join, to rows all of which they may view."""
    field = join.join_field
    key = field if isinstance(field, ForeignKey) else getattr(field, "field", None)
    if join.filtered_relation is not None or not isinstance(key, ForeignKey):
        return False
    if field is not key and not several and not key.unique:
        return False
    if not _reads(request, exposure, key, field is key and join.parent_alias in own):
        return False
    return bool(field.related_model._meta.auto_created) or _sees_all(request, field.related_model)


def _sees_all(request: MCPRequest, model: Any) -> bool:
    related = access_of(request).exposure_of(model)
    return related is not None and access_of(request)[related].sees_every_row


def _reads(request: MCPRequest, exposure: ModelExposure, field: Any, is_own: bool) -> bool:
    """Return whether the caller reads the field as it is stored: on the row itself, or on all rows of its model."""
    owner = field.model._meta.auto_created
    if owner:
        # The table of a many-to-many relation, which is read as that.
        relation = next(item for item in owner._meta.local_many_to_many if item.remote_field.through is field.model)
        there = exposure if issubclass(exposure.model, owner) else access_of(request).exposure_of(owner)
        if there is None or access_of(request)[there].field_named(relation.name) is None:
            return False
        leads_to = field.related_model
        return leads_to is not None and (issubclass(exposure.model, leads_to) or _sees_all(request, leads_to))
    there = exposure if is_own else access_of(request).exposure_of(field.model)
    if there is None or not (is_own or access_of(request)[there].sees_every_row):
        return False
    name = access_of(request)[there].field_named(field.name)
    column = resolve_column(there, name) if name is not None else None
    return column is not None and column.is_stored
