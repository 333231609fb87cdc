"""Deliver changes to the subscribers who can know of them now.

All of it happens in one thread of the process, at most ten times a second. Who may know is worked out anew each time,
for each caller once, from the user's row and permissions as they are by then.
"""

import logging
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Hashable
from typing import Any, Final

from django.db import InterfaceError, OperationalError

from ..conf import settings
from ..context.middleware import through
from ..context.request import Exposure, MCPRequest
from ..exceptions import NotFound
from ..orm.access import has_every_row, may_view
from .audience import Audience, Caller, Entries
from .changes import Changes
from .hub import RESYNC
from .users import Person, identity, reload
from .watches import Rows, Watch, any_visible, content_digest, is_readable, list_digests, shows
from .workers import Worker

logger = logging.getLogger("mcp_django")

UPDATED: Final = "notifications/resources/updated"
# Seconds between two rounds, and between two in which everybody is told everything.
PACE: Final = 0.1
RESYNC_PACE: Final = 1.0
# Rounds that are tried while the database does not answer, with longer and longer pauses of at most so many seconds.
ATTEMPTS: Final = 6
LONGEST_PAUSE: Final = 10.0
# What it takes to look at a page, compared with a row, where both may have changed.
WEIGHT_OF_PAGE: Final = 20
# Changed rows that are looked up at a time to find one that the reader of a page may view.
STEP: Final = 100


class Fanout:
    """The thread that tells subscribers."""

    def __init__(self, audience: Audience) -> None:
        self.audience = audience
        self.worker = Worker("mcp-events", self.run)
        self._lock = threading.Lock()
        self._changes = Changes()
        self._resync_at = 0.0
        self._failures = 0

    def heard(self, news: Any) -> None:
        """Take changes from the hub, or :data:`RESYNC`; called in the hub's thread."""
        self.put(self.audience.relevant(Changes(everything=True) if news is RESYNC else news))

    def put(self, changes: Changes) -> None:
        """Have changes told."""
        if changes:
            with self._lock:
                self._changes.merge(changes)
            self.worker.wake()

    def _take(self) -> tuple[Changes, float | None]:
        """Return the changes that are to be told now, and the seconds until the rest is."""
        with self._lock:
            taken, self._changes = self._changes, Changes()
            wait = self._resync_at - time.monotonic()
            if taken.everything and wait > 0:
                taken.everything, self._changes.everything = False, True
                return taken, wait
            if taken.everything:
                self._resync_at = time.monotonic() + RESYNC_PACE
            return taken, None

    def run(self) -> float | None:
        """Tell what has changed; return the seconds until the next round, None when nothing is left to tell."""
        changes, wait = self._take()
        if not changes:
            return wait
        failed = self._tell(changes)
        if not failed:
            self._failures = 0
            return PACE
        self._failures += 1
        if self._failures < ATTEMPTS:
            self.put(changes)
            return min(2.0**self._failures, LONGEST_PAUSE)
        # What they missed is not known: they have to come back and read.
        self._failures = 0
        for caller in failed:
            for subscription in tuple(caller.subscriptions):
                subscription.end("changes cannot be checked")
        return PACE

    def _tell(self, changes: Changes) -> list[Caller]:
        """Tell all whom the changes concern; return those for whom the database did not answer."""
        concerned = self.audience.concerned(changes)
        callers = dict.fromkeys(concerned)
        if changes.lists or changes.everything:
            callers.update(dict.fromkeys(self.audience.callers()))
        try:
            people = reload([caller.user for caller in callers])
        except Exception as error:
            logger.error("The check of subscribers failed", exc_info=error)
            return list(callers)
        users = {caller: identity(caller.user) for caller in callers}
        rows = Rows(_wanted(concerned))
        # Nobody waits for a user who watches much more.
        weights: Counter[Hashable] = Counter()
        for caller, entries in concerned.items():
            weights[users[caller]] += sum(WEIGHT_OF_PAGE if watch.is_page else 1 for _, watch in entries)
        failed = []
        for caller in sorted(callers, key=lambda caller: weights[users[caller]]):
            entries = concerned.get(caller, {})
            # What middleware decides, such as a tenant's database, is not known to be the same for two callers.
            is_apart = caller.site.needs_middleware or settings.CALL_MIDDLEWARE
            mine = Rows(_wanted({caller: entries})) if is_apart else rows
            try:
                caller.run(self._tell_caller, caller, people[users[caller]], entries, changes, mine)
            except (OperationalError, InterfaceError) as error:
                logger.error("The check of a subscriber failed", exc_info=error)
                failed.append(caller)
            except Exception as error:
                logger.error("The check of a subscriber failed", exc_info=error)
        return failed

    def _tell_caller(
        self, caller: Caller, person: Person | None, entries: Entries, changes: Changes, rows: Rows
    ) -> None:
        if person is None or caller.lost(person):
            return
        request = caller.request(person.user)
        through(request, lambda: self._tell_as(request, caller, entries, changes, rows))

    def _tell_as(self, request: MCPRequest, caller: Caller, entries: Entries, changes: Changes, rows: Rows) -> None:
        by_label: dict[str, Entries] = defaultdict(dict)
        for subscription, watch in entries:
            by_label[watch.label][subscription, watch] = None
        for label, some in by_label.items():
            if label:
                told = _Look(request, caller, label, changes, rows).told(some)
            else:
                told = {entry: None for entry in some if is_readable(request, entry[1])}
            for subscription, watch in told:
                subscription.tell(UPDATED, {"uri": watch.uri})
        self._tell_lists(request, caller, changes)

    def _tell_lists(self, request: MCPRequest, caller: Caller, changes: Changes) -> None:
        kinds = {kind for kind, site in changes.lists if site is None or site == caller.site.name}
        for subscription in tuple(caller.subscriptions):
            for kind in sorted(subscription.lists):
                if kind in kinds or changes.everything:
                    subscription.tell(f"notifications/{kind}/list_changed", {})
        if kinds and caller.lists is not None:
            caller.lists = list_digests(request)


def _wanted(concerned: dict[Caller, Entries]) -> dict[str, set[str]]:
    wanted: dict[str, set[str]] = defaultdict(set)
    for entries in concerned.values():
        for _, watch in entries:
            if watch.pk is not None:
                wanted[watch.label].add(watch.pk)
    return wanted


class _Look:
    """One caller's look at the changed rows of one model."""

    def __init__(self, request: MCPRequest, caller: Caller, label: str, changes: Changes, rows: Rows) -> None:
        self.request, self.caller, self.label, self.rows = request, caller, label, rows
        # The keys of changed rows, None when they are not known.
        self.changed = None if changes.everything else changes.rows.get(label)
        self.exposure: Exposure | None = caller.site.exposures_by_label.get(label)

    def told(self, entries: Entries) -> Entries:
        """Return what the caller is to be told."""
        if self.exposure is None or not may_view(self.request, self.exposure):
            return {}
        pks = {watch.pk for _, watch in entries if watch.pk is not None}
        visible = self.rows.visible(self.request, self.exposure, pks) if pks else {}
        missed = {pk for pk in pks if pk not in visible and (self.label, pk) in self.caller.seen}
        gone = self.rows.gone(self.request, self.exposure, missed) if missed else set()
        self.caller.seen.update((self.label, pk) for pk in visible)
        self.caller.seen.difference_update((self.label, pk) for pk in missed)
        pages = {watch for _, watch in entries if watch.is_page}
        changed_pages = self._changed_pages(self.exposure, pages, bool(visible)) if pages else set()
        told: Entries = {}
        for subscription, watch in entries:
            if watch.pk is None:
                changed = watch in changed_pages
            else:
                row = visible.get(watch.pk)
                changed = watch.pk in gone or (row is not None and shows(self.request, self.exposure, watch, row))
            if changed:
                told[subscription, watch] = None
        return told

    def _changed_pages(self, exposure: Exposure, pages: set[Watch], row_changed: bool) -> set[Watch]:
        """Return the pages that have lost a row, all of them when a visible one changed."""
        row_changed = row_changed or self._row_changed(exposure)
        if has_every_row(exposure):
            return pages if row_changed or self._row_gone(exposure) else set()
        changed = set()
        for watch in pages:
            try:
                digest = content_digest(self.request, watch)
            except NotFound:
                continue
            before, self.caller.pages[watch.uri] = self.caller.pages.get(watch.uri), digest
            if row_changed or digest != before:
                changed.add(watch)
        return changed

    def _row_changed(self, exposure: Exposure) -> bool:
        if self.changed is None:
            return any_visible(self.request, exposure)
        pks = sorted(self.changed)
        steps = (pks[start : start + STEP] for start in range(0, len(pks), STEP))
        return any(self.rows.visible(self.request, exposure, step) for step in steps)

    def _row_gone(self, exposure: Exposure) -> bool:
        if self.changed is None:
            return not exposure.get_queryset(self.request).exists()
        return bool(self.rows.gone(self.request, exposure, self.changed))
