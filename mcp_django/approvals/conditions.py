"""The conditions of approval rules: on rows before and after a call, and on its arguments.

They are evaluated with the system's access, whatever the caller sees. A condition that cannot be evaluated applies.
"""

import json
import logging
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import nullcontext
from functools import cached_property
from typing import Any, Final, Literal

from django.db import DatabaseError, connections, router, transaction
from django.db.models import Model, Q, QuerySet
from django.utils.translation import gettext as _

from ..context.database_errors import Trouble
from ..context.databases import reads_snapshots
from ..differences.written_rows import WrittenRows
from ..exceptions import ToolError
from ..orm.conditions import Filter
from ..orm.pagination import chunks
from ..orm.relative_dates import local_now
from .argument_conditions import check_arguments, meets
from .columns_read import columns_read
from .system_access import system_locale, system_reader

Side = Literal["before", "after"]

logger = logging.getLogger("mcp_django")

SIDES: Final = ("before", "after")
ARGUMENTS: Final = "arguments"


class WrongCondition(ValueError):
    """Raised for a condition that cannot be used. Its text says why, for the person who wrote it."""


class RuleCondition:
    """A condition: ``{"total__gt": 100}`` on a row before or after, ``{"before": {...}}``, ``{"after": {...}}``,
    ``{"arguments": {...}}``; all members must hold. An empty one holds for everything.

    ``function`` is one in code, ``(request, arguments)``, in place of the data. A plain condition on a row cannot stand
    beside one on a side: nobody could say of which side it would be.
    """

    def __init__(self, data: Mapping[str, Any] | None = None, function: Callable[..., Any] | None = None) -> None:
        self.data = dict(data or {})
        self.function = function

    @classmethod
    def read(cls, data: Mapping[str, Any], models: Collection[type[Model]], names: Collection[str]) -> "RuleCondition":
        """Return the condition, checked against every model it is for, and the names of arguments that are known.

        Raises ``WrongCondition`` for a name that does not exist, a lookup or a value that does not fit.
        """
        if not isinstance(data, Mapping) or not all(isinstance(name, str) for name in data):
            raise WrongCondition(_('A condition is an object such as {"total__gt": 100}.'))
        found = cls(data)
        if found._is_mixed:
            raise WrongCondition(_('Write every condition on rows within "before" or "after", or none of them.'))
        if ARGUMENTS in found._sides:
            try:
                with system_locale():
                    check_arguments(found._sides[ARGUMENTS], names)
            except (ValueError, ToolError) as error:
                raise WrongCondition(str(error)) from None
        if found.is_on_rows and not models:
            raise WrongCondition(_("Name the models that have these columns."))
        for model in models:
            found._check(model)
        return found

    def __str__(self) -> str:
        """The condition as JSON, or the name of its function."""
        if self.function is not None:
            return str(getattr(self.function, "__name__", self.function))
        return json.dumps(self.data, ensure_ascii=False) if self.data else ""

    # What it is on

    @cached_property
    def _sides(self) -> Mapping[str, Any]:
        """The members that say what they are on."""
        known = (*SIDES, ARGUMENTS)
        return {name: value for name, value in self.data.items() if name in known and isinstance(value, Mapping)}

    @cached_property
    def _plain(self) -> Mapping[str, Any]:
        """The members on rows before or after."""
        return {name: value for name, value in self.data.items() if name not in self._sides}

    @property
    def _is_mixed(self) -> bool:
        return bool(self._plain) and any(side in self._sides for side in SIDES)

    @property
    def is_on_rows(self) -> bool:
        """Whether the condition is on rows, before or after."""
        return bool(self._plain) or any(side in self._sides for side in SIDES)

    @property
    def needs_after(self) -> bool:
        """Whether the rows after the call have to be known: a plain condition on rows that do not meet it before."""
        return bool(self._plain) or "after" in self._sides

    def reads(self, model: type[Model]) -> list[str]:
        """Return the names of the columns of a model that the condition reads, those of related models by their paths:
        ``["total", "customer", "customer__country"]``. All columns of the model if the condition cannot be read."""
        found: list[str] = []
        try:
            with system_locale():
                for part in self._parts:
                    found += columns_read(model, self._filters(model, part, router.db_for_write(model)))
        except Exception:
            return [field.name for field in (*model._meta.concrete_fields, *model._meta.many_to_many)]
        return list(dict.fromkeys(found))

    # Arguments

    def arguments_meet(self, request: Any, arguments: Mapping[str, Any]) -> bool:
        """Return whether the arguments (and the form within them) meet the condition, or cannot be compared."""
        try:
            if self.function is not None:
                return bool(self.function(request, arguments))
            if ARGUMENTS not in self._sides:
                return True
            with system_locale():
                return meets(self._sides[ARGUMENTS], arguments, local_now()) is not False
        except Exception as error:
            _pass_on(error)
            self._note(error)
            return True

    # Rows

    def rows_meeting(self, model: type[Model], keys: Iterable[Any], side: str, using: str) -> set[Any]:
        """Return the keys of the rows in the database that meet the condition's part for a side, "before" or "after";
        all keys if it cannot be evaluated. Call it while the rows are as they are on that side.

        Keys are those of ``StoredDifference.changes``. Rows that are not there do not meet it, and without a part for
        the side, none does. ``all_of`` puts both sides together.
        """
        wanted = list(keys)
        part = self._part(side)
        if part is None and not self._is_mixed:
            return set()
        try:
            by_value = WrittenRows.by_value(model, wanted)
            values = self._meeting(model, part or {}, list(by_value), using)
            return {by_value[value] for value in values}
        except Exception as error:
            _pass_on(error)
            self._note(error)
            return set(wanted)

    def all_of(self, before: set[Any], after: set[Any]) -> set[Any]:
        """Return the keys of the rows that meet the whole condition, by those that meet its part for each side."""
        if all(side in self._sides for side in SIDES) and not self._is_mixed:
            return before & after
        return before | after

    def _part(self, side: str) -> Mapping[str, Any] | None:
        """Return the members that are compared with rows on one side, None if there are none."""
        found: Mapping[str, Any] | None = self._sides.get(side)
        return found if found is not None else self._plain or None

    @property
    def _parts(self) -> list[Mapping[str, Any]]:
        """The members on rows, each side for itself."""
        return [*([self._plain] if self._plain else []), *(self._sides[side] for side in SIDES if side in self._sides)]

    def _meeting(self, model: type[Model], part: Mapping[str, Any], values: list[Any], using: str) -> Iterator[Any]:
        if self._is_mixed:
            raise WrongCondition("A part of the condition has no side.")
        with system_locale(), _own_step(using):
            found = self._q(model, part, using)
            for chunk in chunks(values):
                rows: QuerySet[Any] = QuerySet(model, using=using).filter(pk__in=chunk).filter(found)
                if reads_snapshots(using) and connections[using].in_atomic_block:
                    # A plain read may show an older state than that which the write has locked.
                    rows = rows.select_for_update()
                yield from rows.order_by().values_list("pk", flat=True)

    def _q(self, model: type[Model], part: Mapping[str, Any], using: str) -> Q:
        """Return the ``Q`` for rows of a model that meet a part of the condition."""
        return system_reader(model, using).where(part)

    def _filters(self, model: type[Model], part: Mapping[str, Any], using: str) -> tuple[Filter, ...]:
        return system_reader(model, using).read(part, 0)

    def _check(self, model: type[Model]) -> None:
        """Raise ``WrongCondition`` if a part of the condition does not fit a model."""
        using = router.db_for_write(model)
        for part in self._parts:
            try:
                with system_locale():
                    rows: QuerySet[Any] = QuerySet(model, using=using)
                    str(rows.filter(self._q(model, part, using)).query)
            except DatabaseError:
                raise
            except Exception as error:
                label = model._meta.label_lower
                text = _("The condition does not fit %(model)s: %(why)s") % {"model": label, "why": error}
                raise WrongCondition(text) from None

    def _note(self, error: Exception) -> None:
        """Log that the condition cannot be evaluated, without what rows hold."""
        logger.warning("The condition %s of an approval rule cannot be evaluated: %s", self, type(error).__name__)


def _pass_on(error: Exception) -> None:
    """Raise an error by which the whole transaction was undone: it can be repeated."""
    if isinstance(error, DatabaseError) and Trouble.has_undone_all(error):
        raise error


def _own_step(using: str) -> Any:
    """Return the block for statements of which a failure must not break the transaction of the call."""
    return transaction.atomic(using=using) if connections[using].in_atomic_block else nullcontext()
