"""Transactions of writes, and what the database refuses in them, as errors in words."""

import logging
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Final

from django.apps import apps
from django.core.exceptions import PermissionDenied, ValidationError
from django.db import DatabaseError, DataError, IntegrityError, OperationalError, router
from django.db.models import Model, ProtectedError, RestrictedError
from django.http import Http404

from ..context.databases import Mode, is_busy
from ..context.questions import unspend
from ..context.request import MCPRequest
from ..exceptions import Cancelled, NotFound, NotPermitted, ToolError
from .query_limits import write_transaction

logger = logging.getLogger("mcp_django.tools")

# PostgreSQL's words for a view, a materialized one, a lock on what groups, a missing privilege, a server that follows.
READ_ONLY_STATES: Final = frozenset({"55000", "42809", "0A000", "42501", "25006"})
REFUSED: Final = "Refused, nothing was changed"
HALF_DONE: Final = "It stopped half-way, and what it had done before stays"
UNWRITABLE: Final = "Nothing was changed: this model is read-only in the database (it may be backed by a view)."


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
