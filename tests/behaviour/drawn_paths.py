"""Drawn conditions on paths, in every spelling, with the test in Python that they stand for.

The test is a search in plain Python: does one choice of a row from each list make all that is written true? That is
what the joins of one ``filter()`` of Django mean.
"""

import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Test = Callable[[Any], bool]
# What a condition asks of the row at the end of a path: the name of a field with its lookup, a value, and its test.
Leaf = tuple[str, Any, Test]
# A condition in plain Python: of the rows chosen so far, by the path that leads to each.
Node = Callable[[Mapping[tuple[str, ...], Any]], bool]

# The paths of each model that lead through a list, and the kind of row at the end.
PATHS: Mapping[str, Sequence[tuple[tuple[str, ...], str]]] = {
    "book": [
        (("loans",), "loan"),
        (("tags",), "tag"),
        (("author", "books"), "book"),
        (("author", "books", "loans"), "loan"),
        (("loans", "book"), "book"),
    ],
    "author": [
        (("books",), "book"),
        (("books", "loans"), "loan"),
        (("books", "tags"), "tag"),
        (("books", "author", "books"), "book"),
    ],
    "loan": [(("book", "loans"), "loan"), (("book", "tags"), "tag"), (("book", "author", "books"), "book")],
}


class DrawnPaths:
    """Draws objects of conditions on paths.

    ``steps`` gives the rows behind one row by the name of a relation, and ``leaf`` draws a condition on a kind of row.
    Paths that ``filter_fields`` declares have no spelling as an object.
    """

    def __init__(
        self,
        draw: random.Random,
        steps: Mapping[str, Callable[[Any], Sequence[Any]]],
        leaf: Callable[[str], Leaf],
        *,
        is_declared: bool = False,
    ) -> None:
        self.draw, self.steps, self.leaf, self.is_declared = draw, steps, leaf, is_declared
        self.used: set[tuple[str, ...]] = set()

    def drawn(self, paths: Sequence[tuple[tuple[str, ...], str]], depth: int) -> tuple[dict[str, Any], Test]:
        """Return the object and its test."""
        self.used = set()
        given, holds = self._object(paths, depth)
        prefixes = sorted({path[:end] for path in self.used for end in range(1, len(path) + 1)}, key=len)

        def passes(row: Any) -> bool:
            return self._search(prefixes, {(): row}, holds)

        return given, passes

    def _search(self, prefixes: Sequence[tuple[str, ...]], rows: dict[tuple[str, ...], Any], holds: Node) -> bool:
        if not prefixes:
            return holds(rows)
        path, *rest = prefixes
        before = rows[path[:-1]]
        # None stands for no row of the list.
        found = [*(self.steps[path[-1]](before) if before is not None else ()), None]
        return any(self._search(rest, {**rows, path: row}, holds) for row in found)

    def _object(self, paths: Sequence[tuple[tuple[str, ...], str]], depth: int) -> tuple[dict[str, Any], Node]:
        given: dict[str, Any] = {}
        nodes: list[Node] = []
        # Paths that begin alike are the ones that can be told wrong.
        start = self.draw.choice(paths)[0][0]
        alike = [found for found in paths if found[0][0] == start]
        for _ in range(self.draw.choice([1, 2, 2, 3])):
            if depth and self.draw.randrange(3) == 0:
                key, value, node = self._joined(paths, depth - 1)
            else:
                key, value, node = self._condition(*self.draw.choice(alike if self.draw.randrange(4) else paths))
            if key not in given:
                given[key] = value
                nodes.append(node)
        return given, lambda rows: all(node(rows) for node in nodes)

    def _joined(self, paths: Sequence[tuple[tuple[str, ...], str]], depth: int) -> tuple[str, Any, Node]:
        parts = [self._object(paths, depth) for _ in range(2)]
        given, nodes = [part for part, _ in parts], [node for _, node in parts]
        if self.draw.randrange(2):
            return "and", given, lambda rows: all(node(rows) for node in nodes)
        return "or", given, lambda rows: any(node(rows) for node in nodes)

    def _condition(self, path: tuple[str, ...], kind: str) -> tuple[str, Any, Node]:
        name, value, test = self.leaf(kind)
        self.used.add(path)
        key, written = self._spelt(path, name, value)
        return key, written, lambda rows: rows[path] is not None and test(rows[path])

    def _spelt(self, path: tuple[str, ...], name: str, value: Any) -> tuple[str, Any]:
        """Write a condition in one of the spellings: a dot or two underscores, an object, a lookup apart."""
        field, _, lookup = name.partition("__")
        if lookup and self.draw.randrange(3) == 0:
            name, value = field, {lookup: value}
        parts = [*path, name] if name else [*path]
        key = parts[0]
        for place, part in enumerate(parts[1:], 1):
            sign = self.draw.choice([".", "__"] if self.is_declared or not part else [".", "__", "{"])
            if sign == "{":
                inner, value = self._spelt(tuple(parts[place:-1]), parts[-1], value)
                return key, {inner: value}
            key += sign + part
        return key, value
