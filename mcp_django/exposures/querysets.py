"""Default managers of a project: whether they return every row, and querysets that accept filters and an order.

Also querysets whose table is a subquery: ``SELECT ... FROM (SELECT ...) AS entries``.
"""

from functools import lru_cache
from typing import Any, Final

from django.db.models import Exists, Model, OuterRef, Q, QuerySet
from django.db.models.manager import BaseManager
from django.db.models.sql.constants import LOUTER
from django.db.models.sql.datastructures import BaseTable
from django.db.models.sql.query import Query

# Methods of a queryset with which a project's own class could decide which rows there are.
DECIDING: Final = (
    *("__getitem__", "__init__", "__iter__", "_chain", "_clone", "_fetch_all", "_filter_or_exclude", "_iterator"),
    *("filter", "query"),
)


def gives_every_row(model: type[Model]) -> bool:
    """Return whether the queryset of a model's default manager has every row of the table."""
    manager: Any = model._default_manager
    return type(manager).get_queryset is BaseManager.get_queryset and is_plain(manager._queryset_class)


def follows_every_row(model: type[Model]) -> bool:
    """Return whether the queryset of a model's base manager, which foreign keys follow, has every row."""
    manager: Any = model._base_manager
    return type(manager).get_queryset is BaseManager.get_queryset and is_plain(manager._queryset_class)


@lru_cache(maxsize=1024)
def is_plain(queryset_class: type[QuerySet[Any]]) -> bool:
    """Return whether a queryset class leaves Django's methods that decide on rows as they are."""
    return all(getattr(queryset_class, name, None) is getattr(QuerySet, name, None) for name in DECIDING)


def leaves_out_nothing(queryset: QuerySet[Any]) -> bool:
    """Return whether a caller's queryset has every row of the table."""
    rows: Any = queryset
    query = rows.query
    narrowed = query.where or query.is_sliced or query.combinator or query.distinct_fields or query.extra_tables
    if narrowed or rows._db is not None or _has_values(queryset) or not is_plain(type(queryset)):
        return False
    joins = (join for alias, join in query.alias_map.items() if query.alias_refcount.get(alias))
    return all(join.join_type in (None, LOUTER) for join in joins)


def filterable(queryset: QuerySet[Any]) -> QuerySet[Any]:
    """Return a queryset with the same rows as the given one that can be filtered and ordered.

    A queryset that is combined, sliced, ``DISTINCT ON``, of values or filtered by a window function accepts neither, so
    its keys become a subquery.
    """
    query: Any = queryset.query
    is_whole = query.combinator or query.is_sliced or query.distinct_fields or query.where.contains_over_clause
    if not (is_whole or _has_values(queryset)):
        return queryset
    return queryset.__class__(queryset.model, using=queryset.db).filter(pk__in=Keys.of(queryset))


class Keys(Query):
    """The primary keys of rows as a subquery, also of rows of which there is a limited number."""

    @classmethod
    def of(cls, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the subquery of the keys of a queryset's rows, for ``pk__in``."""
        query: Any = queryset.query
        keys = (queryset if query.is_sliced or query.distinct_fields else queryset.order_by()).values("pk")
        if query.is_sliced or query.combinator:
            keys.query = keys.query.chain(cls)
        return keys

    def as_mysql(self, compiler: Any, connection: Any) -> tuple[str, Any]:
        """Return the subquery with a derived table in it: MySQL takes no LIMIT in a subquery itself."""
        sql, params = self.as_sql(compiler, connection)
        return f"(SELECT * FROM {sql} mcp_keys)", params


def among(queryset: QuerySet[Any]) -> Q:
    """Turn a queryset of an exposure into an ``EXISTS`` test that a row is in it, for use inside another subquery. The
    row is looked up by its key; for an ``IN (SELECT ...)``, SQLite would scan all keys again for each row."""
    return Q(Exists(filterable(queryset).order_by().filter(pk=OuterRef("pk"))))


def _has_values(queryset: Any) -> bool:
    return queryset._fields is not None


class DerivedTable(BaseTable):
    """A query in the place of a table."""

    def __init__(self, table_name: str, alias: str, rows: QuerySet[Any]) -> None:
        super().__init__(table_name, alias)
        self.rows = rows

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, Any]:
        """Return the query in brackets, and its alias."""
        sql, params = self.rows.query.get_compiler(connection=connection).as_sql()
        # Django 6.1 has renamed the method.
        quote = getattr(compiler, "quote_name", None) or compiler.quote_name_unless_alias
        return f"({sql}) {quote(self.table_alias)}", params

    def relabeled_clone(self, change_map: dict[str | None, str]) -> "DerivedTable":
        """Return the same rows under another alias."""
        return DerivedTable(self.table_name, change_map.get(self.table_alias, str(self.table_alias)), self.rows)

    @classmethod
    def queryset(cls, model: type[Model], rows: QuerySet[Any]) -> QuerySet[Any]:
        """Return a queryset of ``model`` whose table is the subquery ``rows``. Everything, filters and groups too,
        applies to the rows of the subquery, in the database."""
        found: QuerySet[Any] = model._base_manager.using(rows.db)
        alias = found.query.get_initial_alias()
        found.query.alias_map[alias] = cls(model._meta.db_table, alias, rows)
        # Without a condition, ``leaves_out_nothing()`` would take it for all rows of the table.
        return found.filter(pk__isnull=False)

    @classmethod
    def is_in(cls, rows: QuerySet[Any]) -> bool:
        """Return whether the queryset's table is a subquery."""
        return any(isinstance(table, cls) for table in rows.query.alias_map.values())
