"""Which hosts applications may come from that describe themselves by a document: by settings and by the admin.

A host is a name in lower case, without a port. ``.example.com`` stands for a domain and all below it.
"""

from typing import Any, Final
from urllib.parse import urlsplit

from django.utils import timezone
from oauth2_provider.models import get_application_model
from oauth2_provider.settings import oauth2_settings

from ..conf import settings
from ..models import ClientHost

# Of the hosts that wait, more are not noted: whoever may sign in can make them up.
MAX_WAITING: Final = 200
ALLOWED: Final = ClientHost.Decision.ALLOWED
BLOCKED: Final = ClientHost.Decision.BLOCKED
WAITING: Final = ClientHost.Decision.WAITING
# Hosts of the documents of clients that many use.
WELL_KNOWN: Final = ("claude.ai", "chatgpt.com", "vscode.dev")


def takes_documents() -> bool:
    """Return whether any client may describe itself by a document."""
    return bool(_policy() != "off" and _policy())


def _policy() -> Any:
    """Return whose documents are taken: where not every client may register, that has to be said."""
    if settings.CLIENT_DOCUMENTS is None:
        return "all" if settings.REGISTRATION == "open" else "off"
    return settings.CLIENT_DOCUMENTS


def named_hosts() -> list[str]:
    """Return hosts whose documents are taken: those that the settings name, or else one that many clients use."""
    policy = _policy()
    if isinstance(policy, str):
        return [host for host in WELL_KNOWN if decision_on(host) != BLOCKED][:1]
    own = {host.partition(":")[0]: host for host in settings.PRIVATE_CLIENT_HOSTS}
    return [own.get(host, host) for host in (name.removeprefix(".") for name in policy)]


def decision_on(host: str) -> ClientHost.Decision:
    """Return whether applications of a host are let in, are not, or wait for an administrator."""
    names = _names_of(host)
    decided = set(ClientHost._default_manager.filter(host__in=names).values_list("decision", flat=True))
    if BLOCKED in decided or not names.isdisjoint(settings.BLOCKED_CLIENT_HOSTS) or not takes_documents():
        return BLOCKED
    policy = _policy()
    if policy == "ask":
        return ALLOWED if ALLOWED in decided else WAITING
    is_named = policy == "all" or not names.isdisjoint(policy)
    return ALLOWED if is_named else BLOCKED


def _names_of(host: str) -> set[str]:
    """Return the names under which something can be decided about a host."""
    labels = host.split(".")
    return {host, *("." + ".".join(labels[start:]) for start in range(len(labels)))}


def ask_for(host: str, url: str, user: Any) -> None:
    """Note for administrators that a user wants to connect the application at ``url``."""
    waiting = ClientHost._default_manager.filter(decision=WAITING)
    if waiting.filter(host=host).exists() or waiting.count() >= MAX_WAITING:
        return
    asked = {"url": url, "user": user, "created": timezone.now()}
    ClientHost._default_manager.get_or_create(host=host, defaults=asked)


def is_admitted(client: Any) -> bool:
    """Return whether a client that is stored may go on: one that a document describes, while its host is let in.

    A project that leaves documents to the toolkit, with a fetcher of its own, has its own rules.
    """
    if client.registration_source != client.RegistrationSource.CIMD:
        return True
    if oauth2_settings.CIMD_ENABLED and not takes_documents():
        return True
    return decision_on(urlsplit(client.client_id).hostname or "") == ALLOWED


def forget_clients_of(host: str) -> int:
    """Delete the applications of a host that documents describe, and with them all access that they have.

    Returns how many there were.
    """
    model = get_application_model()
    stored = model._default_manager.filter(registration_source=model.RegistrationSource.CIMD)
    found = [
        pk
        for pk, client_id in stored.values_list("pk", "client_id")
        if host in _names_of(urlsplit(client_id).hostname or "")
    ]
    stored.filter(pk__in=found).delete()
    return len(found)
