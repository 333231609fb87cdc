"""The rows of a query as a table of their own: ``SELECT ... FROM (SELECT ...) AS entries``."""

from typing import Any

from django.db.models import Model, QuerySet
from django.db.models.sql.datastructures import BaseTable


class _Derived(BaseTable):
    """A query in the place of a table."""

    def __init__(self, table_name: str, alias: str, rows: QuerySet[Any]) -> None:
        super().__init__(table_name, alias)
        self.rows = rows

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, Any]:
        """Return the query in brackets, and its alias."""
        sql, params = self.rows.query.get_compiler(connection=connection).as_sql()
        # Under another name since Django 6.1.
        quote = getattr(compiler, "quote_name", None) or compiler.quote_name_unless_alias
        return f"({sql}) {quote(self.table_alias)}", params

    def relabeled_clone(self, change_map: dict[str | None, str]) -> "_Derived":
        """Return the same rows under another alias."""
        return _Derived(self.table_name, change_map.get(self.table_alias, str(self.table_alias)), self.rows)


def derived(model: type[Model], rows: QuerySet[Any]) -> QuerySet[Any]:
    """Return instances of ``model`` whose columns are those that the query ``rows`` gives, by their names.

    What is asked of them, filters and groups too, is asked of the query's rows, in the database.
    """
    found: QuerySet[Any] = model._base_manager.using(rows.db)
    alias = found.query.get_initial_alias()
    found.query.alias_map[alias] = _Derived(model._meta.db_table, alias, rows)
    # A query without conditions would be taken for that of every row of a table.
    return found.filter(pk__isnull=False)


def is_derived(rows: QuerySet[Any]) -> bool:
    """Return whether the rows are those of a query in the place of their table."""
    return any(isinstance(table, _Derived) for table in rows.query.alias_map.values())
