"""Fetch a small JSON document from a URL that a stranger chose, such as a client's metadata or keys (SSRF guard).

The owner of a name decides where it leads: to this machine, to its network, to the service that gives a virtual machine
its credentials. So the fetcher resolves the name once, checks every address in each form that it can have, and connects
to one of the checked addresses; a second lookup could give another answer. TLS is verified for the name. Redirects are
not followed, proxies in the environment are ignored, and one deadline and one size limit everything from the lookup to
the last byte. A proxy that the project configures resolves names itself, so it is only given public names.
"""

import base64
import io
import ipaddress
import re
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from http.client import HTTPException, HTTPMessage, HTTPResponse
from typing import Any, Final
from urllib.parse import SplitResult, unquote, urlsplit

from django.utils.http import parse_http_date_safe

from ..conf import settings
from ..protocol.errors import ProtocolError
from ..protocol.messages import decode

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Public IPv6 addresses are in this network. Most addresses that stand for IPv4 (mapped, NAT64) are outside it, as are
# link-local, site-local, unique local and multicast addresses. NOT_PUBLIC lists the exceptions within it.
GLOBAL_UNICAST: Final = ipaddress.ip_network("2000::/3")
# Refused besides addresses that Python does not call global, which differ between its versions: IPv4, with the host of
# Azure's virtual machines; then IPv6: protocol assignments with Teredo, documentation, and 6to4.
NOT_PUBLIC: Final = """
0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24 192.88.99.0/24
192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4 168.63.129.16/32
2001::/23 2001:db8::/32 2002::/16 3fff::/20
"""
# No setting admits these: services of the machine's own host, and addresses that do not belong to one machine.
NEVER: Final = """
0.0.0.0/8 169.254.0.0/16 100.100.100.200/32 168.63.129.16/32 192.0.0.192/32 224.0.0.0/4 240.0.0.0/4
::/96 fd00:ec2::/32 fd20:ce::/32 fe80::/10 fec0::/10 ff00::/8 64:ff9b::/96 64:ff9b:1::/48 2001::/32 2002::/16
"""
HOST: Final = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*|[0-9a-f:.]*:[0-9a-f:.]*")
MAX_LABEL: Final = 63
# If the last label is a number (decimal, octal, hexadecimal), browsers read the host as an IPv4 address.
NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
# Top-level domains of private networks and special uses (RFC 6761, 6762, 8375; ICANN's "internal"; others in use).
OWN_DOMAINS: Final = frozenset(
    {"arpa", "corp", "home", "internal", "intranet", "invalid", "lan", "local", "localdomain", "localhost", "onion"}
    | {"private", "test"}
)


def is_domain(host: str) -> bool:
    """Return whether a host is a domain name, not an IP address in any form."""
    labels = host.split(".")
    return (
        HOST.fullmatch(host) is not None
        and ":" not in host
        and len(labels) > 1
        and all(len(label) <= MAX_LABEL for label in labels)
        and NUMBER.fullmatch(labels[-1]) is None
    )


def is_public_name(host: str) -> bool:
    """Return whether a host can be a name of the public network."""
    return is_domain(host) and host.rpartition(".")[2] not in OWN_DOMAINS


def is_public(text: str) -> bool:
    """Return whether an IP address is on the public network."""
    address = _address(text)
    if address is None or not address.is_global or _is_within(address, NOT_PUBLIC):
        return False
    return address.version == 4 or address in GLOBAL_UNICAST


def is_private_or_public(text: str) -> bool:
    """Return whether an IP address may be that of a host that the project names itself: public, private or loopback."""
    address = _address(text)
    mapped = getattr(address, "ipv4_mapped", None)
    return address is not None and mapped is None and (address.is_loopback or not _is_within(address, NEVER))


def _is_within(address: Address, networks: str) -> bool:
    return any(address in network for network in _networks(networks))


@cache
def _networks(listed: str) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    return tuple(ipaddress.ip_network(network) for network in listed.split())


def _address(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None


MAX_BYTES: Final = 64 * 1024
MAX_HEAD: Final = 16 * 1024
MAX_SECONDS: Final = 5.0
# Maximum number of addresses tried for one name.
MAX_TRIED: Final = 4
# Seconds for which a document is kept: by default, at least, and at most.
AGE: Final = 3600
MIN_AGE: Final = 60
MAX_AGE: Final = 24 * 3600
JSON: Final = re.compile(r"application/(?:json|[a-z0-9.+_-]+\+json)", re.IGNORECASE)
DIRECTIVE: Final = re.compile(r"(?:^|,)\s*(s-maxage|max-age|no-store|no-cache)(?:\s*=\s*\"?(\d{1,9}))?", re.IGNORECASE)


class FetchFailed(Exception):
    """Raised when fetching fails; ``is_passing``: trying again later may help.

    ``is_away``: no connection to the document's server, so the cause may be this server's own network.
    """

    def __init__(self, seen: str, *, is_passing: bool, is_away: bool = False) -> None:
        super().__init__(seen)
        self.seen = seen
        self.is_passing = is_passing
        self.is_away = is_away


@dataclass(frozen=True, slots=True)
class Fetched:
    """A fetched and decoded JSON document, and the seconds for which it may be cached."""

    data: Any
    age: int


@dataclass(unsafe_hash=True)
class Fetcher:
    """Fetches JSON documents over TLS from addresses that ``admits`` accepts, within a deadline and a size.

    ``authorities`` is a PEM file of certificate authorities to trust besides those of the system. ``proxy`` is the URL
    of an HTTP proxy that makes the connections.
    """

    admits: Callable[[str], bool] = is_public
    authorities: str | None = None
    proxy: str | None = None

    def fetch(self, url: str) -> Fetched:
        """Return the document at an https URL; raise ``FetchFailed`` if there is none."""
        deadline = time.monotonic() + MAX_SECONDS
        parts = urlsplit(url)
        with self._connection(parts, deadline, MAX_SECONDS) as connection:
            try:
                connection.settimeout(_left(deadline))
                connection.sendall(_request(parts))
                with HTTPResponse(_Bounded(connection, deadline), method="GET") as response:  # type: ignore[arg-type]
                    return _read(response)
            except TimeoutError:
                raise FetchFailed(f"it took longer than {MAX_SECONDS:g} seconds", is_passing=True) from None
            except (OSError, HTTPException, ValueError) as error:
                raise FetchFailed(f"it could not be read ({type(error).__name__})", is_passing=True) from None

    def reach(self, url: str, seconds: float) -> None:
        """Connect to the server of a URL without a request; raise ``FetchFailed`` if it cannot be reached."""
        with self._connection(urlsplit(url), time.monotonic() + seconds, seconds):
            pass

    @contextmanager
    def _connection(self, parts: SplitResult, deadline: float, seconds: float) -> Iterator[ssl.SSLSocket]:
        """Open a TLS connection to the server of a URL, as a context manager."""
        away = {"is_passing": True, "is_away": True}
        try:
            plain = self._connected(parts, deadline)
            with plain:
                secured = self._secured(plain, parts, deadline)
        except ssl.SSLCertVerificationError as error:
            raise FetchFailed(f"its certificate is not valid: {error.verify_message}", **away) from None
        except TimeoutError:
            raise FetchFailed(f"it took longer than {seconds:g} seconds", **away) from None
        except (OSError, HTTPException, ValueError) as error:
            raise FetchFailed(f"it could not be read ({type(error).__name__})", **away) from None
        with secured:
            yield secured

    def resolve(self, host: str, port: int) -> list[str]:
        """Return the addresses of a host."""
        entries = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        return list(dict.fromkeys(str(address[0]) for *_, address in entries))

    def connect(self, address: str, port: int, seconds: float) -> socket.socket:
        """Open a TCP connection to an IP address, which was checked."""
        return socket.create_connection((address, port), seconds)

    def _connected(self, parts: SplitResult, deadline: float) -> socket.socket:
        host = parts.hostname or ""
        port = parts.port or 443
        if self.proxy is not None:
            if not is_public_name(host):
                raise FetchFailed("its host is not on the public network", is_passing=False)
            return self._through_proxy(urlsplit(self.proxy), f"{host}:{port}", deadline)
        addresses = self._resolved(host, port, deadline)
        if not all(map(self.admits, addresses)):
            # Do not say which address: strangers would learn how names resolve within this network.
            raise FetchFailed("its host is not on the public network", is_passing=False)
        tried = addresses[:MAX_TRIED]
        for number, address in enumerate(tried):
            # Leave time for the remaining addresses: this one may never answer.
            seconds = _left(deadline) / (len(tried) - number)
            try:
                return self.connect(address, port, seconds)
            except OSError:
                continue
        raise FetchFailed("its host does not answer", is_passing=True, is_away=True)

    def _through_proxy(self, proxy: SplitResult, target: str, deadline: float) -> socket.socket:
        """Open a connection to ``target`` through the HTTP proxy, by CONNECT (RFC 9110, section 9.3.6)."""
        lines = [f"CONNECT {target} HTTP/1.1", f"Host: {target}"]
        if proxy.username is not None:
            credentials = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}".encode()
            lines.append(f"Proxy-Authorization: Basic {base64.b64encode(credentials).decode()}")
        try:
            plain = self.connect(proxy.hostname or "", proxy.port or 80, _left(deadline))
        except TimeoutError:
            raise
        except OSError as error:
            text = f"the proxy does not answer ({type(error).__name__})"
            raise FetchFailed(text, is_passing=True, is_away=True) from None
        try:
            plain.settimeout(_left(deadline))
            plain.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("ascii"))
            # Closing this response does not close the connection.
            with HTTPResponse(_Bounded(plain, deadline), method="CONNECT") as response:  # type: ignore[arg-type]
                response.begin()
                if not 200 <= response.status < 300:
                    raise FetchFailed(f"the proxy answers {response.status}", is_passing=True, is_away=True)
        except BaseException:
            plain.close()
            raise
        return plain

    def _resolved(self, host: str, port: int, deadline: float) -> list[str]:
        """Return the addresses of a host; a thread resolves it, because the system's resolver has no deadline."""
        results: list[list[str]] = []

        def look() -> None:
            try:
                results.append(self.resolve(host, port))
            except (OSError, UnicodeError):
                results.append([])

        thread = threading.Thread(target=look, name="mcp-resolve", daemon=True)
        thread.start()
        thread.join(_left(deadline))
        if not results:
            raise TimeoutError
        if not results[0]:
            raise FetchFailed("its host has no address", is_passing=True, is_away=True)
        return results[0]

    def _secured(self, plain: socket.socket, parts: SplitResult, deadline: float) -> ssl.SSLSocket:
        context = ssl.create_default_context()
        if self.authorities is not None:
            context.load_verify_locations(self.authorities)
        plain.settimeout(_left(deadline))
        # The socket's timeout limits the whole handshake, however slowly its bytes arrive.
        return context.wrap_socket(plain, server_hostname=parts.hostname)


def fetcher_for(url: str, *, is_operators: bool = False) -> Fetcher:
    """Return the fetcher for a URL: of the public network, or of a host that the project names.

    ``is_operators``: the URL comes from the project's settings, so it may lead into the project's network.
    """
    is_own = url.split("/")[2] in settings.CLIENT_DOCUMENTS["private"]
    admits = is_private_or_public if is_own or is_operators else is_public
    authorities = settings.CLIENT_DOCUMENTS["ca"]
    proxy = None if is_own else settings.CLIENT_DOCUMENTS["proxy"]
    return Fetcher(admits, authorities and str(authorities), proxy)


def _left(deadline: float) -> float:
    left = deadline - time.monotonic()
    if left <= 0:
        raise TimeoutError
    return left


def _request(parts: SplitResult) -> bytes:
    path = parts.path + (f"?{parts.query}" if parts.query else "")
    lines = (
        f"GET {path} HTTP/1.1",
        f"Host: {parts.netloc}",
        "Accept: application/json, application/*+json",
        "Accept-Encoding: identity",
        "User-Agent: django-mcp-orm",
        "Connection: close",
    )
    return ("\r\n".join(lines) + "\r\n\r\n").encode("ascii")


class _Bounded(io.RawIOBase):
    """A reader of a connection that is bounded by the deadline and a number of bytes.

    Each read gets only the time that is left: a fixed timeout would start again with each byte that trickles in.
    """

    def __init__(self, connection: socket.socket, deadline: float) -> None:
        self._connection = connection
        self._deadline = deadline
        self._room = MAX_HEAD + MAX_BYTES + 1

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._connection.settimeout(_left(self._deadline))
        size = self._connection.recv_into(buffer)
        self._room -= size
        if self._room < 0:
            raise FetchFailed(f"it is larger than {MAX_BYTES // 1024} KiB", is_passing=False)
        return size

    def makefile(self, *args: Any, **kwargs: Any) -> io.BufferedReader:
        """Return the file object that ``http.client`` requests from a socket."""
        return io.BufferedReader(self, 4096)


def _read(response: HTTPResponse) -> Fetched:
    response.begin()
    if response.status != 200:
        is_passing = response.status >= 500 or response.status in (408, 425, 429)
        elsewhere = ", which is not followed" if 300 <= response.status < 400 else ""
        raise FetchFailed(f"its server answers {response.status}{elsewhere}", is_passing=is_passing)
    kind = response.headers.get_content_type() if "Content-Type" in response.headers else "none"
    if JSON.fullmatch(kind) is None:
        raise FetchFailed(f"it is not JSON: its type is {kind[:100]}", is_passing=False)
    encoding = response.headers.get("Content-Encoding", "identity").strip().lower()
    charset = str(response.headers.get_content_charset("utf-8"))
    if encoding != "identity" or charset not in ("utf-8", "us-ascii"):
        raise FetchFailed("it is compressed, or not in UTF-8", is_passing=False)
    body = response.read(MAX_BYTES + 1) if (response.length or 0) <= MAX_BYTES else b""
    if len(body) > MAX_BYTES or (response.length or 0) > MAX_BYTES:
        raise FetchFailed(f"it is larger than {MAX_BYTES // 1024} KiB", is_passing=False)
    if response.length:
        raise FetchFailed("it ends too early", is_passing=True)
    try:
        return Fetched(decode(body), age_of(response.headers))
    except ProtocolError:
        raise FetchFailed("it is not JSON in UTF-8", is_passing=False) from None


def age_of(headers: HTTPMessage) -> int:
    """Return for how many seconds a response may be cached (RFC 9111, section 4.2), within bounds."""
    said = {name.lower(): value for name, value in DIRECTIVE.findall(headers.get("Cache-Control", ""))}
    age = AGE
    if "no-store" in said or "no-cache" in said:
        age = 0
    elif lasts := said.get("s-maxage") or said.get("max-age"):
        passed = headers.get("Age", "").strip()
        age = int(lasts) - (int(passed) if passed.isdecimal() and len(passed) < 10 else 0)
    elif "Expires" in headers:
        ends = parse_http_date_safe(headers["Expires"])
        begins = parse_http_date_safe(headers.get("Date", ""))
        if begins is None:
            begins = int(time.time())
        age = 0 if ends is None else ends - begins
    return max(MIN_AGE, min(age, MAX_AGE))
