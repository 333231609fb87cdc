"""Writes to the database: transactions, and readable errors for refused writes."""

import errno
import inspect
import logging
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from traceback import walk_tb
from typing import Any, Final

from django.apps import apps
from django.core.exceptions import PermissionDenied, ValidationError
from django.core.files.storage import FileSystemStorage
from django.db import DatabaseError, IntegrityError, InterfaceError, OperationalError, router
from django.db.models import Model, ProtectedError, RestrictedError
from django.http import Http404

from ..context.confirmation import quoted
from ..context.database_errors import Trouble, code_of, is_unfit
from ..context.databases import engine_without_undo
from ..context.questions import Answers
from ..context.request import MCPRequest
from ..exceptions import Cancelled, NotFound, NotPermitted, ToolError
from ..runtime.missing_migrations import MissingTables
from .query_limits import write_transaction

logger = logging.getLogger("mcp_django.tools")

# SQLSTATEs of PostgreSQL: a view, a materialized view, a lock on groups, a missing privilege, a read-only replica.
READ_ONLY_STATES: Final = frozenset({"55000", "42809", "0A000", "42501", "25006"})
# Numbers of MySQL and MariaDB: a view and a column of one, a missing privilege, a read-only server, transaction, table.
READ_ONLY_NUMBERS: Final = frozenset({1288, 1471, 1348, 1142, 1143, 1290, 1836, 1792, 1036})
REFUSED: Final = "Refused, nothing was changed"
HALF_DONE: Final = "It stopped half-way, and what it had done before stays"
# MySQL's number for an error that a trigger signals.
SIGNALLED: Final = 1644
# Maximum characters of what the project says of a refusal.
MAX_MESSAGE: Final = 500
LOOK: Final = "Look at the data before you repeat the call."
UNFIT: Final = "a value does not fit its column in the database."
UNWRITABLE: Final = (
    "Nothing was changed: this model is read-only in the database (it may be backed by a view), or row-level security "
    "refuses the row."
)


@contextmanager
def one_transaction(
    model: type[Model],
    request: MCPRequest | None = None,
    *,
    locks: bool = True,
    max_wait: float | None = None,
) -> Iterator[list[str]]:
    """Open one transaction for writes to the database of the model, and to that of the admin's history.

    Yields the aliases of these databases, with which the caller can roll back without an error. For ``locks`` and
    ``max_wait`` see :func:`~mcp_django.orm.query_limits.write_transaction`.
    """
    aliases = [router.db_for_write(model)]
    if apps.is_installed("django.contrib.admin"):
        aliases.append(router.db_for_write(apps.get_model("admin", "LogEntry")))
    with ExitStack() as stack:
        for alias in dict.fromkeys(aliases):
            stack.enter_context(write_transaction(alias, locks=locks, max_wait=max_wait))
        yield list(dict.fromkeys(aliases))
        if request is not None:
            # Set is_ending before checking cancelled: the code that cancels a call does it in the opposite order.
            request.mcp.record.is_ending = True
            if request.mcp.cancelled:
                request.mcp.record.detail = "Nothing was changed."
                raise Cancelled


@contextmanager
def refusals(
    explain: Callable[[IntegrityError], str] | None = None,
    *,
    undone: bool = True,
    model: type[Model] | None = None,
) -> Iterator[None]:
    """Turn the error of a write that Django or the database refuses into a ``ToolError`` without SQL.

    ``explain`` can describe a broken constraint; it returns "" if it cannot. ``undone`` says that a failed write leaves
    nothing behind: if the database was busy or away, the same confirmation is then good for a second attempt. It is not
    so if the table of the ``model`` has no transactions.
    """
    if model is not None and engine_without_undo(router.db_for_write(model), model._meta.db_table):
        undone = False
    outcome = "Nothing was changed" if undone else HALF_DONE
    try:
        yield
    except ValidationError as error:
        told = quoted(" ".join(error.messages), MAX_MESSAGE)
        raise ToolError(f"{REFUSED if undone else outcome}: {told}") from None
    except PermissionDenied:
        raise NotPermitted(f"Permission denied. {outcome}.") from None
    except Http404:
        raise NotFound from None
    except (ProtectedError, RestrictedError):
        raise ToolError(f"{outcome}: other rows still refer to a row that would be deleted.") from None
    except OverflowError:
        raise ToolError(f"{outcome}: {UNFIT}") from None
    except OSError as error:
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            raise
        logger.warning("A file could not be stored", exc_info=True)
        _remove_half_file(error)
        raise ToolError(f"{outcome}: the disk for files is full. {Trouble.FULL.advice}") from None
    except (DatabaseError, InterfaceError) as error:
        if text := raised_text(error):
            raise ToolError(f"{outcome}: {text}") from None
        if is_unfit(error):
            raise ToolError(f"{outcome}: {UNFIT}") from None
        if isinstance(error, IntegrityError):
            text = explain(error) if explain is not None else ""
            raise ToolError(f"{outcome}: {text or 'the values break a constraint of the database.'}") from None
        if _is_unwritable(error):
            raise ToolError(UNWRITABLE) from None
        if MissingTables(error):
            # Not a busy database: to repeat the call does not help.
            raise
        trouble = Trouble.of(error)
        # A number says what it is.
        if trouble is None and (not isinstance(error, OperationalError) or isinstance(code_of(error), int)):
            raise
        logger.warning("A write failed in the database", exc_info=True)
        if undone:
            Answers.give_back()
        # An error that has no known cause is told as a busy database.
        trouble = trouble or Trouble.BUSY
        raise ToolError(f"{outcome}: {trouble.cause}. {trouble.advice if undone else LOOK}") from None


def raised_text(error: BaseException) -> str:
    """Return what a trigger or a function of the database says by ``RAISE`` or ``SIGNAL``, "" for any other error."""
    cause = error.__cause__
    diagnosis: Any = getattr(cause, "diag", None)
    text = ""
    if getattr(diagnosis, "source_function", None) == "exec_stmt_raise":
        text = diagnosis.message_primary
    elif getattr(cause, "sqlite_errorname", "") == "SQLITE_CONSTRAINT_TRIGGER":
        text = str(cause)
    elif cause is not None and code_of(error) == SIGNALLED:
        text = str(cause.args[1])
    return f"the database says {quoted(text)}" if text else ""


def _remove_half_file(error: OSError) -> None:
    """Remove what Django's storage has written of a file before the disk was full: the storage leaves it there, and
    only its own frame knows the name that it has chosen."""
    storage: Any = FileSystemStorage
    # Without the wrapper that catches the files of writes that are only tried.
    save = inspect.unwrap(storage._save)
    for frame, _line in walk_tb(error.__traceback__):
        if frame.f_code is save.__code__ and "full_path" in frame.f_locals:
            with suppress(OSError):
                os.remove(frame.f_locals["full_path"])


def _is_unwritable(error: Exception) -> bool:
    """Return whether the database refuses the write because the table is read-only, for a view or a replica."""
    cause = error.__cause__
    if getattr(cause, "sqlstate", None) in READ_ONLY_STATES or code_of(error) in READ_ONLY_NUMBERS:
        return True
    code = getattr(cause, "sqlite_errorname", "")
    # SQLite has no error code of its own for a write to a view.
    return code == "SQLITE_READONLY" or (code == "SQLITE_ERROR" and "because it is a view" in str(cause))
