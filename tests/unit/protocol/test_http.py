"""Rules of HTTP that need no I/O."""

import pytest

from mcp_django.protocol.messages import Response, accepts, allowed_methods, body_length, is_json, origin_allowed
from tests.protocol_messages import LEGACY, MODERN

pytestmark = pytest.mark.one_django

JSON, EVENTS = "application/json", "text/event-stream"


@pytest.mark.parametrize(
    "value",
    [
        "application/json",
        "application/json; charset=utf-8",
        "application/json;charset=UTF-8",
        "Application/JSON",
        " application/json\t;x=y",
    ],
)
def test_json_is_told_by_its_type(value: str) -> None:
    assert is_json(value)


@pytest.mark.parametrize(
    "value",
    [
        None,
        "",
        "text/plain",
        "application/jsonx",
        "application/json-patch+json",
        "application/vnd.api+json",
        "text/html; a=application/json",
        "application/json, text/plain",
        "text/plain, application/json",
        "application/json application/json",
        "application/json,application/json",
        "*/*",
        "\xa0application/json",
        "application/json\x0b",
        "application/ json",
    ],
)
def test_7_another_content_type_is_refused(value: str | None) -> None:
    assert not is_json(value)


@pytest.mark.parametrize(
    ("accept", "json", "events"),
    [
        (None, True, True),
        ("application/json, text/event-stream", True, True),
        ("text/event-stream, application/json", True, True),
        ("APPLICATION/JSON , Text/Event-Stream", True, True),
        ("*/*", True, True),
        ("application/*, text/*", True, True),
        ("application/json", True, False),
        ("text/event-stream", False, True),
        ("text/*", False, True),
        ("application/json;q=0, */*", False, True),
        ("*/*, text/event-stream; q=0.000", True, False),
        ("*/*;q=0, application/json;q=0.5", True, False),
        ("application/*;q=0, application/json", True, False),
        ("*/*;q=0", False, False),
        ("application/json;q=0.001", True, False),
        ("application/json;profile=x", True, False),
        ("", False, False),
        ("text/html", False, False),
        ("application/jsonx, text/event-streams", False, False),
        (",;,;q=0,,", False, False),
    ],
)
def test_8_accept_admits_what_its_most_specific_range_admits(accept: str | None, json: bool, events: bool) -> None:
    assert accepts(accept, JSON) is json
    assert accepts(accept, EVENTS) is events


@pytest.mark.parametrize(
    ("accept", "expected"),
    [
        (", ".join(["a/b"] * 200 + [JSON]), True),
        ("a/b," * 1000 + JSON, False),
        (JSON + ";" * 100_000, False),
        (JSON + ';x="' + ";" * 1900 + '"', True),
    ],
)
def test_8_a_long_accept_is_bounded(accept: str, expected: bool) -> None:
    assert accepts(accept, JSON) is expected


@pytest.mark.parametrize(("value", "expected"), [(None, None), ("0", 0), ("2621440", 2_621_440), ("007", 7)])
def test_the_length_of_a_body_is_a_decimal_number(value: str | None, expected: int | None) -> None:
    assert body_length(value) == expected


@pytest.mark.parametrize(
    "value", ["", "+5", "-1", " 5", "5 ", "5\n", "5, 5", "1_000", "0x10", "1e3", "5.0", "\u0665", "9" * 16]
)
def test_23_any_other_length_is_refused(value: str) -> None:
    with pytest.raises(ValueError, match="Content-Length"):
        body_length(value)


@pytest.mark.parametrize(
    ("origin", "allowed"),
    [
        (None, True),
        ("https://good.example", True),
        ("https://evil.example", False),
        ("null", False),
        ("", False),
        ("https://good.example.evil.io", False),
        ("http://good.example", False),
        ("https://good.example:8443", False),
        ("https://good.example/", False),
        ("good.example", False),
    ],
)
def test_3_only_an_allowed_origin_is_served(origin: str | None, allowed: bool) -> None:
    assert origin_allowed(origin, ["https://good.example"]) is allowed
    assert origin_allowed(origin, []) is (origin is None)


@pytest.mark.parametrize("version", [None, *LEGACY, "1.0"])
def test_9_get_and_delete_are_for_sessions(version: str | None) -> None:
    assert allowed_methods(version, sessions=True) == "POST, GET, DELETE"
    assert allowed_methods(version, sessions=False) == "POST"


def test_9_the_modern_era_has_post_alone() -> None:
    assert allowed_methods(MODERN, sessions=True) == "POST"
    assert allowed_methods(MODERN, sessions=False) == "POST"


def test_18_every_answer_has_the_headers_that_keep_it_private() -> None:
    headers = dict(Response(200, b"{}", headers={"Allow": "POST"}).header_list())
    assert headers == {
        "Cache-Control": "no-store",
        "Vary": "Authorization, Origin",
        "X-Content-Type-Options": "nosniff",
        "Allow": "POST",
        "Content-Type": "application/json",
        "Content-Length": "2",
    }


@pytest.mark.parametrize(("status", "length"), [(202, "0"), (204, None)])
def test_an_answer_without_a_body_has_no_type(status: int, length: str | None) -> None:
    headers = dict(Response(status).header_list())
    assert "Content-Type" not in headers
    assert headers.get("Content-Length") == length
