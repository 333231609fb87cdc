"""Subqueries on related rows: whether there is one, and how many there are."""

from typing import Any

from django.db.models import CompositePrimaryKey, Count, Exists, IntegerField, QuerySet, Subquery


class Some(Exists):
    """The condition of a filter that some related row exists: its SQL has no own parameter, so it can be kept."""

    def __init__(self, queryset: QuerySet[Any], **kwargs: Any) -> None:
        # Exists.__init__() would select a number in place of the columns, and that is a parameter.
        Subquery.__init__(self, queryset, **kwargs)

    def as_sql(self, compiler: Any, connection: Any, *args: Any, **kwargs: Any) -> Any:
        """Return the query as it is."""
        return Subquery.as_sql(self, compiler, connection, *args, **kwargs)


class Number(Subquery):
    """The number of rows of a query."""

    template = "(SELECT COUNT(*) FROM (%(subquery)s) mcp_counted)"
    output_field = IntegerField()

    def as_mysql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        """Return the query with the count in it: MySQL lets a derived table use no column of the outer query."""
        query: Any = self.query.clone()
        if query.distinct or query.combinator or query.is_sliced or query.group_by is not None:
            query = query.model._base_manager.filter(pk__in=query).query

        # A row that a join repeats counts once. No join repeats a row with a composite key, which cannot be counted so.
        is_composite = isinstance(query.model._meta.pk, CompositePrimaryKey)
        count = Count("*") if is_composite else Count("pk", distinct=True)
        query.clear_select_clause()
        query.add_annotation(count, "mcp_counted")

        copy: Any = self.copy()
        copy.query = query
        return copy.as_sql(compiler, connection, template="(%(subquery)s)", **extra)
