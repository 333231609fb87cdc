"""Re-check the tokens, users and permissions behind open streams every few seconds.

A stream has no requests of its own, so nothing else would notice. It takes a few queries for hundreds of streams and
holds no database connection meanwhile.
"""

import logging
from typing import Final

from django.db import Error as DatabaseUnavailable

from ..context.middleware import through
from ..context.record import CallRecord
from ..context.request import MCPRequest
from ..context.switched import CALLERS, Off
from ..exceptions import CallRefused, NotFound
from ..operating.calls import describe_caller
from ..operating.switches import LOOK, board
from ..orm.access import get_exposure
from .audience import UPDATED, Audience, Caller, check_tokens
from .users import Person, identity, reload
from .watches import Watch, content_digest, is_readable, list_digests
from .workers import Worker

logger = logging.getLogger("mcp_django")

# Seconds between two rounds: what has ended is noticed within five.
EVERY: Final = 3.0
PERMISSION_LOST: Final = "a permission was lost"


class Sweep:
    """The thread that ends subscriptions."""

    def __init__(self, audience: Audience) -> None:
        self.audience = audience
        self.worker = Worker("mcp-sweep", self.run)
        self._is_down = False
        # The picture of the switches at the last round.
        self._version = ""

    def run(self) -> float | None:
        """Look at all of them once; return the seconds until the next round, None when there are none."""
        subscriptions = self.audience.subscriptions()
        if not subscriptions:
            return None
        try:
            check_tokens(subscriptions)
            self._check_people()
        except DatabaseUnavailable as error:
            if not self._is_down:
                logger.warning("Open streams cannot be checked: %s", type(error).__name__)
            self._is_down = True
        else:
            self._is_down = False
        return EVERY

    # Users

    def _check_people(self) -> None:
        board.renew(LOOK)
        off = board.off
        version = "" if off is None else off.version
        callers = self.audience.callers()
        people = reload([caller.user for caller in callers])
        for caller in callers:
            person = people[identity(caller.user)]
            reason = caller.lost(person) or (_switched(off, caller, person) if person and off else "")
            if person is None or reason:
                for subscription in tuple(caller.subscriptions):
                    subscription.end(reason)
            elif person.digest != caller.digest or version != self._version:
                caller.digest = person.digest
                caller.run(self._check_caller, caller, person)
        self._version = version

    def _check_caller(self, caller: Caller, person: Person) -> None:
        """End what the caller may not watch any more, and tell which lists are others now."""
        try:
            request = caller.request(person.user)
            through(request, lambda: self._check_as(request, caller))
        except Exception as error:
            logger.error("The check of a subscriber failed", exc_info=error)

    def _check_as(self, request: MCPRequest, caller: Caller) -> None:
        for subscription in tuple(caller.subscriptions):
            reasons = (_lost(request, watch) for watch in subscription.watches)
            if reason := next(filter(None, reasons), ""):
                subscription.end(reason)
        self._tell_schemas(request, caller)
        self._tell_lists(request, caller)

    def _tell_schemas(self, request: MCPRequest, caller: Caller) -> None:
        changed: dict[str, bool] = {}
        for subscription in tuple(caller.subscriptions):
            for watch in subscription.watches:
                if watch.is_schema:
                    if watch.uri not in changed:
                        digest = content_digest(request, watch)
                        changed[watch.uri] = caller.pages.get(watch.uri) != digest
                        caller.pages[watch.uri] = digest
                    if changed[watch.uri]:
                        subscription.tell(UPDATED, {"uri": watch.uri})

    def _tell_lists(self, request: MCPRequest, caller: Caller) -> None:
        if caller.lists is None:
            return
        before, caller.lists = caller.lists, list_digests(request)
        for kind, digest in caller.lists.items():
            if digest != before[kind]:
                for subscription in tuple(caller.subscriptions):
                    if kind in subscription.lists:
                        subscription.tell(f"notifications/{kind}/list_changed", {})


def _switched(off: Off, caller: Caller, person: Person) -> str:
    """Return what is told to a caller who is switched off, "" to others."""
    if off.kinds.isdisjoint(CALLERS):
        return ""
    record = CallRecord()
    describe_caller(caller.request(person.user), record)
    found = off.caller(record)
    return "" if found is None else found.text


def _lost(request: MCPRequest, watch: Watch) -> str:
    """Return why the caller may not watch this any more, "" while they may."""
    try:
        if not watch.label:
            return "" if is_readable(request, watch) else PERMISSION_LOST
        get_exposure(request, watch.label)
    except NotFound:
        return PERMISSION_LOST
    except CallRefused as refused:
        return refused.message
    return ""
