"""The rows that a call writes or runs an action on: picked by their primary keys, by a query, or all of them.

The primary keys that a query finds are read once: a tool writes exactly the rows that it has shown.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final

from django.db.models import Model, QuerySet

from ..conf import settings
from ..context.confirmation import quoted
from ..exceptions import NotFound, NotPermitted, ToolError
from ..orm.access import ModelAccess
from ..orm.column_values import pk_text
from ..orm.labels import label_of
from ..orm.pagination import PageQuery, narrowed
from ..orm.row_arguments import RowArguments
from ..orm.row_finder import RowFinder
from ..orm.tool_arguments import Arguments
from ..schema.value_types import FREE_OBJECT, KEY
from .saving import MAX_LABELS

# Maximum number of refused rows that an error names.
MAX_REFUSED: Final = 5


def listed(labels: Sequence[str], total: int) -> str:
    """List the labels of rows in a question, each quoted, and how many more there are."""
    more = f" and {total - len(labels)} more" if total > len(labels) else ""
    return f"{'; '.join(map(quoted, labels))}{more}"


class Selection:
    """The rows of a bulk write or an action, picked by ``pks``, ``filters``, ``search`` or ``all``. ``by_query`` says
    that the caller did not name the rows by ``pks``."""

    SEARCH: ClassVar[Mapping[str, Any]] = {"type": "string", "description": "Free text"}
    # Arguments that pick rows: those that tools declare, those that they accept, and those of actions on every row.
    PICKING: ClassVar[Mapping[str, Any]] = {"pks": {"type": "array", "items": KEY}, "filters": FREE_OBJECT}
    QUERY: ClassVar[Mapping[str, Any]] = {**PICKING, "search": SEARCH}
    EVERYTHING: ClassVar[Mapping[str, Any]] = {**QUERY, "all": {"type": "boolean"}}

    def __init__(self, model: ModelAccess, arguments: Mapping[str, Any]) -> None:
        self.model = model
        self.by_query = arguments.get("pks") is None
        self.rows = self._picked(Arguments(arguments))

    def _picked(self, arguments: Arguments) -> Sequence[Model]:
        model = self.model
        exposure = model.exposure
        pks = arguments.get("pks")
        every = arguments.flag("all")
        narrowing = [name for name in ("filters", "search") if arguments.get(name) not in (None, "", "{}", {}, [])]
        if pks is not None and (every or narrowing):
            raise ToolError("Give either pks or a query, not both. Nothing was changed.")
        if pks is not None:
            keys = [model.bare_pk(pk) for pk in arguments.pks()]
            try:
                return RowFinder(model).pick(keys)[1]
            except NotFound:
                return RowFinder(model).rows(keys, RowFinder.NOT_FOUND)
        if not every and not narrowing:
            raise ToolError(
                "Say which rows: give pks, or filters or search for all rows that match. Nothing was changed."
            )
        asked = RowArguments(model, arguments)
        queryset = narrowed(model, asked.filters(), asked.search())
        most = settings.MAX_BULK_ROWS
        keys = list(dict.fromkeys(queryset.order_by("pk").values_list("pk", flat=True)[: most + 1]))
        if len(keys) > most:
            count = queryset.values("pk")[: PageQuery.COUNT_CAP + 1].count()
            found = f"More than {PageQuery.COUNT_CAP}" if count > PageQuery.COUNT_CAP else count
            raise ToolError(
                f"{found} rows of {exposure.label} match, and {most} is the most for one call. Nothing was changed. "
                "Narrow filters, such as to a range of dates or keys, and go through the rows in parts."
            )
        seen = RowFinder(model).by_key(keys).values()
        rows = [row for row in seen if model.may_row("view", row)]
        if not rows:
            raise ToolError(
                f"No rows of {exposure.label} match. Nothing was changed. query_records shows what there is."
            )
        return rows

    @property
    def labels(self) -> list[str]:
        """The labels of the first rows, as many as a question names."""
        return [self._label(row) for row in self.rows[:MAX_LABELS]]

    @property
    def listing(self) -> str:
        """The model, the number of rows, and the labels of the first, for a question."""
        return f"{self.model.exposure.label} ({len(self.rows)}): {listed(self.labels, len(self.rows))}"

    def _label(self, row: Model) -> str:
        return label_of(self.model.exposure, row) or str(row.pk)

    def refusal(self, what: str, rows: Sequence[Model]) -> NotPermitted:
        """Return the error that the caller may not do this to some of the rows, with the keys by which to leave them
        out."""
        named = listed([f"{pk_text(row.pk)}: {self._label(row)}" for row in rows[:MAX_REFUSED]], len(rows))
        return NotPermitted(
            f"You may not {what} {len(rows)} of these rows of {self.model.exposure.label}: {named}. Nothing was "
            "changed. Leave them out."
        )

    def queryset(self, rows: Iterable[Model]) -> QuerySet[Any]:
        """Return some of the rows picked for a bulk write as a queryset, as an admin action gets them."""
        return self.model.exposure.get_queryset(self.model.request).filter(pk__in=[row.pk for row in rows])
