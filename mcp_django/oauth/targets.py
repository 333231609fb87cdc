"""The address of an application as people see it: the registrable part of the host stands out."""

import ipaddress
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import SplitResult, urlsplit

from ..context.text import plain
from .clients import is_loopback

# Names under which a country's registry gives out names, as in shop.co.uk: the list of all is not worth its upkeep.
SECOND_LEVEL: Final = frozenset(
    {"ac", "co", "com", "edu", "gen", "gob", "gouv", "gov", "go", "gub", "id", "ind", "info", "ltd", "me", "mil", "ne"}
    | {"net", "nom", "nsw", "or", "org", "plc", "res", "sch"}
)


@dataclass(frozen=True, slots=True)
class Target:
    """What is shown of a redirect URI: ``before``, ``domain`` and ``after`` make up its text.

    ``kind`` is "web" for a host, "device" for this computer, "app" for an application's own scheme.
    """

    kind: str
    before: str
    domain: str
    after: str = ""

    def __str__(self) -> str:
        return self.before + self.domain + self.after


def shown_target(uri: str) -> Target:
    """Return where a redirect goes, as far as it tells the user something: the port of loopback is random."""
    parts = urlsplit(uri)
    if parts.scheme not in ("http", "https"):
        return Target("app", "", plain(f"{parts.scheme}://{parts.netloc}"))
    host = _ascii(parts.hostname or "")
    if is_loopback(uri):
        return Target("device", "", host)
    return Target("web", *_apart(host), _port(parts))


def targets_of(client: Any) -> list[Target]:
    """Return where a client can be, each place once."""
    found = (shown_target(uri) for uri in (client.redirect_uris.split() if client is not None else ()))
    return list(dict.fromkeys(found))


def described_by(client: Any) -> Target | None:
    """Return the host whose document describes a client, which is what is known of it for certain; None of others."""
    if client is None or client.registration_source != client.RegistrationSource.CIMD:
        return None
    return shown_target(client.client_id)


def hosts_of(client: Any) -> list[str]:
    """Return the hosts that a client verifiably comes from, none where it runs on the user's own device.

    It is the host of the document that describes it, else those it sends people back to.
    """
    described = described_by(client)
    targets = targets_of(client) if described is None else [described]
    return [target.before + target.domain for target in targets if target.kind == "web"]


def _apart(host: str) -> tuple[str, str]:
    """Return what stands before the part of a host that was registered, and that part; an address is one part."""
    try:
        ipaddress.ip_address(host)
    except ValueError:
        labels = host.split(".")
    else:
        return "", f"[{host}]" if ":" in host else host
    size = 3 if len(labels) > 2 and len(labels[-1]) == 2 and labels[-2] in SECOND_LEVEL else 2
    before = "".join(f"{label}." for label in labels[:-size])
    return before, ".".join(labels[-size:])


def _port(parts: SplitResult) -> str:
    try:
        return "" if parts.port is None else f":{parts.port}"
    except ValueError:
        return ""


def _ascii(host: str) -> str:
    """Return a host without letters that look like others: punycode (RFC 3492) for what is not ASCII."""
    labels = (label if label.isascii() else f"xn--{label.encode('punycode').decode()}" for label in host.split("."))
    return plain(".".join(labels), limit=255)
