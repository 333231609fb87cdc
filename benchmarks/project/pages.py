"""Where the pages of the event resource begin."""

from typing import Final

SIZE: Final = 20


def uri_at(row: int) -> str:
    """Return the URI of the page that begins after event ``row``."""
    return f"django://bench/event?cursor={row}"
