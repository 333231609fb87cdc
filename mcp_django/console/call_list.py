"""The calls that a query finds, for the admin's list, and the queries to which the list leads."""

from collections import Counter
from collections.abc import Callable, Iterator
from datetime import timedelta
from functools import cached_property
from typing import Any, Final

from django.contrib.admin.views.main import ORDER_VAR, PAGE_VAR, ChangeList
from django.db.models import QuerySet
from django.http import HttpRequest
from django.utils import timezone

from ..context.untrusted_text import plain
from ..models import CallEntry
from .call_query import COLUMNS, CallQuery, Term, time_at

# Number of values proposed for each name, and of newest calls found whose values are proposed.
PROPOSED: Final = {"tool": 3, "client": 3, "model": 2, "user": 2}
FACETED: Final = 1_000
# The columns of these calls that are read: those that a proposed term can look at.
READ: Final = ("outcome", "time", "tool", "client_name", "client_id", "model", "username", "user")
# How much time around a minute its link to the surrounding calls shows.
BEFORE: Final = timedelta(minutes=5)
AFTER: Final = timedelta(minutes=15)


class CallList(ChangeList):
    """The calls that a query finds, for the admin's list, and the links that change the query."""

    def get_queryset(self, request: HttpRequest, exclude_parameters: Any = None) -> QuerySet[Any]:
        """Return the calls that the query in the URL finds, for the admin's list.

        Another order than that of time is the order of the newest ones that the list leads to.
        """
        self.asked = CallQuery.parse(self.query, timezone.now())
        rows = super().get_queryset(request, exclude_parameters)
        self.sorted_by = str(rows.query.order_by[0])
        if self.sorted_by in ("time", "-time"):
            calls, self.since = self.asked.newest(rows)
            return calls
        calls, self.since = self.asked.newest(rows.order_by("-time", "-pk"))
        paginator: Any = self.model_admin.paginator
        last = time_at(calls, paginator.most - 1)
        if last is not None:
            calls = calls.filter(time__gte=last)
        return calls.order_by(self.sorted_by, "-time", "-pk")

    @property
    def sorts(self) -> dict[str, tuple[str, str]]:
        """Of each column that can be sorted, how it is sorted now, and the URL that sorts it, first by the most."""
        found = {}
        for index, name in enumerate(self.list_display):
            state = {f"-{name}": "descending", name: "ascending"}.get(self.sorted_by, "none")
            order = index if state == "descending" else f"-{index}"
            found[str(name)] = state, self.get_query_string({ORDER_VAR: order}, [PAGE_VAR])
        return found

    @property
    def is_live(self) -> bool:
        """Whether new calls would come first in this list."""
        ends = self.asked.period and self.asked.period[1]
        return self.page_num == 1 and self.sorted_by == "-time" and (ends is None or ends > self.asked.now)

    @property
    def page(self) -> Any:
        """The page that is shown of the calls that the query finds."""
        return self.paginator.get_page(self.page_num)

    @property
    def rows(self) -> Iterator[tuple[CallEntry, list[tuple[str, CallQuery | None]]]]:
        """Each call that the query finds, and the longer queries that its tool, model, user and client lead to."""
        chosen = {(term.name, term.value) for term in self.asked.terms}
        for entry in self.result_list:
            called = ("tool", entry.tool) if entry.tool else ("method", entry.method)
            client = entry.client_name or entry.client_id
            links: list[tuple[str, CallQuery | None]] = []
            for name, value in (called, ("model", entry.model), ("user", entry.username), ("client", client)):
                text = plain(value)
                longer = None
                # A link without a text is for nobody.
                if text and (name, value) not in chosen:
                    longer = self.asked.adding(**{name: value})
                links.append((text, longer))
            yield entry, links

    @cached_property
    def faceted(self) -> list[dict[str, Any]]:
        """The newest calls that the query finds, at most ``FACETED``."""
        if not self.result_count:
            return []
        return list(self.queryset.order_by("-time", "-pk").values(*READ)[:FACETED])

    @property
    def is_bounded(self) -> bool:
        """Whether the proposals count the newest of these calls only."""
        return len(self.faceted) == FACETED

    @cached_property
    def proposals(self) -> list[tuple[CallQuery, Term, int]]:
        """Queries that are one term longer, that term, and how many of the newest calls they find.

        Each finds some of these calls, and not all of the newest. Failed and refused calls are looked for beyond these.
        """
        if not self.faceted:
            return []
        values = [("outcome", "failed"), ("outcome", "refused"), ("time", "last 1h")]
        for name, most in PROPOSED.items():
            counts = Counter(call[COLUMNS[name]] for call in self.faceted)
            values += [(name, value) for value, _count in counts.most_common(most) if value]
        known = self.asked.known
        known.learn(*[("client_id", value) for name, value in values if name == "client"])
        known.user_keys(*[value for name, value in values if name == "user"])

        names = {term.name for term in self.asked.terms}
        found = []
        for name, value in values:
            if name in names:
                continue
            query = self.asked.adding(**{name: value})
            term = query.parts[-1]
            count = sum(map(self._test_of(term), self.faceted))
            if not count and name == "outcome" and self.is_bounded:
                is_proposed = _finds_calls(query, self.root_queryset)
            else:
                is_proposed = 0 < count < len(self.faceted)
            if is_proposed:
                found.append((query, term, count))
        return found

    def _test_of(self, term: Term) -> Callable[[dict[str, Any]], bool]:
        """Return the function that tells whether a term finds a call."""
        begins = term.period[0]
        if begins is not None:
            return lambda call: call["time"] >= begins
        column, values = self.asked.known.look(term.name, term.value)
        return lambda call: call[column] in values

    @property
    def narrower(self) -> list[tuple[Term, CallQuery]]:
        """Each term without which the query finds calls, and the query without it; for queries that find none."""
        queries = [(term, self.asked.without(term)) for term in self.asked.terms]
        return [(term, query) for term, query in queries if _finds_calls(query, self.root_queryset)]

    @property
    def around(self) -> CallQuery | None:
        """The query of the time around a minute."""
        begins, ends = self.asked.period or (None, None)
        if begins is None or ends is None or ends - begins > timedelta(minutes=1):
            return None
        return self.asked.adding(time=(begins - BEFORE, begins + AFTER))

    @property
    def earlier(self) -> CallQuery | None:
        """The query for the older calls that this one has not searched, None if there are none."""
        return None if self.since is None else self.asked.back_from(self.since)


def _finds_calls(query: CallQuery, rows: QuerySet[CallEntry]) -> bool:
    calls, _since = query.newest(rows)
    return calls.exists()
