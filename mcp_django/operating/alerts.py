"""Alerts: tell people about a new client, many failed calls, a used-up budget, or a switch that has ended.

A thread of its own sends an alert, once for all workers that share the cache: to the log, to the receivers of the
signal ``alert_raised``, and by mail to ``ADMINS`` if the settings say so.
"""

import logging
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final
from urllib.parse import urlencode

from django.core.mail import mail_admins
from django.db import connections
from django.dispatch import receiver
from django.urls import NoReverseMatch, reverse
from django.utils.translation import gettext as _
from django.utils.translation import ngettext

from ..conf import settings
from ..context.untrusted_text import plain
from ..models import CallEntry
from ..runtime.cache_and_rate_limits import cache
from ..signals import alert_raised, client_connected

logger = logging.getLogger("mcp_django")

PREFIX: Final = "mcp_django:alert:"
# Seconds within which an alert is sent once, within which one mail of a kind is sent, and for which counts are kept.
ONCE: Final = 24 * 3600
MAIL_EVERY: Final = 600
KEPT: Final = 2 * 3600
# Seconds before an alert about failed calls is repeated, if their share stays high.
AGAIN: Final = 3600
# Maximum number of alerts that a worker remembers.
MOST: Final = 1_000
FAILURES: Final = ("error", "tool_error")


class Alerts:
    """The alerts that this process has raised, and when, in seconds of the monotonic clock."""

    def __init__(self) -> None:
        self._raised: dict[str, float] = {}
        self._lock = threading.Lock()

    def raise_alert(self, kind: str, key: str, text: str, facts: dict[str, Any], once: float = ONCE) -> None:
        """Send an alert in the background, but only once in ``once`` seconds for each ``key`` of a kind."""
        if settings.TELEMETRY["alerts"] == "off":
            return
        key = f"{PREFIX}{kind}:{key}"
        now = time.monotonic()
        with self._lock:
            if now - self._raised.get(key, -once) < once:
                return
            if len(self._raised) >= MOST:
                self._raised.clear()
            self._raised[key] = now
        thread = threading.Thread(target=tell, args=(kind, key, text, once, facts), name="mcp-alert", daemon=True)
        # A process that is ending cannot start threads.
        with suppress(RuntimeError):
            thread.start()

    def count(self, outcomes: Sequence[str]) -> None:
        """Count finished calls by outcome, and raise an alert if too many failed lately; on the thread of the log."""
        chosen = settings.TELEMETRY
        if chosen["alerts"] == "off":
            return
        failed = sum(outcome.startswith(FAILURES) for outcome in outcomes)
        minute = int(time.time()) // 60
        try:
            for name, number in (("calls", len(outcomes)), ("failed", failed)):
                counter = f"{PREFIX}{name}:{minute}"
                if number and not cache.add(counter, number, KEPT):
                    cache.incr(counter, number)
            if not failed:
                return
            minutes = range(minute - chosen["failing_minutes"] + 1, minute + 1)
            counts = cache.get_many([f"{PREFIX}{name}:{each}" for name in ("calls", "failed") for each in minutes])
        except Exception as error:
            logger.warning("Failed calls are not counted: the cache does not answer (%s)", type(error).__name__)
            return
        calls = sum(number for counter, number in counts.items() if ":calls:" in counter)
        failures = sum(counts.values()) - calls
        if calls >= chosen["failing_calls"] and failures >= chosen["failing_share"] * calls:
            facts = {"failed": failures, "calls": calls, "minutes": chosen["failing_minutes"]}
            text = ngettext(
                "%(failed)s of %(calls)s calls of the last minute failed.",
                "%(failed)s of %(calls)s calls of the last %(minutes)s minutes failed.",
                facts["minutes"],
            )
            self.raise_alert("failures", "", text % facts, facts, AGAIN)


alerts: Final = Alerts()


def tell(kind: str, key: str, text: str, once: float, facts: dict[str, Any]) -> None:
    """Send an alert, unless another worker did: log it, send ``alert_raised``, and mail it to ``ADMINS``."""
    try:
        if not _is_first(key, once):
            return
        logger.warning("Alert: %s", text)
        alert_raised.send_robust(sender=CallEntry, kind=kind, text=text, facts=facts)
        if settings.TELEMETRY["alerts"] == "mail" and _is_first(f"{PREFIX}mail:{kind}", MAIL_EVERY):
            mail_admins(f"MCP: {text}"[:200], f"{text}\n\n{facts.get('url') or settings.BASE_URL or ''}")
    except Exception as error:
        logger.error("An alert could not be mailed (%s): %s", type(error).__name__, text)
    finally:
        connections.close_all()


def _is_first(key: str, seconds: float) -> bool:
    try:
        return bool(cache.add(key, 1, seconds))
    except Exception:  # two alerts are better than none
        return True


@receiver(client_connected)
def tell_client(application: Any, user: Any, scopes: Any, **more: Any) -> None:
    """Raise an alert: a client has got its first token for a user."""
    names = {"client": plain(application.name) or application.client_id, "user": plain(user.get_username())}
    text = _("The client %(client)s has access as %(user)s.") % names
    facts = {**names, "client_id": application.client_id, "scopes": list(scopes)}
    # Not each project has mounted the admin.
    with suppress(NoReverseMatch):
        page = f"{reverse('admin:mcp_django_console_clients')}?{urlencode({'client': application.client_id})}"
        if settings.BASE_URL:
            facts["url"] = f"{str(settings.BASE_URL).rstrip('/')}{page}"
    alerts.raise_alert("client", f"{application.pk}:{user.pk}", text, facts)
