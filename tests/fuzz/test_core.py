"""Whatever a client sends, the core of the protocol reads it or refuses it with an error of the protocol."""

from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mcp_django.protocol.eras import Batch, Call, Rejected, classify
from mcp_django.protocol.messages import ClientResponse, decode, encode
from tests.fuzz import budget
from tests.fuzz.mutations import bodies, headers
from tests.fuzz.shapes import as_text, messages, methods
from tests.protocol_messages import LEGACY, MODERN, answer

pytestmark = pytest.mark.one_django

VERSIONS = {"legacy": st.sampled_from(LEGACY), "modern": st.just(MODERN)}


def session_of(version: str | None) -> Any:
    """A session of the handshake era that agreed on a revision, if any."""
    if version is None:
        return None
    return SimpleNamespace(version=version, client={"name": "fuzz", "version": "1"}, capabilities={}, log_level=None)


def check(body: bytes, given_headers: dict[str, list[str]] | None, session: Any) -> Any:
    """Read a message; what is not a result or an error of the protocol fails the test."""
    try:
        found = classify(body, given_headers, session=session)
    except Rejected as rejected:
        answer(rejected)
        return rejected
    for item in found.items if isinstance(found, Batch) else [found]:
        assert isinstance(item, (Call, ClientResponse, Rejected))
        if isinstance(item, Rejected):
            answer(item)
        elif isinstance(item, Call) and item.id is not None:
            assert item.method in methods(item.version)
            encode({"id": item.id, "progressToken": item.progress_token, "trace": item.trace})
    return found


@pytest.mark.parametrize("era", VERSIONS)
def test_every_message_is_read_or_refused(era: str) -> None:
    @budget()
    @given(st.data())
    def run(data: Any) -> None:
        version = data.draw(VERSIONS[era])
        message, body = data.draw(bodies(version))
        by_name: dict[str, list[str]] = {}
        for name, value in data.draw(headers(message, version)):
            by_name.setdefault(name, []).append(value)
        session = session_of(data.draw(st.sampled_from([None, *LEGACY])))
        check(body, by_name, session)
        check(body, None, session)

    run()


@pytest.mark.parametrize("version", [*LEGACY, MODERN])
def test_what_the_fuzzing_starts_from_is_right(version: str) -> None:
    """Most messages that nothing was done to are read: or else the rest would be refused for nothing."""
    read: list[bool] = []

    @budget(part=5)
    @given(messages(version))
    def run(message: dict[str, Any]) -> None:
        assert decode(as_text(message)) == message
        read.append(not isinstance(check(as_text(message), None, session_of(version)), Rejected))

    run()
    assert sum(read) > 0.6 * len(read)
