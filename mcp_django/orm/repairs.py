"""Repairs of calls: each makes the right arguments of those that a client sent, or None where it does not fit them.

They are proposals for the client, and are never run here.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ..exceptions import Repair, ToolError
from .spellings import name_meant
from .wording import json_or_text

Arguments = Mapping[str, Any]

# What names a field in an object that is one condition, one order or one aggregate.
NAMING: Final = ("field", "column")
COMPARING: Final = frozenset({"field", "value", "operator", "op", "lookup"})


def with_argument(name: str, value: Any, *, is_spelling: bool = False) -> Repair:
    """Return the repair that sets an argument."""
    return Repair(lambda arguments: {**arguments, name: value}, is_spelling)


def without_argument(name: str) -> Repair:
    """Return the repair that leaves an argument out."""
    return Repair(lambda arguments: {key: value for key, value in arguments.items() if key != name}, False)


def with_name(wrong: str, right: str) -> Repair:
    """Return the repair that gives an argument its right name."""

    def mend(arguments: Arguments) -> dict[str, Any] | None:
        if right in arguments or wrong not in arguments:
            return None
        value = arguments[wrong]
        # The one of several keys.
        value = value[0] if right == "pk" and isinstance(value, list) and len(value) == 1 else value
        return {right if key == wrong else key: value if key == wrong else item for key, item in arguments.items()}

    return Repair(mend)


def with_model(wrong: Any, right: str, *, is_spelling: bool = True) -> Repair:
    """Return the repair that gives a model its label, also among several."""

    def mend(arguments: Arguments) -> dict[str, Any] | None:
        given = json_or_text(arguments.get("model"))
        if isinstance(given, list) and len(given) > 1:
            return {**arguments, "model": [right if item == wrong else item for item in given]}
        if isinstance(given, str) and given.strip() != wrong:
            parts = [part.strip() for part in given.split(",")]
            return {**arguments, "model": ",".join(right if part == wrong else part for part in parts)}
        return {"model": right, **{key: value for key, value in arguments.items() if key != "model"}}

    return Repair(mend, is_spelling)


def with_value(wrong: str, right: str) -> Repair:
    """Return the repair that gives a field its right name in the argument ``values``."""

    def mend(arguments: Arguments) -> dict[str, Any] | None:
        values = _opened(arguments.get("values"))
        if not isinstance(values, dict) or wrong not in values or right in values:
            return None
        return {**arguments, "values": {right if key == wrong else key: value for key, value in values.items()}}

    return Repair(mend)


def with_field(wrong: str, right: str, within: Sequence[str]) -> Repair:
    """Return the repair that gives a field its right name wherever it stands in the arguments ``within``."""

    def mend(arguments: Arguments) -> dict[str, Any] | None:
        for text in dict.fromkeys((wrong, wrong.replace("__", "."))):
            found = {key: _respelt(value, text, right) if key in within else value for key, value in arguments.items()}
            if found != arguments:
                return found
        return None

    return Repair(mend)


def _respelt(value: Any, wrong: str, right: str) -> Any:
    value = _opened(value)
    if isinstance(value, str):
        return _in_text(value, wrong, right)
    if isinstance(value, list):
        return [_respelt(item, wrong, right) for item in value]
    if isinstance(value, dict):
        return {
            _in_text(key, wrong, right): _respelt(item, wrong, right) if key in NAMING or key != "where" else item
            for key, item in value.items()
        }
    return value


def _in_text(text: str, wrong: str, right: str) -> str:
    """Return the text with a name replaced where it stands alone."""
    if not wrong:
        return text
    parts, start = [], 0
    while (position := text.find(wrong, start)) >= 0:
        end = position + len(wrong)
        before, after = text[position - 1 : position], text[end : end + 1]
        is_alone = not any(char and (char.isalnum() or char == "_") for char in (before, after))
        # A part of a path, or a name before a lookup.
        is_alone = is_alone or text[:position].endswith("__") or text[end:].startswith("__")
        parts += [text[start:position], right if is_alone else wrong]
        start = end
    return "".join([*parts, text[start:]])


def with_condition(
    name: str, right: Mapping[str, Any] | str, value: Any = None, *, prefix: str = "", is_spelling: bool = False
) -> Repair:
    """Return the repair that writes one condition of a filter in another way.

    It is known by its ``name``, after ``prefix`` where that is part of a path, and, if one is given, by its ``value``.
    ``right`` is its right name, or the members of an object that say the same.
    """

    def mend(arguments: Arguments) -> dict[str, Any] | None:
        for start in dict.fromkeys((prefix, "")):
            rewriter = _Conditions(start + name, _prefixed(right, start), value)
            found = {
                key: rewriter.rewrite(item) if key in ("filters", "aggregates") else item
                for key, item in arguments.items()
            }
            if rewriter.count == 1:
                return found
        return None

    return Repair(mend, is_spelling or isinstance(right, str))


def _prefixed(right: Mapping[str, Any] | str, start: str) -> Mapping[str, Any] | str:
    return start + right if isinstance(right, str) else {start + key: item for key, item in right.items()}


class _Conditions:
    """Rewrites the conditions of one name; ``count`` is how many there were."""

    def __init__(self, name: str, right: Mapping[str, Any] | str, value: Any) -> None:
        self.name, self.right, self.value = name, right, value
        self.count = 0

    def rewrite(self, given: Any) -> Any:
        given = _opened(given)
        if isinstance(given, list):
            return [self.rewrite(item) for item in given]
        if not isinstance(given, dict):
            return given
        if given.keys() <= COMPARING and given.get("field") == self.name and self._is_meant(given.get("value")):
            self.count += 1
            return {**given, "field": self.right} if isinstance(self.right, str) else dict(self.right)
        found: dict[str, Any] = {}
        for key, item in given.items():
            found.update(self._member(key, item))
        return found

    def _member(self, key: str, item: Any) -> Mapping[str, Any]:
        if self.name not in (key, key.replace(".", "__"), name_meant(key)):
            return {key: self.rewrite(item)}
        if self._is_meant(item):
            self.count += 1
            return {self.right: item} if isinstance(self.right, str) else self.right
        members = item if isinstance(item, dict) and not isinstance(self.right, str) else {}
        others = {lookup: value for lookup, value in members.items() if not self._is_meant(value)}
        if isinstance(self.right, str) or len(others) == len(members):
            return {key: self.rewrite(item)}
        self.count += 1
        return {**({key: others} if others else {}), **self.right}

    def _is_meant(self, item: Any) -> bool:
        return self.value is None or (type(item) is type(self.value) and bool(item == self.value))


def _opened(value: Any) -> Any:
    try:
        return json_or_text(value)
    except ToolError:
        return value
