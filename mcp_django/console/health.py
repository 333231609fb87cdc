"""The page of the checks: settings, tables, cache and channel layer, and the endpoint as a client reaches it.

Nothing is checked before it is asked for, and nothing that is checked leaves a trace: the rest of a client's way, which
registers a client and signs in, is ``manage.py mcp_doctor``.
"""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from django.apps import apps
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError, connections, router
from django.db.migrations.executor import MigrationExecutor
from django.http import HttpRequest, HttpResponseBase
from django.utils.translation import gettext as _

from ..conf import settings
from ..models import CallEntry
from ..oauth.resource import resource_url
from ..routing import mounted_endpoints
from ..runtime.cache import cache
from ..subscriptions.hub import shared_layer
from .doctor import Doctor, Failed
from .pages import Page

# Those whose tables calls need.
APPS: Final = ("mcp_django", "oauth2_provider")
OURS: Final = "mcp_django."


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: ``verdict`` is "ok", "info", "warning" or "error", ``remedy`` what mends it."""

    title: str
    verdict: str
    seen: str
    remedy: str = ""

    @property
    def word(self) -> str:
        """The verdict as people read it."""
        return {"ok": _("well"), "info": _("note"), "warning": _("warning")}.get(self.verdict, _("wrong"))


def respond(page: Page, request: HttpRequest) -> HttpResponseBase:
    """Answer with the button, or with what was found."""
    findings = [*_of_endpoints(request), *of_parts(), *of_settings()] if request.method == "POST" else None
    return page.render(request, {"findings": findings})


def _of_endpoints(request: HttpRequest) -> Iterator[Finding]:
    for path in mounted_endpoints():
        try:
            url = resource_url(request, path)
        except ImproperlyConfigured as error:
            yield Finding(path, "error", str(error))
            continue
        yield from reached(url)


def reached(url: str) -> Iterator[Finding]:
    """Yield what a client sees that comes to the endpoint at ``url`` without a token, to the first thing that fails."""
    for title, step in Doctor(url, origins=settings.ALLOWED_ORIGINS).public_steps():
        try:
            yield Finding(f"{title} · {url}", "ok", step())
        except Failed as failed:
            yield Finding(f"{title} · {url}", "error", str(failed), failed.remedy)
            return


def of_parts() -> Iterator[Finding]:
    """Yield what is found of tables, cache and channel layer."""
    yield from (_of_tables(label) for label in APPS if apps.is_installed(label))
    yield _of_cache()
    if shared_layer() is None:
        remedy = _("With several workers, set CHANNEL_LAYERS to a layer that they share, such as channels_redis.")
        yield Finding(_("Channel layer"), "info", _("It is in the memory of each process."), remedy)
    else:
        yield Finding(_("Channel layer"), "ok", _("It is shared between workers."))


def _of_tables(label: str) -> Finding:
    title = _("Tables of %(app)s") % {"app": label}
    try:
        executor = MigrationExecutor(connections[router.db_for_write(CallEntry)])
        targets = [node for node in executor.loader.graph.leaf_nodes() if node[0] == label]
        missing = [migration.name for migration, _backwards in executor.migration_plan(targets)]
    except DatabaseError as error:
        return Finding(title, "error", type(error).__name__, _("Look at the server's log."))
    if missing:
        return Finding(
            title, "error", _("Not migrated: %(names)s") % {"names": ", ".join(missing)}, "manage.py migrate"
        )
    return Finding(title, "ok", _("All migrations are applied."))


def _of_cache() -> Finding:
    key, text = f"{OURS}health.{uuid.uuid4().hex}", _("Cache")
    remedy = _("Without it no call can be confirmed. See CACHES.")
    try:
        cache.set(key, "1", 10)
        is_well = cache.get(key) == "1"
        cache.delete(key)
    except Exception as error:
        return Finding(text, "error", type(error).__name__, remedy)
    if not is_well:
        return Finding(
            text, "error", _("It does not keep what it is given."), _("Without it no call can be confirmed.")
        )
    return Finding(text, "ok", _("It answers."))


def of_settings(*, deployed: bool = True) -> Iterator[Finding]:
    """Yield what the system checks of this app say, those for deployments only where it is ``deployed``."""
    own = [found for found in checks.run_checks(include_deployment_checks=deployed) if _is_ours(found)]
    for found in own:
        verdict = "error" if found.level >= checks.ERROR else "warning" if found.level >= checks.WARNING else "info"
        yield Finding(str(found.id), verdict, str(found.msg), str(found.hint or ""))
    if not own:
        yield Finding(_("System checks"), "ok", _("They find nothing."))


def _is_ours(found: Any) -> bool:
    return str(found.id or "").startswith(OURS)
