"""Arguments of tools that write: values, the rows that primary keys stand for, and database errors."""

import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final

from django.apps import apps
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import DatabaseError, DataError, IntegrityError, OperationalError, router
from django.db.models import Model, ProtectedError, QuerySet, RestrictedError
from django.http import Http404

from ..conf import settings
from ..context.databases import Mode, is_busy
from ..context.questions import unspend
from ..context.request import MCPRequest
from ..exceptions import Cancelled, NotFound, NotPermitted, ToolError
from ..exposures.base import ModelExposure
from .access import access_of, parse_pk
from .arguments import check_names
from .queries import chunks
from .query_limits import write_transaction
from .unreadable import all_readable
from .wording import alternatives, json_or_text

logger = logging.getLogger("mcp_django.tools")

# PostgreSQL's words for a view, a materialized one, a lock on what groups, a missing privilege, a server that follows.
READ_ONLY_STATES: Final = frozenset({"55000", "42809", "0A000", "42501", "25006"})
REFUSED: Final = "Refused, nothing was changed"
HALF_DONE: Final = "It stopped half-way, and what it had done before stays"
UNWRITABLE: Final = "Nothing was changed: this model is read-only in the database (it may be backed by a view)."


def taken(
    arguments: Mapping[str, Any], known: Iterable[str], required: Collection[str] = (), keeping: Collection[str] = ()
) -> dict[str, Any]:
    """Return the arguments that are set; only those that are ``required`` or ``keeping`` may be empty."""
    names = list(known)
    found = check_names(arguments, names, keeping={*required, *keeping}, strict=True)
    missing = [name for name in required if name not in found]
    if missing:
        raise ToolError(f"Missing argument: {', '.join(missing)}. {alternatives(None, names)}")
    return found


def as_object(value: Any, name: str) -> dict[str, Any]:
    """Return an argument that is a JSON object, or an empty one for null."""
    if not isinstance(value, dict):
        value = {} if value is None else json_or_text(value)
    if not isinstance(value, dict):
        raise ToolError(f"{name} must be an object, such as {{'field': value}}.")
    return value


def as_pks(value: Any) -> list[str | int]:
    """Return an argument that is a list of primary keys."""
    value = json_or_text(value)
    most = settings.MAX_BULK_ROWS
    if not isinstance(value, list) or not 1 <= len(value) <= most:
        raise ToolError(f"pks must be a list of 1 to {most} primary keys, as query_records shows them.")
    if not all(isinstance(item, (str, int, list)) and not isinstance(item, bool) for item in value):
        raise ToolError("Each of pks must be a string or an integer, as query_records shows it.")
    return value


def pick_rows(request: MCPRequest, exposure: ModelExposure, pks: Iterable[Any]) -> tuple[QuerySet[Any], list[Model]]:
    """Return the rows with these primary keys, as a queryset of the exposure's and as instances."""
    keys = list(dict.fromkeys(parse_pk(exposure, pk) for pk in pks))
    found = rows_by_key(request, exposure, keys)
    if len(found) != len(keys) or not all(access_of(request)[exposure].may_row("view", row) for row in found.values()):
        raise NotFound
    return exposure.get_queryset(request).filter(pk__in=keys), list(found.values())


def rows_by_key(request: MCPRequest, exposure: ModelExposure, keys: Sequence[Any]) -> dict[Any, Model]:
    """Return the rows of the exposure's queryset with these keys, in their order; keys without a row are left out."""
    found: dict[Any, Model] = {}
    queryset = exposure.get_queryset(request)
    for chunk in chunks(keys):
        with all_readable():
            rows = {row.pk: row for row in queryset.filter(pk__in=chunk)}
        found.update((key, rows[key]) for key in chunk if key in rows)
    return found


@contextmanager
def one_transaction(
    model: type[Model], request: MCPRequest | None = None, mode: Mode = "IMMEDIATE"
) -> Iterator[list[str]]:
    """Open a transaction on the database that the model is written to, and on that of the admin's history.

    Yields the aliases, for a rollback that is no error.
    """
    aliases = [router.db_for_write(model)]
    if apps.is_installed("django.contrib.admin"):
        aliases.append(router.db_for_write(apps.get_model("admin", "LogEntry")))
    with ExitStack() as stack:
        for alias in dict.fromkeys(aliases):
            stack.enter_context(write_transaction(alias, mode))
        yield list(dict.fromkeys(aliases))
        if request is not None:
            # Said before it is asked: whoever stops the call asks in the opposite order.
            request.mcp.record.is_ending = True
            if request.mcp.cancelled:
                request.mcp.record.detail = "Nothing was changed."
                raise Cancelled


@contextmanager
def refusals(explain: Callable[[IntegrityError], str] | None = None, *, undone: bool = True) -> Iterator[None]:
    """Turn what Django says against a write into a ``ToolError`` without SQL; whatever else fails passes.

    ``explain`` may tell more of a constraint that is broken, or nothing. ``undone`` says that a write which fails
    leaves nothing behind: where the database was busy, what confirmed it confirms it again.
    """
    outcome = "Nothing was changed" if undone else HALF_DONE
    try:
        yield
    except ValidationError as error:
        raise ToolError(f"{REFUSED if undone else outcome}: {' '.join(error.messages)}") from None
    except PermissionDenied:
        raise NotPermitted(f"Permission denied. {outcome}.") from None
    except Http404:
        raise NotFound from None
    except (ProtectedError, RestrictedError):
        raise ToolError(f"{outcome}: other rows still refer to a row that would be deleted.") from None
    except IntegrityError as error:
        text = explain(error) if explain is not None else ""
        raise ToolError(f"{outcome}: {text or 'the values break a constraint of the database.'}") from None
    except (DataError, OverflowError):
        raise ToolError(f"{outcome}: a value does not fit its column in the database.") from None
    except DatabaseError as error:
        if _is_unwritable(error):
            raise ToolError(UNWRITABLE) from None
        if not isinstance(error, OperationalError):
            raise
        logger.warning("A write failed in the database", exc_info=True)
        if undone and is_busy(error):
            unspend()
        advice = "Repeat the call." if undone else "Look at the data before you repeat the call."
        raise ToolError(f"{outcome}: the database is busy. {advice}") from None


def _is_unwritable(error: DatabaseError) -> bool:
    """Return whether the database says that nobody, or not this server, may write the table."""
    cause = error.__cause__
    if getattr(cause, "sqlstate", None) in READ_ONLY_STATES:
        return True
    code = getattr(cause, "sqlite_errorname", "")
    # SQLite has no code of its own for a view.
    return code == "SQLITE_READONLY" or (code == "SQLITE_ERROR" and "because it is a view" in str(cause))
