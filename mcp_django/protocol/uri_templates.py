"""URI templates of resources: a subset of RFC 6570 that can be matched in linear time.

There are three expressions: ``{var}`` (one segment), ``{+var}`` (anything, including slashes) and, at the end,
``{?a,b}`` (a query whose members are all optional). Two variables always have text between them, so matching walks the
URI once without backtracking, and no regular expression runs on a client's whole URI.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote_to_bytes

RESERVED: Final = ":/?#[]@!$&'()*+,;="
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]{0,63}:")
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_OUTSIDE_SEGMENT: Final = re.compile(r"[/?#]")


@dataclass(frozen=True, slots=True)
class _Variable:
    name: str
    reserved: bool


class UriTemplate:
    """A compiled URI template (RFC 6570).

    ``variables`` are the names in the path, which a match always binds; ``query`` are those of ``{?a,b}``.

    Raises:
        ValueError: the template has no literal scheme, uses an operator outside the subset, names a variable twice, or
            has two variables with no text between them.
    """

    def __init__(self, template: str) -> None:
        self.template = template
        self.query: tuple[str, ...] = ()
        self._parts: list[str | _Variable] = []
        self._compile(template)
        self.variables = tuple(part.name for part in self._parts if isinstance(part, _Variable))
        if len({*self.variables, *self.query}) != len(self.variables) + len(self.query):
            raise ValueError(f"{template!r} names a variable twice")

    @property
    def is_template(self) -> bool:
        """Whether the URI template has variables."""
        return bool(self.variables or self.query)

    def _compile(self, template: str) -> None:
        rest = template
        while rest:
            literal, brace, rest = rest.partition("{")
            if "}" in literal:
                raise ValueError(f"{template!r} has a closing brace without an opening one")
            if literal:
                self._parts.append(literal)
            if brace:
                expression, closed, rest = rest.partition("}")
                if not closed:
                    raise ValueError(f"{template!r} has a brace that is not closed")
                self._add_expression(expression, is_last=not rest)
        if not self._parts or not isinstance(self._parts[0], str) or not _SCHEME.match(self._parts[0]):
            raise ValueError(f"{template!r} must begin with a literal scheme")

    def _add_expression(self, expression: str, *, is_last: bool) -> None:
        operator = expression[:1] if expression[:1] in ("+", "?") else ""
        names = expression.removeprefix(operator).split(",")
        if not all(_NAME.fullmatch(name) for name in names):
            raise ValueError(f"{self.template!r}: only {{var}}, {{+var}} and {{?a,b}} are supported")
        if operator == "?":
            if not is_last:
                raise ValueError(f"{self.template!r} must have its query at the end")
            self.query = tuple(names)
            return
        if len(names) > 1 or (self._parts and isinstance(self._parts[-1], _Variable)):
            raise ValueError(f"{self.template!r} needs text between two variables")
        self._parts.append(_Variable(names[0], operator == "+"))

    def match(self, uri: str) -> dict[str, str] | None:
        """Match a URI with the template: the decoded value of each variable, or None.

        Values in the path are never empty. Members of the query may be absent, but not unknown or repeated.
        """
        path = uri
        found = {}
        if self.query:
            path, mark, text = uri.partition("?")
            members = self._match_query(text) if mark else {}
            if members is None:
                return None
            found = members
        raw = self._match_path(path)
        if raw is None:
            return None
        try:
            return {**{name: self.decode(value) for name, value in raw.items()}, **found}
        except ValueError:
            return None

    def _match_path(self, path: str) -> dict[str, str] | None:
        found: dict[str, str] = {}
        position = 0
        pending: _Variable | None = None
        last = len(self._parts) - 1
        for index, part in enumerate(self._parts):
            if isinstance(part, _Variable):
                pending = part
                continue
            if pending is None:
                start = 0 if path.startswith(part) else -1
            elif index == last:
                start = len(path) - len(part) if path.endswith(part) else -1
            else:
                # Only the first occurrence must be tried: what follows accepts everything that a later one would skip.
                start = path.find(part, position + 1)
            if start < position or (pending is not None and not _bind(found, pending, path[position:start])):
                return None
            position = start + len(part)
            pending = None
        if pending is not None:
            if _bind(found, pending, path[position:]):
                return found
            return None
        return found if position == len(path) else None

    def _match_query(self, text: str) -> dict[str, str] | None:
        found: dict[str, str] = {}
        # Split at most once per name, so that a query with thousands of members is cheap to refuse.
        for member in text.split("&", len(self.query)):
            name, equals, value = member.partition("=")
            if not equals or name not in self.query or name in found:
                return None
            try:
                # A client's URL library may encode a space as "+"; RFC 6570 encodes a plus sign as "%2B".
                found[name] = self.decode(value.replace("+", " "))
            except ValueError:
                return None
        return found

    @staticmethod
    def encode(text: str, safe: str = "") -> str:
        """Percent-encode all characters of a text but unreserved ones and ``safe`` (RFC 3986, 2.1)."""
        return quote(text, safe=safe, errors="replace")

    @staticmethod
    def decode(text: str) -> str:
        """Decode percent-encoding in a part of a URI, such as the value of a template's variable.

        Raises:
            ValueError: an escape is not two hexadecimal digits, the bytes are not UTF-8, or one of them is NUL.
        """
        if _BAD_ESCAPE.search(text):
            raise ValueError("bad percent-encoding")
        decoded = unquote_to_bytes(text).decode("utf-8")
        if "\0" in decoded:
            raise ValueError("NUL in a URI")
        return decoded

    def expand(self, values: Mapping[str, object]) -> str:
        """Expand the URI template with these values; members of the query that are absent or None are left out. Raises
        ``ValueError`` if a variable of the path has no value or an empty value."""
        written = []
        for part in self._parts:
            if isinstance(part, str):
                written.append(part)
                continue
            value = str(values.get(part.name, ""))
            if not value:
                raise ValueError(f"{self.template!r} needs a value for {part.name!r}")
            written.append(self.encode(value, RESERVED if part.reserved else ""))
        query = [f"{name}={self.encode(str(values[name]))}" for name in self.query if values.get(name) is not None]
        return "".join(written) + ("?" + "&".join(query) if query else "")


def _bind(found: dict[str, str], variable: _Variable, text: str) -> bool:
    if not text or (not variable.reserved and _OUTSIDE_SEGMENT.search(text)):
        return False
    found[variable.name] = text
    return True
