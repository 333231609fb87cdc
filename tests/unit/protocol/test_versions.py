"""The revisions that this server speaks, and which one it offers."""

from typing import Any

import pytest
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from mcp_django.protocol.versions import Revisions
from tests.protocol_messages import LEGACY as OLD
from tests.protocol_messages import MODERN as NEW

pytestmark = pytest.mark.one_django


def test_five_revisions_are_supported_newest_first() -> None:
    assert list(Revisions.SUPPORTED) == [NEW, *reversed(OLD)]
    assert (Revisions.LEGACY, Revisions.MODERN) == (OLD, (NEW,))
    assert Revisions.LATEST_LEGACY == "2025-11-25"
    assert Revisions.ASSUMED == "2025-03-26"


def test_every_revision_can_be_validated() -> None:
    assert set(Revisions.LEGACY) <= set(HANDSHAKE_PROTOCOL_VERSIONS)
    assert set(Revisions.MODERN) <= set(MODERN_PROTOCOL_VERSIONS)


@pytest.mark.parametrize("version", OLD)
def test_initialize_gets_the_legacy_revision_it_asks_for(version: str) -> None:
    assert Revisions.negotiate(version) == version


@pytest.mark.parametrize(
    "requested", [NEW, "2024-10-07", "2099-01-01", "", "2025-11-25 ", "DRAFT", None, 1, 2025.06, True, [OLD[0]], {}]
)
def test_59_initialize_gets_a_counter_offer_for_any_other_version(requested: Any) -> None:
    assert Revisions.negotiate(requested) == "2025-11-25"


@pytest.mark.parametrize(
    ("version", "minimum", "expected"),
    [
        ("2024-11-05", "2024-11-05", True),
        ("2024-11-05", "2025-03-26", False),
        ("2025-06-18", "2025-03-26", True),
        ("2025-11-25", "2026-07-28", False),
        ("2026-07-28", "2024-11-05", True),
    ],
)
def test_revisions_are_compared_by_age(version: str, minimum: str, expected: bool) -> None:
    assert Revisions.is_at_least(version, minimum) is expected


def test_an_unknown_revision_is_not_compared() -> None:
    with pytest.raises(ValueError, match="not in"):
        Revisions.is_at_least("2099-01-01", "2025-06-18")
