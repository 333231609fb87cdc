"""Display of OAuth clients and tokens to people: names, hosts, doubts, scopes, last use, end of access.

A token itself is never shown.
"""

import ipaddress
import logging
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlsplit

from django.apps import apps
from django.utils.translation import gettext as _
from oauth2_provider.models import refresh_token_expire_timedelta
from oauth2_provider.settings import oauth2_settings

from ..context.call_restrictions import Narrowing
from ..context.untrusted_text import doubts_about, plain
from ..emulation.history import made_by
from ..models import TokenFacts
from ..signin import chosen_words
from .last_use import last_uses
from .resource_urls import is_loopback
from .stored_tokens import until_of

logger = logging.getLogger("mcp_django")

# Labels under which country registries sell domains, as in shop.co.uk. A complete list is not worth its upkeep.
SECOND_LEVEL: Final = frozenset(
    {"ac", "co", "com", "edu", "gen", "gob", "gouv", "gov", "go", "gub", "id", "ind", "info", "ltd", "me", "mil", "ne"}
    | {"net", "nom", "nsw", "or", "org", "plc", "res", "sch"}
)
# Maximum number of a user's LogEntry rows that are searched for the last change by each client.
LOOKED_AT: Final = 300


# Applications


@dataclass(frozen=True, slots=True)
class Target:
    """The display of a redirect URI or a client's host: ``before``, ``domain`` and ``after`` make up its text.

    ``kind`` is "web" for a host, "device" for this computer, "app" for an application's own scheme.
    """

    kind: str
    before: str
    domain: str
    after: str = ""

    def __str__(self) -> str:
        return self.before + self.domain + self.after


def shown_target(uri: str) -> Target:
    """Return what to show of a redirect URI; the random port of a loopback URI is left out."""
    parts = urlsplit(uri)
    if parts.scheme not in ("http", "https"):
        return Target("app", "", plain(f"{parts.scheme}://{parts.netloc}"))
    # Show non-ASCII labels in punycode (RFC 3492), so that no letter passes for another.
    labels = []
    for label in (parts.hostname or "").split("."):
        labels.append(label if label.isascii() else f"xn--{label.encode('punycode').decode()}")
    host = plain(".".join(labels), limit=255)
    if is_loopback(uri):
        return Target("device", "", host)
    port = ""
    with suppress(ValueError):
        port = "" if parts.port is None else f":{parts.port}"
    return Target("web", *_apart(host), port)


def targets_of(client: Any) -> list[Target]:
    """Return what to show of a client's redirect URIs, each host once."""
    if client is None:
        return []
    return list(dict.fromkeys(map(shown_target, client.redirect_uris.split())))


def described_by(client: Any) -> Target | None:
    """Return the host of a client that describes itself at a URL, None for other clients."""
    if client is None or client.registration_source != client.RegistrationSource.CIMD:
        return None
    return shown_target(client.client_id)


def hosts_of(client: Any) -> list[str]:
    """Return the verified hosts of a client; none for a client on the user's device.

    It is the host of the document that describes the client, or else the hosts of its redirect URIs.
    """
    described = described_by(client)
    targets = targets_of(client) if described is None else [described]
    return [target.before + target.domain for target in targets if target.kind == "web"]


def _apart(host: str) -> tuple[str, str]:
    """Return subdomains and registered domain of a host."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        labels = host.split(".")
    else:
        return "", f"[{host}]" if ":" in host else host
    size = 3 if len(labels) > 2 and len(labels[-1]) == 2 and labels[-2] in SECOND_LEVEL else 2
    return "".join(f"{label}." for label in labels[:-size]), ".".join(labels[-size:])


def client_name(client: Any) -> str:
    """Return the name of a client, or else its id, as text of one line."""
    if client is None:
        return ""
    return plain(client.name) or plain(client.client_id)


def name_doubts(client: Any) -> list[str]:
    """Return the warnings to show beside a client's name, such as an imitation of another application."""
    if client is None or client.registration_source == client.RegistrationSource.MANUAL:
        return []
    return doubts_about(client.name, hosts_of(client))


def scope_words(scopes: Iterable[str]) -> list[str]:
    """Return the descriptions of scopes, in the active language."""
    return [_(oauth2_settings.SCOPES.get(scope) or scope) for scope in scopes]


# Tokens


def describe(tokens: Collection[Any]) -> None:
    """Set on tokens what pages show of them, by one request to the cache and one query in all.

    ``client_name``, ``doubts`` about that name, ``described`` and ``targets`` describe the client; ``words`` are the
    texts of the scopes. ``used`` and ``place`` are time and network of the last use, if known. ``until`` is when access
    ends, None for never. ``labels`` are the apps and models that the token is limited to, None for all. ``chosen`` is
    what else the user chose, and ``facts`` are those stored with the token. ``since`` is when its user gave the access.
    """
    uses = last_uses(token.token_checksum for token in tokens)
    kept = TokenFacts._default_manager.in_bulk([token.token_checksum for token in tokens])
    lifetime = refresh_token_expire_timedelta()
    for token in tokens:
        # The client
        client = token.application
        token.client_name = client_name(client)
        token.doubts = name_doubts(client)
        token.described = described_by(client)
        token.targets = targets_of(client)
        token.words = scope_words(token.scope.split())

        # The last use
        use = uses.get(token.token_checksum)
        if use is not None:
            token.used = use.moment
            token.place = use.place
        else:
            # A token that came from refreshing an older one counts as used at that time.
            token.used = token.created if token.source_refresh_token_id is not None else None
            token.place = ""

        # What the user chose
        row = kept.get(token.token_checksum)
        facts = row.facts if row is not None else {}
        token.facts = facts
        token.since = row.created if row is not None else token.created
        narrowing = Narrowing.of(facts)
        token.chosen = [(label, plain(words)) for label, words in chosen_words(facts)]
        token.labels = None
        if narrowing is not None and narrowing.labels is not None:
            token.labels = sorted(narrowing.labels)

        # The end of access: of the token, or of its refresh token, but no later than the user chose
        token.until = token.expires
        refresh = getattr(token, "refresh_token", None)
        if refresh is not None and refresh.revoked is None:
            token.until = None if lifetime is None else token.expires + lifetime
        chosen_end = until_of(facts)
        if chosen_end is not None:
            token.until = chosen_end if token.until is None else min(token.until, chosen_end)


def add_last_changes(tokens: Collection[Any], user: Any) -> None:
    """Set ``last_change`` on tokens: the user's last ``LogEntry`` by the client of each token.

    The admin shows users their own entries in the same way, under recent actions.
    """
    entries: dict[str, Any] = {}
    if tokens and apps.is_installed("django.contrib.admin"):
        from django.contrib.admin.models import LogEntry

        client_ids = {token.application.client_id for token in tokens if token.application is not None}
        for entry in LogEntry.objects.filter(user=user).order_by("-action_time", "-pk")[:LOOKED_AT]:
            for client_id in client_ids.difference(entries):
                if made_by(entry.change_message, client_id):
                    entries[client_id] = entry
    for token in tokens:
        token.last_change = entries.get(token.application.client_id) if token.application is not None else None
        if token.last_change is not None:
            token.last_change.object_repr = plain(token.last_change.object_repr)
