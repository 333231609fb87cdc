"""Say what is wrong with a value, and quote it."""

import json
from collections.abc import Mapping
from typing import Any, Final

MAX_SHOWN: Final = 40


class Invalid(Exception):
    """A value that is not of its type: ``problems`` are pairs of a path within it ("" for itself) and a cause."""

    def __init__(self, cause: str, path: str = "") -> None:
        super().__init__(cause)
        self.problems: list[tuple[str, str]] = [(path, cause)]


def json_type(value: Any) -> str:
    """Return JSON Schema's name of the value's type; a whole number is an "integer"."""
    for kind, name in ((bool, "boolean"), (int, "integer"), (float, "number"), (str, "string"), (Mapping, "object")):
        if isinstance(value, kind):
            return name
    return "null" if value is None else "array"


def is_empty(value: Any) -> bool:
    """Return whether the value is an empty text, list or object: what some models write for what they leave out."""
    return isinstance(value, (str, list, Mapping)) and not value


def show(value: Any) -> str:
    """Return a value as an error message quotes it: short, and as JSON."""
    if isinstance(value, str):
        return json.dumps(value if len(value) <= MAX_SHOWN else value[:MAX_SHOWN] + "…", ensure_ascii=False)
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) > 10**MAX_SHOWN:
        return "a huge integer"
    kind = json_type(value)
    return f"an {kind}" if kind in ("array", "object") else json.dumps(value)


class Problems:
    """Gathers what is wrong with the parts of a value, so that a model can mend all of it at once."""

    def __init__(self) -> None:
        self.found: list[tuple[str, str]] = []
        self.place = ""

    def add(self, path: str, cause: str) -> None:
        """Note a cause."""
        self.found.append((path, cause))

    def within(self, place: str) -> "Problems":
        """Return a context manager that notes what is raised within it, as happening at ``place``."""
        self.place = place
        return self

    def __enter__(self) -> None: ...

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> bool:
        if not isinstance(error, Invalid):
            return False
        for path, cause in error.problems:
            dot = "." if path and not path.startswith("[") else ""
            self.add(f"{self.place}{dot}{path}", cause)
        return True

    def raise_if_any(self) -> None:
        """Raise what was gathered. Raises ``Invalid``."""
        if self.found:
            error = Invalid("")
            error.problems = self.found
            raise error
