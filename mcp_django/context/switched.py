"""What is switched off while one call goes on: a fixed picture, which nothing that happens meanwhile changes."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import Final

from ..exceptions import CallRefused
from .record import CallRecord

EVERYTHING: Final = "everything"
WRITES: Final = "writes"
TOOL: Final = "tool"
MODEL: Final = "model"
ACTION: Final = "action"
CLIENT: Final = "client"
USER: Final = "user"
SERVICE: Final = "service"
# The kinds that keep callers from everything.
CALLERS: Final = frozenset({EVERYTHING, CLIENT, USER, SERVICE})
SUBJECTS: Final[Mapping[str, str]] = {
    EVERYTHING: "The server",
    WRITES: "Changing data",
    TOOL: "The tool {}",
    MODEL: "The model {}",
    ACTION: "The action {}",
    CLIENT: "This client",
    USER: "This account",
    SERVICE: "This service account",
}


@dataclass(frozen=True, slots=True)
class Switched:
    """One thing that is off: its ``kind``, which of that kind, why, and until when (None: until it is on again)."""

    kind: str
    target: str = ""
    reason: str = ""
    until: datetime | None = None

    @property
    def text(self) -> str:
        """What a caller is told of it."""
        until = f" until {self.until.astimezone(UTC):%Y-%m-%d %H:%M} UTC" if self.until is not None else ""
        reason = f" Reason given: {self.reason}" if self.reason else ""
        return f"{SUBJECTS[self.kind].format(self.target)} is switched off{until}.{reason}"

    def refusal(self) -> CallRefused:
        """Return what refuses a call for it."""
        return CallRefused(self.text, "switch")


@dataclass(frozen=True)
class Off:
    """All that is off; there is none of these where nothing is. ``version`` is another one for another picture."""

    switched: tuple[Switched, ...]
    version: str = ""

    @cached_property
    def _by_key(self) -> dict[tuple[str, str], Switched]:
        return {(item.kind, item.target): item for item in self.switched}

    @cached_property
    def kinds(self) -> frozenset[str]:
        """The kinds of which something is off."""
        return frozenset(item.kind for item in self.switched)

    @property
    def writes(self) -> Switched | None:
        """Whether nothing may be changed, and why."""
        return self._by_key.get((WRITES, "")) or self._by_key.get((EVERYTHING, ""))

    def caller(self, record: CallRecord) -> Switched | None:
        """Return what keeps this caller from everything: the whole server, the user, the client or the service."""
        keys = [(EVERYTHING, ""), (USER, record.user), (CLIENT, record.client_id), (CLIENT, record.client_host)]
        if record.kind == "service":
            keys.append((SERVICE, record.client_id))
        return self._first(key for key in keys if key[1] or key[0] == EVERYTHING)

    def tool(self, name: str, *, read_only: bool) -> Switched | None:
        """Return what keeps callers from a tool."""
        return self._by_key.get((TOOL, name)) or (None if read_only else self._by_key.get((WRITES, "")))

    def model(self, label: str) -> Switched | None:
        """Return what keeps callers from the model, or from all of its app; ``label`` is in lower case."""
        if MODEL not in self.kinds:
            return None
        return self._first([(MODEL, label), (MODEL, label.partition(".")[0])])

    def action(self, label: str, name: str) -> Switched | None:
        """Return what keeps callers from an action of the model, or from the actions of this name of all models."""
        if ACTION not in self.kinds:
            return None
        return self._first([(ACTION, f"{label}.{name}"), (ACTION, name)])

    def _first(self, keys: Iterable[tuple[str, str]]) -> Switched | None:
        return next((self._by_key[key] for key in keys if key in self._by_key), None)
