"""Texts with a secret in them, which is shown as ``<hidden>``: no part of such a text is found by comparing.

A secret could be guessed letter by letter from which rows a comparison with a part of the text finds. So a row whose
text holds a secret passes no such comparison. The whole text can be compared, because it has to be known.
"""

from functools import lru_cache
from typing import Any, Final, cast

from django.db.models import (
    BooleanField,
    CharField,
    EmailField,
    Expression,
    ExpressionWrapper,
    F,
    Lookup,
    Q,
    SlugField,
    TextField,
)

from ..schema.secrets import without_secrets
from .fields import stored_field

# Comparisons of a text as a whole, besides those by nothing: they say nothing about a part of it.
WHOLE: Final = frozenset({"exact", "iexact", "in", "isnull"})
# Minimum number of characters of a column that can hold a secret beside its name, or a URL with a password.
SHORTEST: Final = 12
# What without_secrets() hides, or a little more of it: members of JSON, and passwords in URLs.
_NAMES: Final = (
    "pass|pwd|secret|token|jwt|otp|mfa|pin|cvv|cvc|ssn|salt|hash|p256dh|seed|recovery|mnemonic|connection|dsn"
    "|credential|session|key|code|auth"
)
_SECRET_MEMBER: Final = rf"""["'][^"'\s]*({_NAMES})[^"'\s]*["']\s*:\s*["'{{\[]"""
_USER: Final = r"""://[^\s/?#@:"'<>]*:[^\s/?#@"'<>]+@"""


@lru_cache(maxsize=4096)
def can_hide_parts(field: Any) -> bool:
    """Return whether texts of a field can hold secrets among other things: free texts that are long enough."""
    stored = stored_field(field)
    if not isinstance(stored, (CharField, TextField)) or isinstance(stored, (EmailField, SlugField)):
        return False
    return not field.choices and (stored.max_length is None or stored.max_length >= SHORTEST)


def hides_parts(value: Any) -> bool:
    """Return whether a value that a caller compares a whole text with has a part that would be hidden."""
    return type(value) is str and ("{" in value or "://" in value) and without_secrets(value) != value


class HidesParts(Lookup):
    """Whether a text of the database, a path or an expression, has a part that is hidden wherever it is shown.

    It is a lookup, because Django compares other conditions with a parameter on databases without booleans.
    """

    lookup_name = "hides_parts"
    prepare_rhs = False

    def __init__(self, text: Any) -> None:
        super().__init__(F(text) if isinstance(text, str) else text, True)

    def as_sql(self, compiler: Any, connection: Any) -> tuple[str, Any]:
        """Return a cheap test for a character of each kind of secret, and the patterns for texts that pass it."""
        sql, params = text_sql(compiler, connection, self.lhs)
        has_one = " OR ".join(_position(connection.vendor, sql, character) for character in "{@")
        matches = " OR ".join(_matches(connection.vendor, sql, pattern) for pattern in (_SECRET_MEMBER, _USER))
        return f"(({has_one}) AND ({matches}))", [*params] * 4


def text_sql(compiler: Any, connection: Any, text: Any) -> tuple[str, Any]:
    """Return the SQL of a text, also of one whose column has another type in the database (``inspectdb``)."""
    sql, params = compiler.compile(text)
    if connection.vendor == "postgresql":
        return f"({sql})::text", params
    return sql, params


def _position(vendor: str, sql: str, part: str) -> str:
    if vendor == "postgresql":
        return f"STRPOS({sql}, '{part}') > 0"
    return f"INSTR({sql}, '{part}') > 0"


def _matches(vendor: str, sql: str, pattern: str) -> str:
    literal = pattern.replace("'", "''")
    if vendor == "postgresql":
        return f"{sql} ~* '{literal}'"
    if vendor == "mysql":
        literal = literal.replace("\\", "\\\\")
    return f"{sql} REGEXP '(?i){literal}'"


def with_no_part_hidden(text: Any, *, inside: bool = False) -> Q:
    """Return the ``Q`` for rows whose text, a path or an expression, has no part that is hidden; NULL passes.

    ``inside`` makes it an expression, which does not change joins.
    """
    found = ~Q(HidesParts(text))
    if inside:
        return Q(ExpressionWrapper(found, BooleanField()))
    return found


class Searched(Expression):
    """A text of the database, of which no comparison with a part finds texts that have a hidden part."""

    def __init__(self, text: Any, lookup: str = "icontains") -> None:
        super().__init__()
        self.text: Any = F(text) if isinstance(text, str) else text
        self.lookup = lookup

    def get_source_expressions(self) -> list[Any]:
        return [self.text]

    def set_source_expressions(self, exprs: Any) -> None:
        [self.text] = exprs

    def _resolve_output_field(self) -> Any:
        return self.text.output_field

    def as_sql(self, compiler: Any, connection: Any) -> Any:
        """Return the text as it is."""
        return compiler.compile(self.text)

    def get_lookup(self, lookup: str) -> Any:
        """Return the lookup of the search field, together with the condition that nothing of the text is hidden."""
        lookup = self.lookup if lookup == "icontains" else lookup
        found = self.output_field.get_lookup(lookup)
        if found is None or lookup == "isnull":
            return found
        return _guarded(cast("Any", found))


@lru_cache(maxsize=256)
def _guarded(lookup: Any) -> type[Any]:
    class Guarded(lookup):
        def as_sql(self, compiler: Any, connection: Any, **options: Any) -> tuple[str, Any]:
            # First, because the search of PostgreSQL replaces its left side.
            hides, more = HidesParts(self.lhs).as_sql(compiler, connection)
            sql, params = super().as_sql(compiler, connection, **options)
            return f"({sql} AND NOT {hides})", [*params, *more]

    return Guarded
