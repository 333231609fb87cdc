"""Addresses that a document may be fetched from: those of the public network, whatever a name leads to.

A name leads where its owner says, and the next time elsewhere: to this machine, to its network, to the service that
gives a virtual machine its credentials. So it is the address that is looked at, in each of the forms that it has.
"""

import ipaddress
import re
from functools import cache
from typing import Final

from .clients import HOST

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

# Where IPv6 addresses of the public network are. What stands for an IPv4 address is elsewhere (mapped, NAT64), as are
# link-local, site-local, unique local and multicast addresses; what is not is named below.
GLOBAL_UNICAST: Final = ipaddress.ip_network("2000::/3")
# Beside what Python calls not global, which differs between its versions: IPv4 with the host of Azure's virtual
# machines, then protocol assignments with Teredo, documentation, and 6to4.
NOT_PUBLIC: Final = """
0.0.0.0/8 10.0.0.0/8 100.64.0.0/10 127.0.0.0/8 169.254.0.0/16 172.16.0.0/12 192.0.0.0/24 192.0.2.0/24 192.88.99.0/24
192.168.0.0/16 198.18.0.0/15 198.51.100.0/24 203.0.113.0/24 224.0.0.0/4 240.0.0.0/4 168.63.129.16/32
2001::/23 2001:db8::/32 2002::/16 3fff::/20
"""
# No setting opens these: services of the machine's own host, and what is no machine at all.
NEVER: Final = """
0.0.0.0/8 169.254.0.0/16 100.100.100.200/32 168.63.129.16/32 192.0.0.192/32 224.0.0.0/4 240.0.0.0/4
::/96 fd00:ec2::/32 fd20:ce::/32 fe80::/10 fec0::/10 ff00::/8 64:ff9b::/96 64:ff9b:1::/48 2001::/32 2002::/16
"""
MAX_LABEL: Final = 63
# The last label of what a browser takes for an IPv4 address, in decimal, octal or hexadecimal.
NUMBER: Final = re.compile(r"[0-9]+|0x[0-9a-f]*")
# Domains that the public network does not have (RFC 6761, 6762 and 8375; ICANN's "internal"; what networks use beside).
OWN_DOMAINS: Final = frozenset(
    {"arpa", "corp", "home", "internal", "intranet", "invalid", "lan", "local", "localdomain", "localhost", "onion"}
    | {"private", "test"}
)


def is_domain(host: str) -> bool:
    """Return whether it is the name of a host with its domain, and no address in whatever form."""
    labels = host.split(".")
    return (
        HOST.fullmatch(host) is not None
        and ":" not in host
        and len(labels) > 1
        and all(len(label) <= MAX_LABEL for label in labels)
        and NUMBER.fullmatch(labels[-1]) is None
    )


def is_public_name(host: str) -> bool:
    """Return whether it is a name that can be one of the public network."""
    return is_domain(host) and host.rpartition(".")[2] not in OWN_DOMAINS


def is_public(text: str) -> bool:
    """Return whether it is an address of the public network."""
    address = _read(text)
    if address is None or not address.is_global or _is_within(address, NOT_PUBLIC):
        return False
    return address.version == 4 or address in GLOBAL_UNICAST


def is_private_or_public(text: str) -> bool:
    """Return whether it is an address at which a host that the project names may be: this machine's count too."""
    address = _read(text)
    mapped = getattr(address, "ipv4_mapped", None)
    return address is not None and mapped is None and (address.is_loopback or not _is_within(address, NEVER))


def _is_within(address: Address, networks: str) -> bool:
    return any(address in network for network in _networks(networks))


@cache
def _networks(listed: str) -> tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, ...]:
    return tuple(ipaddress.ip_network(network) for network in listed.split())


def _read(text: str) -> Address | None:
    try:
        return ipaddress.ip_address(text)
    except ValueError:
        return None
