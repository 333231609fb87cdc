"""Sets of changes (rows, resources, lists), collected until they are published, and their messages.

A set stays small, however many changes there are: many rows of one model become "some rows of the model".
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from typing import Any, Final

# Topics of the bus on which changes are published.
CHANGES: Final = "changes"
LISTS: Final = "lists"
SWITCHES: Final = "switches"
# Kinds of lists.
KINDS: Final = ("tools", "prompts", "resources")
# Maximum number of rows of one model, and of URIs, that are listed individually.
MAX_ROWS: Final = 1_000
MAX_URIS: Final = 1_000
# Maximum number of keys in one message, and maximum characters of them.
MAX_KEYS: Final = 250
MAX_CHARS: Final = 32 * 1024


@dataclass(slots=True, eq=False)
class Changes:
    """A set of changes to rows, resources and lists, of bounded size.

    ``rows`` holds the primary keys of changed rows by the label of their model, or None if any row may have changed;
    ``uris`` are changed resources other than rows; ``lists`` are pairs of a kind and a site's name, None for all sites.
    ``everything`` stands for unknown changes.
    """

    rows: dict[str, set[str] | None] = field(default_factory=dict)
    uris: set[str] = field(default_factory=set)
    lists: set[tuple[str, str | None]] = field(default_factory=set)
    everything: bool = False

    def __bool__(self) -> bool:
        return bool(self.rows or self.uris or self.lists or self.everything)

    def add_rows(self, label: str, pks: Iterable[str] | None) -> None:
        """Add changed rows of a model by their primary keys, or None for unknown rows."""
        keys = self.rows.setdefault(label, set())
        if pks is None:
            self.rows[label] = None
        elif keys is not None:
            keys.update(pks)
            if len(keys) > MAX_ROWS:
                self.rows[label] = None

    def add_uris(self, uris: Iterable[str]) -> None:
        self.uris.update(uris)
        if len(self.uris) > MAX_URIS:
            self.uris.clear()
            self.everything = True

    def merge(self, other: "Changes") -> None:
        for label, pks in other.rows.items():
            self.add_rows(label, pks)
        self.add_uris(other.uris)
        self.lists |= other.lists
        self.everything |= other.everything

    def among(self, pks: Mapping[str, Set[str | None]], uris: Container[object]) -> "Changes":
        """Return the part that concerns ``pks`` of a model (None for its pages) and ``uris``."""
        changes = Changes(everything=self.everything)
        for label, changed in self.rows.items():
            if label in pks:
                # If pages are watched, keep the keys of all changed rows, not only of watched ones.
                some = changed if changed is None or None in pks[label] else changed & pks[label]
                if some is None or some:
                    changes.rows[label] = some
        changes.uris = {uri for uri in self.uris if uri in uris}
        changes.lists = set(self.lists)
        return changes

    def messages(self) -> Iterator[tuple[str, Any]]:
        """Yield the changes as short messages, each a topic and a payload."""
        if self.everything:
            yield CHANGES, {"everything": True}
        for label, pks in self.rows.items():
            for some in _chunks(pks) if pks is not None else [None]:
                yield CHANGES, {"rows": {label: some}}
        for some in _chunks(self.uris):
            yield CHANGES, {"uris": some}
        if self.lists:
            yield LISTS, sorted(([kind, site] for kind, site in self.lists), key=str)

    @classmethod
    def read(cls, topic: str, payload: Any) -> "Changes":
        """Return the changes of a message; a malformed one counts as a change of everything."""
        changes = cls()
        try:
            if topic == LISTS:
                changes.lists.update((kind, site) for kind, site in payload)
                return changes
            for label, pks in payload.get("rows", {}).items():
                changes.add_rows(label, pks)
            changes.add_uris(payload.get("uris", ()))
            changes.everything = payload.get("everything", False)
        except (AttributeError, TypeError, ValueError):
            changes.everything = True
        return changes


def _chunks(keys: Iterable[str]) -> Iterator[list[str]]:
    some: list[str] = []
    chars = 0
    for key in keys:
        if some and (len(some) >= MAX_KEYS or chars + len(key) > MAX_CHARS):
            yield some
            some = []
            chars = 0
        some.append(key)
        chars += len(key)
    if some:
        yield some
