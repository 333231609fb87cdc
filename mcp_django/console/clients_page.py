"""The console's pages of clients: a list of them, and the record of one.

A client is known by its id: as a registered application, by its calls, or both. One without an id, such as a program on
stdio, is known by what it calls itself. The log gives two lookups for each client, and a sample of the week's calls.
"""

from collections import Counter, defaultdict
from collections.abc import Collection
from datetime import datetime, timedelta
from typing import Any, Final

from django.contrib.auth import get_user_model
from django.core.paginator import Paginator
from django.db.models import Count, Q, QuerySet, Subquery
from django.http import Http404, HttpRequest, HttpResponseBase
from django.utils import timezone
from django.utils.formats import number_format
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from oauth2_provider.models import get_access_token_model, get_application_model

from ..context.untrusted_text import doubts_about, plain
from ..models import CallEntry, ServiceAccount, Switch, TokenFacts
from ..oauth.client_and_token_display import client_name, describe, hosts_of, name_doubts
from ..oauth.stored_tokens import live
from ..operating.switches import find_switches
from ..templatetags.mcp_console import Outcome
from .call_query import NEWEST, CallQuery, Term
from .console_pages import Page
from .conversations_page import admin_url
from .overview_charts import MOST, rounded, sample
from .switches_page import clients_named

# Maximum number of clients on a page of the list, and of those on its first page that the log alone knows.
LISTED: Final = 50
# Maximum number of new connections, for all of which one query asks, and of tokens of one client that are read.
MOST_NEW: Final = 900
MOST_TOKENS: Final = 200
# The time of the figures, and of what counts as new.
WEEK: Final = timedelta(days=7)
READ: Final = ("time", "client_id", "client_name", "client_host", "kind")
# How a client came to be known, by the toolkit's source of its registration.
SOURCES: Final = {
    "dcr": gettext_lazy("registered itself"),
    "cimd": gettext_lazy("metadata document"),
    "manual": gettext_lazy("added by hand"),
}


class ClientRecord:
    """What is known of a client. Its ``key`` is its id, or else its name: a value of this ``column`` of the log.

    ``calls`` and ``failed`` are numbers of the last seven days as texts, and ``connected`` who connected it then.
    """

    def __init__(self, key: str, column: str = "client_id", application: Any = None, kind: Any = "") -> None:
        self.key = key
        self.column = column
        self.application = application
        self.kind = kind
        self.newest: CallEntry | None = None
        self.calls = self.failed = ""
        self.connected: dict[str, datetime] = {}
        # The term of the console's query for its calls
        self.term = str(Term("client", key))
        if application is not None:
            self.kind = kind or SOURCES.get(application.registration_source, "")
            self.name = client_name(application)
            self.host = ", ".join(hosts_of(application))
            self.doubts = name_doubts(application)
            self.first_seen = application.created

    @property
    def is_named(self) -> bool:
        """Whether it is known by its name alone."""
        return self.column == "client_name"

    def read(self, first: CallEntry, newest: CallEntry) -> None:
        """Take what its first and its newest call say, unless it is registered."""
        self.newest = newest
        if self.application is None:
            self.name = plain(newest.client_name) or plain(self.key)
            self.host = plain(newest.client_host, 255)
            self.doubts = doubts_about(self.name, [self.host] if self.host else ())
            self.kind = "" if newest.kind == CallEntry.Kind.PERSON else newest.get_kind_display()
            self.first_seen = first.time


class Clients:
    """The clients that a user can know of: all if they may view access at ``access_url``, or else those of the log."""

    def __init__(self, access_url: str) -> None:
        self.access_url = access_url
        self.now = timezone.now()
        self.log: QuerySet[CallEntry] = CallEntry._default_manager.order_by()

    def page(self, number: Any, *, is_new: bool, text: str) -> tuple[Any, list[ClientRecord]]:
        """Return a page of the registered clients, and its records; the first one has clients of the log as well.

        With ``is_new``, these are the clients that were registered, connected or first seen in the last seven days.
        """
        begins = self.now - WEEK
        connections = new_connections(begins) if self.access_url else {}
        # The newest first: what was registered or connected last.
        rows = get_application_model()._default_manager.filter(Q(name__icontains=text) | Q(client_id__icontains=text))
        if is_new:
            rows = rows.filter(Q(created__gte=begins) | Q(pk__in=list(connections)))
        created = dict(rows.values_list("pk", "created")) if self.access_url else {}
        newest = {key: max([time, *connections.get(key, {}).values()]) for key, time in created.items()}
        page = Paginator(sorted(newest, key=lambda key: newest[key], reverse=True), LISTED).get_page(number)

        known = {record.application.pk: record for record in registered(pk__in=list(page)).values()}
        records = [known[key] for key in page if key in known]
        for record in records:
            record.connected = connections.get(record.application.pk, {})
        records += self._of_the_log(text) if page.number == 1 else []
        self.read(records)
        return page, [each for each in records if not is_new or each.connected or each.first_seen >= begins]

    def _of_the_log(self, text: str) -> list[ClientRecord]:
        """Return clients of the newest calls: those that are not registered, or all if the user may not view access."""
        newest = self.log.order_by("-time", "-pk").values_list("client_id", "client_name")[:NEWEST]
        found = {client_id or name: "client_id" if client_id else "client_name" for client_id, name in newest}
        keys = [key for key in found if key and text.lower() in key.lower()]
        known = registered(client_id__in=keys)
        listed = [key for key in keys if not (self.access_url and key in known)][:LISTED]
        return [known.get(key) or ClientRecord(key, found[key]) for key in listed]

    def find(self, key: str) -> list[ClientRecord]:
        """Return the client with this id, or else those that call themselves so; none if there are none."""
        for ids, column in (([key], "client_id"), (list(clients_named(key)), "client_id"), ([key], "client_name")):
            known = registered(client_id__in=ids)
            records = [known.get(each) or ClientRecord(each, column) for each in ids]
            self.read(records)
            found = [each for each in records if each.newest or (each.application is not None and self.access_url)]
            if found:
                return found
        return []

    def read(self, records: Collection[ClientRecord]) -> None:
        """Set what the log says of clients: by one statement that looks into its indexes, and by the week's calls."""
        looks: dict[str, Any] = {}
        for place, record in enumerate(records):
            calls = self.log.filter(**{record.column: record.key}).values("pk")
            looks[f"first{place}"] = Subquery(calls.order_by("time")[:1])
            looks[f"newest{place}"] = Subquery(calls.order_by("-time")[:1])
        found: Any = (self.log.values(**looks).first() if looks else None) or {}
        entries = self.log.only(*READ).in_bulk(set(found.values()) - {None})
        for place, record in enumerate(records):
            if found.get(f"newest{place}") in entries:
                record.read(entries[found[f"first{place}"]], entries[found[f"newest{place}"]])
        if entries:
            self._count(records)

    def _count(self, records: Collection[ClientRecord]) -> None:
        calls = self.log.filter(time__gte=self.now - WEEK, time__lt=self.now)
        rows, part = sample(CallQuery.parse("", self.now), calls)
        sums = _sums(rows)
        # A sample says little of clients with few calls. An index finds these.
        few = [each.key for each in records if part > 1 and sums[0][each.key] * part * len(records) < MOST]
        exact = _sums(calls.filter(client_id__in=few))
        for record in records:
            of, times = (exact, 1) if record.key in few else (sums, part)
            record.calls, record.failed = (_text(numbers[record.key], times) for numbers in of)


def _sums(rows: QuerySet[CallEntry]) -> tuple[Counter[str], Counter[str]]:
    """Return how many calls each client made, and how many of these failed, by its id or else its name."""
    numbers, failed = Counter[str](), Counter[str]()
    counts = rows.values_list("client_id", "client_name", "outcome").annotate(Count("pk"))
    for client_id, name, outcome, number in counts:
        numbers[client_id or name] += number
        failed[client_id or name] += number * (Outcome(outcome).group == "failed")
    return numbers, failed


def _text(number: int, part: int) -> str:
    text = number_format(number if part == 1 else rounded(number * part), force_grouping=True)
    return text if part == 1 else _("about %s") % text


def registered(**lookups: Any) -> dict[str, ClientRecord]:
    """Return the records of the applications that have these values, by their ids."""
    rows = {row.client_id: row for row in get_application_model()._default_manager.filter(**lookups)}
    accounts = ServiceAccount._default_manager.filter(client_id__in=list(rows)).values_list("client_id", flat=True)
    kinds = dict.fromkeys(accounts, _("service account"))
    return {key: ClientRecord(key, application=row, kind=kinds.get(key, "")) for key, row in rows.items()}


def new_connections(since: datetime) -> dict[Any, dict[str, datetime]]:
    """Return who connected clients at the consent page since a time, and when, by the client's key: the newest
    ``MOST_NEW`` of those who still have access, the newest first."""
    rows = TokenFacts._default_manager.filter(created__gte=since, family__isnull=False).order_by("-created")
    times = dict(rows.values_list("pk", "created")[:MOST_NEW])
    found: dict[Any, dict[str, datetime]] = defaultdict(dict)
    tokens = get_access_token_model()._default_manager.filter(token_checksum__in=list(times), user__isnull=False)
    names = tokens.values_list("token_checksum", "application", f"user__{get_user_model().USERNAME_FIELD}")
    for checksum, application, username in sorted(names, key=lambda row: times[row[0]], reverse=True):
        found[application].setdefault(username, times[checksum])
    return found


def access_to(application: Any) -> list[Any]:
    """Return the newest tokens for an application that work, with what pages show of them."""
    rows = get_access_token_model()._default_manager.filter(live(), application=application).order_by("-created", "-pk")
    tokens = list(rows.select_related("application", "user", "refresh_token")[:MOST_TOKENS])
    describe(tokens)
    return tokens


def show(page: Page, request: HttpRequest) -> HttpResponseBase:
    """Render the list of clients, or the page of the one that the address names."""
    access_url = admin_url(page.home, request, get_access_token_model(), "changelist")
    clients = Clients(access_url)
    key, text = (request.GET.get(name, "").replace("\0", "")[:255] for name in ("client", "name"))
    context: dict[str, Any] = {"access_url": access_url, "is_new": "new" in request.GET, "text": text}
    if not key:
        listed, records = clients.page(request.GET.get("p"), is_new=context["is_new"], text=text)
        return page.render(request, {**context, "listed": listed, "records": records})
    records = clients.find(key)
    if not records:
        raise Http404
    if len(records) > 1:
        return page.render(request, {**context, "records": records, "named": plain(key)})
    record = records[0]
    context["record"] = record
    if not record.is_named:
        context["off"] = find_switches(Switch.Kind.CLIENT, record.key)
        context["time_url"] = page.home.client_time_url(request, client=record.key)
    if record.application is not None and access_url:
        context["tokens"] = access_to(record.application)
        model = get_application_model()
        context["application_url"] = admin_url(page.home, request, model, "change", record.application.pk)
    return page.render(request, context, "client")
