"""What was promised to the clients, and what came of it."""

import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import Any

# Seconds after which something that came is late.
LATE = 2.0
# How a request went that has to be refused.
RIGHT = "refused as it should be"
# What each promise is, by its name.
PROMISES = {
    "write": "a write that was answered is there once, however often it was sent",
    "page": "pages by cursor give each row once, in order",
    "session": "a session goes on at every worker",
    "change": "a subscriber hears of a change, or has its stream ended and asks again",
    "confirmation": "a confirmed call is done once, however often its token is sent, an unconfirmed one never",
    "question": "a question is answered through any worker, and its call does once what it says",
    "stream": "the stream of a call gives each message once, also to who comes back, or says that it was interrupted",
    "task": "a task ends, and has done its work once, or says that it may have been done",
    "export": "an export holds each row once, for its owner alone",
}


@dataclass
class Tally:
    """One promise: how often it was checked, in how many seconds it was kept, and what was lost."""

    seconds: list[float] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        """Return its numbers."""
        ordered = sorted(self.seconds) or [0.0]
        late = [seconds for seconds in ordered if seconds > LATE]
        return {
            "checked": len(self.seconds) + len(self.lost),
            "lost": len(self.lost),
            "late": len(late),
            "median_seconds": round(ordered[len(ordered) // 2], 3),
            "p99_seconds": round(ordered[min(int(len(ordered) * 0.99), len(ordered) - 1)], 3),
            "longest_seconds": round(ordered[-1], 2),
            "what_was_lost": self.lost[:20],
        }


class Book:
    """All that clients saw."""

    def __init__(self) -> None:
        self.began = time.monotonic()
        self.tallies = {name: Tally() for name in PROMISES}
        # When each request ended, what it was, how it went, and how long it took.
        self.requests: list[tuple[float, str, str, float]] = []
        # What was said by errors, each in its first words.
        self.said: Counter[str] = Counter()
        # Keys of entries, and how many there have to be: each list names all numbers that are right.
        self.entries: dict[str, tuple[str, set[int]]] = {}
        # Of streams that stay open: bytes and seconds, by kind.
        self.streams: dict[str, list[tuple[int, float]]] = defaultdict(list)
        # Numbers that are no promise.
        self.notes: Counter[str] = Counter()

    def now(self) -> float:
        """Return the seconds since the run began."""
        return time.monotonic() - self.began

    def kept(self, promise: str, seconds: float) -> None:
        """Write down that a promise was kept after so many seconds."""
        self.tallies[promise].seconds.append(max(seconds, 0))

    def lost(self, promise: str, what: str) -> None:
        """Write down that a promise was not kept."""
        self.tallies[promise].lost.append(f"{self.now():.1f} s: {what}")

    def request(self, what: str, outcome: str, seconds: float, text: str = "") -> None:
        """Write down how a request went."""
        self.requests.append((self.now(), what, outcome, seconds))
        if text:
            # Ids and numbers differ from error to error.
            self.said["".join("#" if character.isdigit() else character for character in text)[:120]] += 1

    def expect(self, promise: str, key: str, *numbers: int) -> None:
        """Remember how many entries of a key there have to be at the end."""
        self.entries[key] = (promise, set(numbers))

    def verify(self, found: Counter[str]) -> None:
        """Compare the entries with what was promised."""
        for key, (promise, numbers) in self.entries.items():
            if found[key] not in numbers:
                right = " or ".join(map(str, sorted(numbers)))
                self.lost(promise, f"{key} is there {found[key]} times, and should be {right}")
        for key in found.keys() - self.entries.keys():
            self.lost("write", f"{key} is there, and nobody asked for it")

    def has_lost(self) -> bool:
        """Return whether anything that was promised is lost."""
        return any(tally.lost for tally in self.tallies.values())
