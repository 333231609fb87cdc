"""Texts as they are shown, for what compares them with one another: orders, extremes, and two columns."""

from typing import Any

from django.db.models import Expression, F
from django.db.models.functions import Collate

from ..schema.secrets import HIDDEN
from .fields import stored_field
from .hidden_parts import HidesParts, can_hide_parts, text_sql


def as_shown(text: Any, field: Any) -> Any:
    """Return an expression for a text to be compared with others: ``HIDDEN`` for texts with a hidden part."""
    if not can_hide_parts(field):
        return text
    stored: Any = stored_field(field)
    shown = AsShown(text, stored)
    # An expression has no collation of its column in SQLite.
    return Collate(shown, stored.db_collation) if stored.db_collation else shown


class AsShown(Expression):
    """A text of the database as it is shown; it has no parameters of its own."""

    def __init__(self, text: Any, output_field: Any) -> None:
        super().__init__(output_field=output_field)
        self.text = F(text) if isinstance(text, str) else text

    def get_source_expressions(self) -> list[Any]:
        return [self.text]

    def set_source_expressions(self, exprs: Any) -> None:
        [self.text] = exprs

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, Any]:
        """Return the text, and ``HIDDEN`` in place of one with a hidden part."""
        hides, more = HidesParts(self.text).as_sql(compiler, connection)
        sql, params = text_sql(compiler, connection, self.text)
        return f"CASE WHEN {hides} THEN '{HIDDEN}' ELSE {sql} END", [*more, *params]


class Sorted(AsShown):
    """A text of the database to sort by: NULL where a part is hidden, so that a column of any type keeps its order."""

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, Any]:
        """Return the text, and NULL in place of one with a hidden part."""
        hides, more = HidesParts(self.text).as_sql(compiler, connection)
        sql, params = compiler.compile(self.text)
        return f"CASE WHEN {hides} THEN NULL ELSE {sql} END", [*more, *params]
