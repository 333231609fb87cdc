"""The console's page of conversations: calls of one session, or of one token or user and client without a long pause.

Nothing here reads the whole table: a list reads some of the newest calls, and a conversation the calls around one call.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from functools import cached_property, reduce
from itertools import pairwise
from operator import or_
from typing import Any, Final

from django.contrib.admin.models import LogEntry
from django.core.exceptions import ObjectDoesNotExist, ValidationError
from django.db.models import Model, Q
from django.http import Http404, HttpRequest, HttpResponseBase
from django.urls import NoReverseMatch, reverse
from django.utils import timezone
from django.utils.translation import gettext as _

from ..context.untrusted_text import doubts_about, plain
from ..exposures.querysets import leaves_out_nothing
from ..models import CallEntry
from ..templatetags.mcp_console import Outcome
from .call_log_admin import BODIES
from .call_query import CallQuery, Term, history_entries
from .client_time_page import link_to
from .console_pages import Home, Page
from .undo_page import changes_of

# A pause longer than PAUSE ends a conversation that has no session; pauses from TOLD on are shown.
PAUSE: Final = timedelta(minutes=30)
TOLD: Final = timedelta(minutes=1)
# Maximum number of matching calls that a list reads, the time around them in which it searches for other calls of their
# conversations, and the maximum numbers of calls that it finds there and of conversations in the list.
LOOKED_AT: Final = 300
NEAR: Final = timedelta(hours=12)
MOST: Final = 3_000
LISTED: Final = 25
# How many times a list searches further back for the call at which the next page starts.
AHEAD: Final = 2
# Maximum number of calls before and after a call (and of history entries), and of models that are named.
AROUND: Final = 100
NAMED: Final = 12
# What the calls of a conversation have in common: terms of the query, and the fields of the log.
TERMS: Final = {"session": "session", "token": "token", "user": "user", "client": "client_id"}
SUMS: Final = ("rows_read", "rows_changed", "tokens", "duration", "queries")
LIGHT: Final = ("time", "session", "token", "user", "username", "client_id", "client_name", "outcome", *SUMS)


@dataclass
class Conversation:
    """Calls that belong together, the oldest first; ``earlier`` and ``later`` say that the conversation has more."""

    calls: list[CallEntry]
    earlier: bool = False
    later: bool = False

    @staticmethod
    def key_of(call: CallEntry) -> dict[str, Any]:
        """Return the fields that all calls of the same conversation have in common; an anonymous call is alone."""
        if call.session or call.token:
            if call.session:
                return {"session": call.session}
            return {"session": "", "token": call.token}
        caller = {"user": call.user, "client_id": call.client_id}
        if any(caller.values()):
            return {"session": "", "token": "", **caller}
        return {"pk": call.pk}

    @classmethod
    def among(cls, calls: Iterable[CallEntry]) -> "list[Conversation]":
        """Group calls, the newest first, into conversations; the one with the newest call comes first."""
        conversations: list[Conversation] = []
        # The oldest conversation so far of each session, token or caller.
        oldest: dict[Any, Conversation] = {}
        for call in calls:
            key = tuple(cls.key_of(call).values())
            conversation = oldest.get(key)
            if conversation is None or not (call.session or conversation.calls[0].time - call.time <= PAUSE):
                conversation = cls([])
                oldest[key] = conversation
                conversations.append(conversation)
            conversation.calls.insert(0, call)
        return conversations

    @classmethod
    def around(cls, call: CallEntry, most: int = AROUND) -> "Conversation":
        """Return the conversation of a call, with at most so many calls before and after the call."""
        rows = CallEntry._default_manager.filter(**cls.key_of(call)).exclude(pk=call.pk).defer(*BODIES)
        before = rows.filter(time__lt=call.time).order_by("-time", "-pk")[: most + 1]
        after = rows.filter(time__gte=call.time).order_by("time", "pk")[: most + 1]
        conversations = cls.among([*list(after)[::-1], call, *before])
        calls = next(conversation.calls for conversation in conversations if call in conversation.calls)
        at = calls.index(call)
        return cls(calls[max(0, at - most) : at + most + 1], at > most, len(calls) - at - 1 > most)

    @classmethod
    def recent(cls, query: CallQuery, until: CallEntry | None) -> "tuple[list[Conversation], CallEntry | None]":
        """Return the conversations with the newest calls that match a query, and the call where the next page starts.

        With ``until``, conversations with a matching call after that one are left out. If only such conversations are
        found, because one has more calls than are read, they are returned again.
        """
        pairs, start = cls._newest(query, until, LOOKED_AT)
        conversations = [conversation for _call, conversation in pairs]
        new = [conversation for conversation in conversations if not conversation.later]
        # The next page starts with a conversation that has not been shown: search for one further back.
        tries = AHEAD
        if until is None and all(start not in conversation.calls for conversation in new):
            tries = 0
        while start is not None and tries:
            older, further = cls._newest(query, start, MOST)
            first = next((call for call, conversation in older if not conversation.later), None)
            if first is not None:
                start = first
                break
            start = further
            tries -= 1
        # Several matching calls can be of one conversation.
        listed = {id(conversation): conversation for conversation in new or conversations}
        return sorted(listed.values(), key=lambda conversation: conversation.calls[-1].time, reverse=True), start

    @classmethod
    def _newest(
        cls, query: CallQuery, until: CallEntry | None, most: int
    ) -> "tuple[list[tuple[CallEntry, Conversation]], CallEntry | None]":
        """Return the newest matching calls, each with its conversation, and the call where the next page starts.

        At most ``most`` matching calls are read, those after ``until`` not among them.
        """
        # First, group the newest calls that match.
        every = CallEntry._default_manager.all()
        rows, _since = query.newest(every if until is None else every.filter(time__lte=until.time))
        newest = list(rows.order_by("-time", "-pk").only(*LIGHT)[:most])
        groups = cls.among(newest)
        start = None
        if len(groups) > LISTED:
            start = groups[LISTED].calls[-1]
        elif len(newest) == most:
            start = newest[-1]
        groups = groups[:LISTED]
        times = [call.time for group in groups for call in group.calls]
        if not times:
            return [], None

        # Then, read the other calls of these conversations, whether or not they match.
        keys = (Q(**cls.key_of(group.calls[0])) for group in groups)
        whole = every.filter(time__gte=min(times) - NEAR, time__lte=max(times) + NEAR)
        whole = whole.filter(reduce(or_, keys)).order_by("-time", "-pk").only(*LIGHT)[:MOST]

        # A session is one conversation, even if it has more calls than are read.
        by_call = {
            call.session or call.pk: conversation for conversation in cls.among(whole) for call in conversation.calls
        }
        pairs = []
        for group in groups:
            call = group.calls[-1]
            pairs.append((call, by_call.get(call.session or call.pk, group)))

        # Last, mark the conversations of which an earlier page has shown a matching call.
        if until is not None:
            shown = {call.pk: each for _call, each in pairs for call in each.calls if call.time > until.time}
            for pk in query.filter(every.filter(pk__in=shown)).values_list("pk", flat=True):
                shown[pk].later = True
        return pairs, start

    @property
    def minutes(self) -> float:
        return (self.calls[-1].time - self.calls[0].time).total_seconds() / 60

    @cached_property
    def sums(self) -> dict[str, float]:
        """The totals of all calls, and how many of them had an outcome of which group."""
        groups = Counter(Outcome(call.outcome).group for call in self.calls)
        return {**groups, **{name: sum(getattr(call, name) for call in self.calls) for name in SUMS}}

    @property
    def query(self) -> CallQuery:
        """The query of its calls: those of its session, or of its token or caller in its time."""
        call = self.calls[-1]
        known = self.key_of(call)
        terms = [Term(name, known[column]) for name, column in TERMS.items() if known.get(column)]
        query = CallQuery(tuple(terms), timezone.now())
        if call.session:
            return query
        return query.adding(time=(self.calls[0].time, call.time + timedelta(seconds=1)))

    @property
    def models(self) -> list[tuple[str, int, int]]:
        """The models that the calls used, and how many rows of each they read and changed."""
        read = Counter[str]()
        changed = Counter[str]()
        for call in self.calls:
            read[call.model] += call.rows_read
            changed[call.model] += call.rows_changed
        return [(name, rows, changed[name]) for name, rows in read.most_common(NAMED) if name]

    @property
    def steps(self) -> list[tuple[CallEntry, datetime | None]]:
        """The calls, each after the time of the call before it where there was a pause, otherwise after None."""
        steps: list[tuple[CallEntry, datetime | None]] = []
        for before, call in pairwise([self.calls[0], *self.calls]):
            is_after_pause = call.time - before.time >= TOLD
            steps.append((call, before.time if is_after_pause else None))
        return steps


def admin_url(
    home: Home, request: HttpRequest, model: type[Model] | None, page: str, *args: Any, row: Model | None = None
) -> str:
    """Return the admin URL of this page of a model, or of a row of it, "" if the user may not open it."""
    model_admin = None if model is None else home.admin_site._registry.get(model)
    if model is None or model_admin is None or not model_admin.has_view_permission(request, row):
        return ""
    options = model._meta
    try:
        return reverse(f"{home.admin_site.name}:{options.app_label}_{options.model_name}_{page}", args=args)
    except NoReverseMatch:
        return ""


def written(home: Home, request: HttpRequest, calls: Sequence[CallEntry]) -> Iterator[dict[str, Any]]:
    """Yield the entries of the admin's history that the calls wrote; hidden rows are shown without a name."""
    keys = [key for call in calls for key in call.history if str(key).isdecimal()][:AROUND]
    for entry in history_entries(keys).select_related("content_type").order_by("pk"):
        model = entry.content_type.model_class() if entry.content_type else None
        url = admin_url(home, request, model, "history", entry.object_id)
        if url and not _is_hidden(home, request, model, entry):
            yield {"url": url, "name": plain(entry.object_repr), "said": plain(entry.get_change_message(), 300)}
        else:
            yield {"url": "", "name": _("a row that you may not see"), "said": ""}


def _is_hidden(home: Home, request: HttpRequest, model: Any, entry: LogEntry) -> bool:
    """Return whether the admin hides the row of an entry from the user, so that its name must not be shown.

    Of a deleted row nobody knows whether the admin would show it. It is named to those who see every row.
    """
    model_admin = home.admin_site._registry[model]
    row = model_admin.get_object(request, str(entry.object_id))
    if row is not None:
        return not model_admin.has_view_permission(request, row)
    with suppress(ObjectDoesNotExist, ValidationError, ValueError):
        if entry.get_edited_object() is not None:
            return True
    return not leaves_out_nothing(model_admin.get_queryset(request))


def show(page: Page, request: HttpRequest) -> HttpResponseBase:
    """Render the list of conversations, or the one of a call."""
    query = request.GET.copy()
    key = query.get("call", "")
    until = query.pop("until", [""])[-1]
    call = page.home.get_object(request, key or until) if key or until else None
    if not key:
        call_query = CallQuery.parse(query.get("q", ""), timezone.now())
        conversations, start = Conversation.recent(call_query, call)
        context = {
            "query": call_query,
            "conversations": conversations,
            "more": start,
            "is_older": call is not None,
            "kept": query.urlencode(),
        }
        return page.render(request, context)
    if call is None:
        raise Http404
    conversation = Conversation.around(call)
    doubts = doubts_about(call.client_name, [call.client_host] if call.client_host else ())
    entries = list(written(page.home, request, conversation.calls))
    context = {"conversation": conversation, "doubts": doubts, "written": entries}
    context["changes"] = list(changes_of(page.home, request, conversation.calls))
    context["time_url"] = link_to(page.home, request, conversation.calls)
    return page.render(request, context, "conversation")
