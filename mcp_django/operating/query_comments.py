"""SQL comments (``TELEMETRY['sql_comments']``) let a database's own views and logs show who sent a query.

They have the format of sqlcommenter (google/sqlcommenter, spec) and stand at the end of the statement, where they do
not change its plan. Values are percent-encoded down to letters, digits and ``_.-~``, so that no text of a client can
end the comment or be taken for a parameter.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from typing import Any, Final
from urllib.parse import quote

from django.db import connections
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.backends.signals import connection_created

from ..conf import settings
from ..context.call_record import CallRecord

# The key, in the context of Django's execute_wrappers, of the SQL before the call's comment was added.
PLAIN_SQL: Final = "mcp_django.sql"
# Maximum characters of each value before it is encoded.
MAX_VALUE: Final = 100


def comment_of(record: CallRecord, *, is_shared: bool = False) -> str:
    """Return the SQL comment for a call's queries: application, client, tool and ``traceparent``.

    ``is_shared`` leaves out the ``traceparent``, which is different for each call.
    """
    client = record.client_id or record.client_name
    return _comment(settings.SERVER["name"], client, record.tool, "" if is_shared else record.traceparent)


@lru_cache(maxsize=512)
def _comment(application: str, client: str, tool: str, traceparent: str) -> str:
    # Sorted by name, as sqlcommenter requires.
    values = {"application": application, "client": client, "tool": tool, "traceparent": traceparent}
    pairs = (f"{name}='{_encoded(value)}'" for name, value in values.items() if value)
    return f"/*{','.join(pairs)}*/"


def _encoded(text: str) -> str:
    return quote(text[:MAX_VALUE], safe="", errors="replace")


def annotate(execute: Callable[..., Any], sql: Any, params: Any, many: bool, context: Mapping[str, Any]) -> Any:
    """Execute a query with the SQL comment of the current call: an ``execute_wrapper`` of Django's.

    Statements that are not text, or that already end with a comment, stay as they are.
    """
    record = CallRecord.current.get()
    if record is None or not isinstance(sql, str) or sql.rstrip().endswith("*/"):
        return execute(sql, params, many, context)
    connection = context["connection"]
    # Oracle and prepared statements reuse a plan only for the same text, so it must not change with each call.
    is_prepared = getattr(connection.connection, "prepare_threshold", None) is not None
    comment = comment_of(record, is_shared=connection.vendor == "oracle" or is_prepared)
    if many or params is not None:
        comment = comment.replace("%", "%%")
    # Wrappers that read the statement get it without the comment, which contains text from the client.
    return execute(f"{sql} {comment}", params, many, {**context, PLAIN_SQL: sql})


def annotate_queries() -> None:
    """Add SQL comments to the queries of all database connections of this process."""
    connection_created.connect(_watch, dispatch_uid="mcp_django.comments")
    for connection in connections.all(initialized_only=True):
        _watch(connection=connection)


def _watch(*, connection: BaseDatabaseWrapper, **kwargs: Any) -> None:
    if annotate not in connection.execute_wrappers:
        connection.execute_wrappers.insert(0, annotate)


@contextmanager
def reading() -> Iterator[list[str]]:
    """Around a hook of the project, failing or not, yield a list that gets the SQL of its queries in this thread."""
    seen: list[str] = []

    def note(execute: Callable[..., Any], sql: str, params: Any, many: bool, context: Any) -> Any:
        seen.append(context.get(PLAIN_SQL, sql))
        return execute(sql, params, many, context)

    with ExitStack() as stack:
        for connection in connections.all():
            stack.enter_context(connection.execute_wrapper(note))
        yield seen
