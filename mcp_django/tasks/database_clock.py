"""The clock of the database: leases hold whatever the clocks of the hosts say."""

from typing import Any

from django.db.models import BigIntegerField, Func


class DatabaseClock(Func):
    """The time of the database in a query: milliseconds since 1970, an integer."""

    template = "%(function)s"
    arity = 0
    output_field = BigIntegerField()

    def as_postgresql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """Return the SQL of the statement's time on PostgreSQL."""
        sql = "CAST(EXTRACT(EPOCH FROM STATEMENT_TIMESTAMP()) * 1000 AS bigint)"
        return self.as_sql(compiler, connection, function=sql, **context)

    def as_mysql(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """Return the SQL of the statement's time on MySQL, whatever the time zone of the session."""
        sql = "CAST(TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6)) DIV 1000 AS SIGNED)"
        return self.as_sql(compiler, connection, function=sql, **context)

    def as_sqlite(self, compiler: Any, connection: Any, **context: Any) -> Any:
        """Return the SQL of the statement's time on SQLite."""
        sql = "CAST((JULIANDAY('now') - 2440587.5) * 86400000 AS integer)"
        return self.as_sql(compiler, connection, function=sql, **context)
