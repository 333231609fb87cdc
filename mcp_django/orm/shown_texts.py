"""Texts as they are shown, for what compares them with one another: orders, extremes, and two columns."""

from typing import Any, Final

from django.db.models import Expression, F, Func
from django.db.models.functions import Collate

from ..context.databases import Collation
from ..schema.secrets import HIDDEN
from .fields import stored_field
from .hidden_parts import HidesParts, can_hide_parts, text_sql

# Number of characters of a text that each database sorts by as a whole.
SHORT: Final = 255


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


class Beginning(Func):
    """As much of a text as the database sorts by: the whole text, but on MySQL."""

    arity = 1
    template = "%(expressions)s"

    def as_mysql(self, compiler: Any, connection: Any, **extra: Any) -> Any:
        """Return the beginning of the text."""
        chars = Collation(connection.alias).sorted_chars
        return self.as_sql(compiler, connection, template=f"LEFT(%(expressions)s, {chars})", **extra)

    @classmethod
    def of(cls, text: Any, field: Any) -> Any:
        """Return what to sort by in place of a text: the text itself, if none of the field's can be too long."""
        stored: Any = stored_field(field)
        return text if stored.max_length is not None and stored.max_length <= SHORT else cls(text)
