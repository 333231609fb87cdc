"""The grammar of arithmetic that callers write: ``quantity * unit_price``, ``(a + b) / 2``, ``created + 5d``.

A text becomes a small tree of constants, names and operations, ``*`` and ``/`` before ``+`` and ``-``. The grammar
knows no field: :mod:`~mcp_django.orm.arithmetic` makes SQL of the tree, and expressions in the values of a write are
computed from it in Python.
"""

import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from ..exceptions import ToolError

MAX_LENGTH: Final = 200
MAX_TOKENS: Final = 40
MAX_DEPTH: Final = 8
SYNTAX: Final = 'Write it as "quantity*unit_price", "delivered_at-shipped_at" or "created+5d".'
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<duration>[0-9]{1,6}\s?(?:d|days?|w|weeks?|h|hours?|min|minutes?|s|seconds?)\b)"
    r"|(?P<number>[0-9]{1,15}(?:\.[0-9]{1,12})?)(?![\w.])|(?P<name>[^\W\d][\w.]*)|(?P<sign>[-+*/()]))"
)


@dataclass(frozen=True, slots=True)
class Number:
    """A number in an expression."""

    value: Decimal


@dataclass(frozen=True, slots=True)
class Length:
    """A duration in an expression as it was written, such as ``5d`` or ``2 hours``."""

    text: str


@dataclass(frozen=True, slots=True)
class Name:
    """A name in an expression: of a field, or a path with dots."""

    text: str


@dataclass(frozen=True, slots=True)
class Operation:
    """Two parts of an expression and the sign between them: ``+``, ``-``, ``*`` or ``/``."""

    left: "Part"
    sign: str
    right: "Part"


Part = Number | Length | Name | Operation


def parsed(text: str) -> Part:
    """Return the tree of an expression. Raises ``ToolError`` for a text that is none, or too long."""
    return _Parser(text).read()


def names_in(part: Part) -> list[str]:
    """Return the names in an expression, in their order."""
    if isinstance(part, Name):
        return [part.text]
    if isinstance(part, Operation):
        return [*names_in(part.left), *names_in(part.right)]
    return []


class _Parser:
    """Parser of one arithmetic expression."""

    def __init__(self, text: str) -> None:
        if len(text) > MAX_LENGTH:
            raise ToolError(f"An expression has at most {MAX_LENGTH} characters.")
        self.text = text
        self.position = 0
        self.tokens: list[tuple[str, str]] = []
        place = 0
        while text[place:].strip():
            if len(self.tokens) == MAX_TOKENS:
                raise ToolError(f"An expression has at most {MAX_TOKENS} parts.")
            found = _TOKEN.match(text, place)
            if found is None or found.lastgroup is None:
                raise ToolError(f"{text[place : place + 20]!r} was not understood in an expression. {SYNTAX}")
            self.tokens.append((found.lastgroup, found[found.lastgroup]))
            place = found.end()

    def read(self) -> Part:
        """Return the tree of the whole text."""
        found = self._sum(0)
        if self.position < len(self.tokens):
            raise self._unexpected()
        return found

    def _unexpected(self) -> ToolError:
        at = repr(self.tokens[self.position][1]) if self.position < len(self.tokens) else "its end"
        return ToolError(f"The expression {self.text[:60]!r} is not understood at {at}. {SYNTAX}")

    def _sign(self, signs: str) -> str:
        """Take the next token if it is one of the arithmetic signs; return "" otherwise."""
        kind, token = self.tokens[self.position] if self.position < len(self.tokens) else ("", "")
        if kind != "sign" or token not in signs:
            return ""
        self.position += 1
        return token

    def _sum(self, depth: int) -> Part:
        found = self._product(depth)
        while sign := self._sign("+-"):
            found = Operation(found, sign, self._product(depth))
        return found

    def _product(self, depth: int) -> Part:
        found = self._factor(depth)
        while sign := self._sign("*/"):
            found = Operation(found, sign, self._factor(depth))
        return found

    def _factor(self, depth: int) -> Part:
        if depth > MAX_DEPTH:
            raise ToolError(f"Brackets can be nested {MAX_DEPTH} deep.")
        if self._sign("-"):
            return Operation(Number(Decimal(0)), "-", self._factor(depth + 1))
        if self._sign("("):
            found = self._sum(depth + 1)
            if not self._sign(")"):
                raise self._unexpected()
            return found
        if self.position >= len(self.tokens) or self.tokens[self.position][0] == "sign":
            raise self._unexpected()
        kind, token = self.tokens[self.position]
        self.position += 1
        if kind == "number":
            return Number(Decimal(token))
        if kind == "duration":
            return Length(token)
        return Name(token)
