"""The console's health checks page: settings, migrations, cache, channel layer, and the endpoint over HTTP.

The checks run when the page opens, take a few seconds and leave nothing behind. ``manage.py mcp_doctor`` also checks
the steps that do: registering a client and signing in.
"""

import asyncio
import time
import uuid
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from itertools import chain
from typing import Any, Final
from urllib.parse import urlsplit

from asgiref.sync import async_to_sync
from channels.layers import channel_layers
from django.apps import apps
from django.conf import settings as django_settings
from django.core import checks
from django.core.exceptions import ImproperlyConfigured
from django.db import DatabaseError
from django.db.models import Sum
from django.http import HttpRequest, HttpResponseBase
from django.template.defaultfilters import filesizeformat
from django.utils import timezone
from django.utils.translation import gettext as _
from django.utils.translation import ngettext
from oauth2_provider.models import get_access_token_model, get_application_model
from oauth2_provider.settings import oauth2_settings

from ..conf import settings
from ..exports.kept_exports import KeptExport
from ..oauth import client_documents
from ..oauth.client_documents import takes_documents
from ..oauth.cors_and_refusals import unrestored_address
from ..oauth.resource_urls import resource_url, uses_oauth
from ..routing import ENDPOINTS
from ..runtime.cache_and_rate_limits import cache
from ..runtime.missing_migrations import MissingTables, missing_migrations
from ..schema.secrets import without_secrets
from ..subscriptions.bus import bus
from ..tasks.engines import engine
from .check_results import CheckResult
from .console_pages import Page
from .doctor import BUSY, Doctor
from .known_sites import known_sites
from .readable_models import try_models
from .rule_report import check_rules
from .task_list import LOST, WAITS_VERY_LONG, count_open

OURS: Final = "mcp_django."
# Seconds within which a message has to come back from the channel layer.
LAYER_TIMEOUT: Final = 3
# Seconds for all HTTP requests of one page together.
PATIENCE: Final = 4.0
ONE_ADDRESS: Final = "It is the proxy's address: the limits of refusals and registrations count all clients as one."
# Maximum number of tokens whose scopes are looked at.
MAX_TOKENS: Final = 1_000
# How long after its end an export is still there, if nobody deletes what has expired.
KEPT_TOO_LONG: Final = timedelta(days=2)
VERDICTS: Final = ("error", "warning", "info", "ok")


def respond(page: Page, request: HttpRequest) -> HttpResponseBase:
    """Render the results of all checks, errors first."""
    # Missing tables are the first of the errors: they explain the others.
    project = ProjectChecks(request.user, seconds=PATIENCE / 2)
    findings: list[CheckResult] = list(project.parts())
    ends = time.monotonic() + PATIENCE
    for path in ENDPOINTS.by_path():
        url = resource_url(request, path) if settings.BASE_URL else path
        doctor = Doctor(url, origins=settings.ALLOWED_ORIGINS)
        doctor.agent.ends = ends
        if not request.META.get("wsgi.multithread", True) and not request.META.get("wsgi.multiprocess", True):
            findings.append(CheckResult(doctor.url, "warning", _("The server cannot call itself."), BUSY))
            continue
        prepare_sign_in(doctor, request)
        findings += results(doctor, chain(doctor.public_steps(), doctor.page_steps()))
        if doctor.login is not None and not doctor.client_id:
            text = _("It was not opened: no client is registered yet, or this page is at another address.")
            findings.append(CheckResult(_("Consent page"), "info", text))
    findings += project.system_checks()
    unrestored = unrestored_address(request)
    if unrestored is not None:
        findings.append(CheckResult("REMOTE_ADDR", "warning", ONE_ADDRESS, unrestored.remedy))
    findings += [item for item in project.models() if item.verdict != "ok"]
    findings.sort(key=lambda item: VERDICTS.index(item.verdict))
    return page.render(request, {"findings": findings, "count": Counter(item.verdict for item in findings)})


def prepare_sign_in(doctor: Doctor, request: HttpRequest) -> None:
    """Let the doctor open the consent page in the session of the page's user, as a registered client.
    The session cookie is sent only to the host to which the user's browser has sent it."""
    model = get_application_model()
    key = request.COOKIES.get(django_settings.SESSION_COOKIE_NAME)
    kind = model.GRANT_AUTHORIZATION_CODE
    clients = model._default_manager.filter(authorization_grant_type=kind, skip_authorization=False)
    client = clients.exclude(redirect_uris="").exclude(client_id__startswith="https://").order_by("-pk").first()
    if client is not None and key and urlsplit(doctor.url).netloc == request.get_host():
        doctor.client_id = client.client_id
        doctor.callback = client.redirect_uris.split()[0]
        doctor.use_session(key)


def reached(url: str) -> Iterator[CheckResult]:
    """Yield the results of the doctor's steps at one endpoint that need no sign-in, up to the first failure."""
    doctor = Doctor(url, origins=settings.ALLOWED_ORIGINS)
    return results(doctor, doctor.public_steps())


def results(doctor: Doctor, steps: Iterator[tuple[str, Callable[[], str]]]) -> Iterator[CheckResult]:
    """Yield the results of the doctor's steps, up to the first failure; without ``BASE_URL`` nothing is called."""
    if not settings.BASE_URL:
        remedy = _("Set BASE_URL to the address of this site. Without it, the Host header would decide what is called.")
        text = _("It was not called: MCP_DJANGO['BASE_URL'] is not set.")
        yield CheckResult(doctor.url, "error", text, remedy)
        return
    for result in doctor.results(steps):
        yield replace(result, title=f"{result.title} · {doctor.url}")


@dataclass(frozen=True)
class ProjectChecks:
    """Checks of this project that need no server.

    ``person`` is the user whose rows are read, for at most so many ``seconds``; None reads none. ``deployed`` runs the
    system checks for deployment too.
    """

    person: Any = None
    deployed: bool = True
    seconds: float = 60.0

    def results(self) -> Iterator[CheckResult]:
        """Yield the results of all checks."""
        parts = list(self.parts())
        yield from parts
        yield from self.system_checks()
        # Without the tables no row can be read.
        if self.person is not None and all(item.verdict != "error" for item in parts):
            yield from self.models()

    @property
    def has_tables(self) -> bool:
        """Whether all migrations of the tables that calls need are applied."""
        return all(item.verdict == "ok" for item in _tables())

    def parts(self) -> Iterator[CheckResult]:
        """Check migrations, cache, client documents, tasks, exports and channel layer.

        What needs the tables is not checked without them.
        """
        tables = list(_tables())
        yield from tables
        has_tables = all(item.verdict == "ok" for item in tables)
        yield _of_cache()
        if has_tables and uses_oauth() and apps.is_installed("oauth2_provider"):
            yield from _of_documents()
            yield from _of_scopes()
        if has_tables:
            yield from check_rules(known_sites().values())
            yield _of_tasks()
            yield from _of_exports()
        yield _of_channel_layer()

    def models(self) -> Iterator[CheckResult]:
        """Check the project's own code: read a row of each model that the person can see."""
        trial = try_models(self.person, self.seconds)
        for models, cause in trial.lines():
            yield CheckResult(models, "error", cause)
        if trial.read and not trial.failed:
            yield CheckResult("Rows", "ok", f"One row of each of {trial.read} models can be read.")

    def system_checks(self) -> Iterator[CheckResult]:
        """Run this app's Django system checks."""
        every = checks.run_checks(include_deployment_checks=self.deployed)
        own = [message for message in every if str(message.id or "").startswith(OURS)]
        for message in own:
            verdict = "info"
            if message.level >= checks.ERROR:
                verdict = "error"
            elif message.level >= checks.WARNING:
                verdict = "warning"
            yield CheckResult(str(message.id), verdict, str(message.msg), str(message.hint or ""))
        if not own:
            yield CheckResult(_("System checks"), "ok", _("They find nothing."))


def _tables() -> Iterator[CheckResult]:
    """Check migrations: a result for each app whose tables calls need."""
    yield from (_of_tables(label) for label in MissingTables.APPS if apps.is_installed(label))


def _of_tables(label: str) -> CheckResult:
    title = _("Tables of %(app)s") % {"app": label}
    try:
        missing = missing_migrations(label)
    except DatabaseError as error:
        return CheckResult(title, "error", type(error).__name__, _("Look at the server's log."))
    if missing:
        text = _("Not migrated: %(names)s") % {"names": missing}
        return CheckResult(title, "error", text, MissingTables.REMEDY)
    return CheckResult(title, "ok", _("All migrations are applied."))


def _of_cache() -> CheckResult:
    key = f"{OURS}health.{uuid.uuid4().hex}"
    text = _("Cache")
    remedy = _("Without it no call can be confirmed. See CACHES.")
    try:
        cache.set(key, "1", 10)
        is_well = cache.get(key) == "1"
        cache.delete(key)
    except Exception as error:
        return CheckResult(text, "error", type(error).__name__, remedy)
    if not is_well:
        return CheckResult(text, "error", _("It loses what is stored in it."), remedy)
    return CheckResult(text, "ok", _("It answers."))


def _of_tasks() -> CheckResult:
    """Check what runs tasks: whether there is such an engine, and whether it takes and keeps them."""
    title = _("Tasks")
    name = settings.TASK_BACKEND
    try:
        is_inline = engine().runs_inline
    except ImproperlyConfigured as error:
        return CheckResult(title, "error", str(error), _("Correct TASK_BACKEND."))
    if name is None:
        seen = [_("They run in threads of the web server's processes.")]
    elif is_inline:
        seen = [_("%(name)s runs calls inside their requests: none becomes a task.") % {"name": name}]
    else:
        seen = [_("They are handed to %(name)s.") % {"name": name}]
    remedies = []
    counts = count_open(very_late=WAITS_VERY_LONG, lost=LOST)
    if count := counts["very_late"]:
        text = ngettext(
            "%(count)s task has waited for a worker for more than a minute: perhaps none runs.",
            "%(count)s tasks have waited for a worker for more than a minute: perhaps none runs.",
            count,
        )
        seen.append(text % {"count": count})
        if name is None:
            remedies.append(_("After a restart they go on when their clients ask for them."))
        else:
            remedies.append(_("Start the workers, and look at their log."))
    if count := counts["lost"]:
        text = ngettext("%(count)s task has lost its worker.", "%(count)s tasks have lost their worker.", count)
        seen.append(text % {"count": count})
        remedies.append(_("It is ended when its client asks for it, or by manage.py clear_mcp_sessions."))
    return CheckResult(title, "warning" if remedies else "ok", " ".join(seen), " ".join(remedies))


def _of_exports() -> Iterator[CheckResult]:
    """Check the storage of exports, if there is one: whether it gives back what it takes, and whether it is cleaned."""
    title = _("Exports")
    if KeptExport.storage() is None:
        return
    if cause := KeptExport.look():
        text = _("The storage does not give back what it takes: %(cause)s.") % {"cause": cause}
        yield CheckResult(title, "error", text, _('See STORAGES["mcp_exports"].'))
        return
    rows = KeptExport.rows()
    size = rows.aggregate(size=Sum("size"))["size"] or 0
    seen = _("Files kept: %(count)s (%(size)s). The storage gives back what it takes.")
    text = seen % {"count": rows.count(), "size": filesizeformat(size)}
    if late := rows.filter(expires__lt=timezone.now() - KEPT_TOO_LONG).count():
        text = f"{text} {_('Files that should have been deleted: %(count)s.') % {'count': late}}"
        yield CheckResult(title, "warning", text, _("Run manage.py clear_mcp_sessions every day."))
    else:
        yield CheckResult(title, "ok", text)


def _of_channel_layer() -> CheckResult:
    """Check the channel layer: send a message and receive it."""
    title = _("Channel layer")
    if (layer := bus.shared_layer()) is None:
        remedy = _("With several workers, set CHANNEL_LAYERS to a layer that they share, such as channels_redis.")
        return CheckResult(title, "info", _("It is in the memory of each process."), remedy)
    try:
        # Use a new event loop: closing it also closes the layer's connections.
        async_to_sync(_round_trip, force_new_loop=True)(layer[0])
    except Exception as error:
        remedy = _("Subscribers in other workers miss all changes until it answers. See CHANNEL_LAYERS.")
        text = f"{type(error).__name__}: {without_secrets(str(error))}".rstrip(": ")
        return CheckResult(title, "error", text, remedy)
    return CheckResult(title, "ok", _("It is shared between workers."))


async def _round_trip(alias: str) -> None:
    layer = channel_layers.make_backend(alias)
    async with asyncio.timeout(LAYER_TIMEOUT):
        channel = await layer.new_channel()
        while True:
            await layer.send(channel, {"type": "mcp.health"})
            # The pub/sub layer of channels_redis loses messages that are sent before its subscription has begun.
            with suppress(TimeoutError):
                async with asyncio.timeout(LAYER_TIMEOUT / 10):
                    await layer.receive(channel)
                    return


def _of_documents() -> Iterator[CheckResult]:
    """Check whether client documents can be fetched, if the settings accept them."""
    if not takes_documents():
        return
    title = _("Documents of clients")
    cause = client_documents.look()
    if not cause:
        yield CheckResult(title, "ok", _("They can be fetched."))
    elif settings.REGISTRATION == "open":
        text = _("Clients cannot sign in with them and register instead: %(cause)s.") % {"cause": cause}
        yield CheckResult(title, "warning", text, client_documents.REMEDY)
    else:
        text = _("Clients that have one cannot sign in: %(cause)s.") % {"cause": cause}
        yield CheckResult(title, "error", text, client_documents.REMEDY)


def _of_scopes() -> Iterator[CheckResult]:
    """Check scopes: tokens of today may have some that ``OAUTH2_PROVIDER`` no longer has."""
    tokens = get_access_token_model()._default_manager.filter(expires__gt=timezone.now()).order_by("-pk")
    scopes = {scope for text in tokens.values_list("scope", flat=True)[:MAX_TOKENS] for scope in text.split()}
    if lost := sorted(scopes.difference(oauth2_settings.SCOPES)):
        problem = f"Tokens have scopes that OAUTH2_PROVIDER does not have: {', '.join(lost)}."
        remedy = "If they are your own, pass them: provider_settings(base_url=BASE_URL, **OAUTH2_PROVIDER)."
        yield CheckResult("SCOPES", "warning", problem, remedy)
