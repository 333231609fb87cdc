import ipaddress

import pytest

from mcp_django.oauth.document_fetcher import is_private_or_public, is_public

LINK_LOCAL = "169.254.169.254"
# Neither of the public network nor of a network that a project names.
NEVER = [
    LINK_LOCAL,
    "169.254.170.2",
    "100.100.100.200",
    "168.63.129.16",
    "0.0.0.0",
    "0.1.2.3",
    "224.0.0.1",
    "255.255.255.255",
    "240.0.0.1",
    "::",
    "fe80::1",
    "fe80::1%eth0",
    "fec0::1",
    "ff02::1",
    "fd00:ec2::254",
    "fd20:ce::254",
    "64:ff9b::a9fe:a9fe",
    "64:ff9b::7f00:1",
    "64:ff9b:1::7f00:1",
    "2002:7f00:1::1",
    "2002:a9fe:a9fe::",
    "2001:0:4136:e378:8000:63bf:3fff:fdd2",
    "::ffff:127.0.0.1",
    "::ffff:169.254.169.254",
    "::ffff:10.0.0.1",
    "::ffff:93.184.215.14",
    "::127.0.0.1",
    "::a9fe:a9fe",
    "",
    "localhost",
    "2130706433",
    "0x7f000001",
    "0177.0.0.1",
    "127.1",
    "1.1.1.1 ",
]
PRIVATE = ["127.0.0.1", "127.8.8.8", "::1", "10.1.2.3", "172.31.0.1", "192.168.0.1", "100.64.0.1", "fc00::1", "fd12::3"]
# Not public, and nobody's own either: documentation, benchmarks, protocol assignments, 6to4 relays.
NEITHER = ["192.0.2.1", "198.51.100.1", "203.0.113.9", "198.18.0.1", "192.0.0.8", "192.88.99.1", "2001:db8::1"]
NEITHER += ["3fff::1", "2001:2::1", "2001:10::1", "100::1", "4000::1", "5f00::1"]
PUBLIC = ["1.1.1.1", "93.184.215.14", "172.32.0.1", "100.128.0.1", "2606:4700::6810:84e5", "2a00:1450:4001::8a"]


@pytest.mark.parametrize("address", [*NEVER, *PRIVATE, *NEITHER])
def test_what_is_not_on_the_public_network_is_refused(address: str) -> None:
    assert not is_public(address)


@pytest.mark.parametrize("address", PUBLIC)
def test_what_is_on_the_public_network_is_taken(address: str) -> None:
    assert is_public(address)
    assert is_private_or_public(address)


@pytest.mark.parametrize("address", NEVER)
def test_no_setting_opens_what_belongs_to_the_machine_s_host(address: str) -> None:
    assert not is_private_or_public(address)


@pytest.mark.parametrize("address", PRIVATE)
def test_a_host_that_the_project_names_may_be_private(address: str) -> None:
    assert is_private_or_public(address)


@pytest.mark.parametrize("private", ["127.0.0.1", LINK_LOCAL, "10.0.0.1", "192.168.1.1", "100.64.0.1"])
def test_no_form_of_ipv6_carries_a_private_address(private: str) -> None:
    number = int(ipaddress.IPv4Address(private))
    prefixes = {
        "mapped": 0xFFFF << 32,
        "compatible": 0,
        "translated": 0xFFFF << 48,
        "NAT64": 0x64FF9B << 96,
        "6to4": 0x2002 << 112,
    }
    for name, prefix in prefixes.items():
        carried = ipaddress.IPv6Address(prefix | (number << 80 if name == "6to4" else number))
        assert not is_public(str(carried)), (name, carried)
