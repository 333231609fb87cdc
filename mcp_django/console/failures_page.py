"""The console's page of failures by cause: equal failures are one line, those that are new first.

Calls that failed or were refused have a checksum of what failed and why
(:mod:`mcp_django.operating.failure_causes`). An index of these alone finds those of a period. If the query names more
than a time, the newest calls are searched, as many as for the list of calls.
"""

from collections import Counter, defaultdict
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property
from typing import Any, Final

from django.db.models import Count, Max, OuterRef, QuerySet, Subquery
from django.http import HttpRequest, HttpResponseBase
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from ..conf import settings
from ..context.untrusted_text import plain
from ..models import CallEntry
from .call_query import LOOKED_THROUGH, CallQuery, Term, time_at
from .console_pages import Page
from .overview_charts import SPANS

# What the page shows where the query names no time.
DEFAULT: Final = "last 7d"
# Maximum number of causes, of newest failures whose clients and users are read, and of names that a cause shows.
MOST: Final = 50
MOST_CALLERS: Final = 5_000
NAMED: Final = 3
# A failure is new if nothing like it was seen before this time.
NEW: Final = timedelta(days=1)
READ: Final = ("time", "tool", "method", "outcome", "detail", "release", "cause")


@dataclass
class FailureCause:
    """Equal failures in a period: how many of ``all`` failures, and the ``first`` one in the log and the ``newest``."""

    checksum: str
    count: int
    all: int
    first: CallEntry
    newest: CallEntry
    clients: Counter[str]
    users: Counter[str]
    query: CallQuery

    @property
    def share(self) -> float:
        """The share of these failures among all of the period, in percent."""
        return 100 * self.count / self.all

    @property
    def what(self) -> str:
        """The tool or method that fails."""
        return plain(self.newest.tool or self.newest.method)

    @property
    def reason(self) -> str:
        """Why it fails, as the newest failure says it; "" where its outcome says it all."""
        return plain(self.newest.detail)

    @property
    def since_release(self) -> str:
        """The version of the server that failed first."""
        return plain(self.first.release)

    @property
    def calls(self) -> CallQuery:
        """The query of these failures in the period."""
        return self.query.adding(cause=self.checksum)

    @property
    def callers(self) -> list[tuple[str, list[tuple[str, int, CallQuery]], int]]:
        """The clients and the users who meet it: what they are, those who do so most, and how many there are besides.

        Each has the number of their failures, and the query of these.
        """
        found = []
        for term, title, counts in (("client", _("client"), self.clients), ("user", _("user"), self.users)):
            most = [(plain(name), n, self.calls.adding(**{term: name})) for name, n in counts.most_common(NAMED)]
            found.append((title, most, len(counts) - len(most)))
        return found


class Failures:
    """The failures that a query finds, by cause."""

    def __init__(self, query: CallQuery, now: datetime) -> None:
        self.query = query
        self.now = now
        # The time since which failures were searched, None for the whole period.
        self.since: datetime | None = None
        # The time since which clients and users are named, None for all.
        self.named_since: datetime | None = None
        log = CallEntry._default_manager.order_by()
        if all(term.name == "time" for term in query.parts):
            calls = query.filter(log)
        else:
            calls, self.since = self.listed.newest(log)
            if self.since is None:
                # An index finds exactly these calls, but there may be any number of them.
                self.since = time_at(calls.order_by("-time"), LOOKED_THROUGH)
            if self.since is not None:
                calls = calls.filter(time__gte=self.since)
        self.rows: QuerySet[CallEntry] = calls.filter(cause__gt="").order_by()

    @property
    def listed(self) -> CallQuery:
        """The query of the list of these failures."""
        if self.query.is_about_failures:
            return self.query
        failed = [Term("outcome", group) for group in ("failed", "refused")]
        return CallQuery((*self.query.parts, *failed), self.now, self.query.known)

    @cached_property
    def causes(self) -> list[FailureCause]:
        """The causes with the most failures, those that are new first."""
        # The index of causes and times has all that the totals need.
        totals = self.rows.values("cause").annotate(n=Count("*"), last=Max("time"))
        found = list(totals.order_by("-n", "cause")[:MOST])
        if not found:
            return []

        # The first failure of each cause may be older than the period.
        checksums = [line["cause"] for line in found]
        log = CallEntry._default_manager.order_by().only(*READ)
        # SQLite uses an index of some rows only if the query says which.
        earliest = log.filter(cause=OuterRef("cause"), cause__gt="").order_by("time").values("pk")[:1]
        latest = self.rows.filter(cause__in=checksums, time__in={line["last"] for line in found}).only(*READ)
        latest = latest.annotate(first=Subquery(earliest)).order_by("time", "pk")
        newest: dict[str, Any] = {entry.cause: entry for entry in latest}
        first = log.in_bulk([entry.first for entry in newest.values()])
        number = sum(line["n"] for line in found)
        clients, users = self._callers(checksums, number)
        if len(found) == MOST:
            number = self.count
        causes = [
            FailureCause(
                checksum=checksum,
                count=line["n"],
                all=number,
                first=first[newest[checksum].first],
                newest=newest[checksum],
                clients=clients[checksum],
                users=users[checksum],
                query=self.query,
            )
            for checksum, line in zip(checksums, found, strict=True)
        ]
        return sorted(causes, key=self.is_old)

    @property
    def count(self) -> int:
        """How many failures there are."""
        return self.rows.count()

    def is_old(self, cause: FailureCause) -> bool:
        """Return whether failures like these were seen before yesterday's this time."""
        return cause.first.time < self.now - NEW

    @property
    def sections(self) -> list[tuple[Any, list[FailureCause]]]:
        """The causes with their headings: the new ones, and the others."""
        new = [cause for cause in self.causes if not self.is_old(cause)]
        old = [cause for cause in self.causes if self.is_old(cause)]
        headed = [(gettext_lazy("New since yesterday"), new), (gettext_lazy("Known before"), old)]
        return [(title, causes) for title, causes in headed if causes]

    def of_release(self, release: str) -> list[FailureCause]:
        """Return the causes that this version of the server was the first to meet."""
        return [cause for cause in self.causes if cause.first.release == release]

    def _callers(self, checksums: list[str], number: int) -> tuple[dict[str, Counter[str]], dict[str, Counter[str]]]:
        """Return the clients and the users who meet each cause, with the number of failures.

        Of more failures than ``MOST_CALLERS``, the newest are read: no index has the names.
        """
        met = self.rows.filter(cause__in=checksums)
        if number > MOST_CALLERS:
            self.named_since = time_at(met.order_by("-time"), MOST_CALLERS - 1)
        if self.named_since is not None:
            met = met.filter(time__gte=self.named_since)
        clients: dict[str, Counter[str]] = defaultdict(Counter)
        users: dict[str, Counter[str]] = defaultdict(Counter)
        names = met.values_list("cause", "client_name", "client_id", "username").annotate(Count("pk"))
        for checksum, name, client_id, username, count in names:
            if name or client_id:
                clients[checksum][name or client_id] += count
            if username:
                users[checksum][username] += count
        return clients, users


def show(page: Page, request: HttpRequest) -> HttpResponseBase:
    """Return the page of failures by cause, of the last seven days unless the query names another time."""
    now = timezone.now()
    query = CallQuery.parse(request.GET.get("q", ""), now)
    if query.period is None:
        query = query.adding(time=DEFAULT)
    found = Failures(query, now)
    release = settings.SERVER["version"]
    of_release = found.of_release(release)
    is_narrowed = "release" in request.GET
    sections = [(None, of_release)] if is_narrowed else found.sections
    context = {
        "query": query,
        "sections": sections,
        "release": release,
        "of_release": of_release,
        "is_narrowed": is_narrowed,
        "most": MOST if len(found.causes) == MOST else 0,
        "calls_url": page.home.calls_url,
        "since": found.since,
        "named_since": found.named_since,
        "earlier_url": found.since and query.back_from(found.since).url(),
        "list_url": found.listed.url(page.home.calls_url),
        "spans": query.spans(SPANS),
    }
    return page.render(request, context)
