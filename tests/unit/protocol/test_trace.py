"""Trace context of ``_meta``: what follows its format, and nothing else."""

from typing import Any

import pytest

from mcp_django.protocol.trace import trace_context

PARENT = "00-0af7651916cd43dd8448eb211c80319c-00f067aa0ba902b7-01"


@pytest.mark.parametrize(
    ("meta", "found"),
    [
        ({}, {}),
        ({"tracestate": "a=1"}, {}),
        ({"traceparent": PARENT}, {"traceparent": PARENT}),
        ({"traceparent": PARENT, "tracestate": "a=1,b=2"}, {"traceparent": PARENT, "tracestate": "a=1,b=2"}),
        ({"traceparent": PARENT, "tracestate": "a\n=1"}, {"traceparent": PARENT}),
        ({"traceparent": PARENT, "tracestate": "a" * 513}, {"traceparent": PARENT}),
        ({"traceparent": PARENT, "tracestate": ""}, {"traceparent": PARENT}),
        ({"traceparent": "x", "tracestate": "a=1"}, {}),
        ({"traceparent": "x", "baggage": "user=1"}, {"baggage": "user=1"}),
        ({"baggage": "a" * 8_192}, {"baggage": "a" * 8_192}),
        ({"baggage": "a" * 8_193}, {}),
        ({"baggage": "user=\r\nX: y"}, {}),
        ({"baggage": "user=é"}, {}),
        ({"baggage": {"user": 1}}, {}),
    ],
)
def test_60_a_trace_is_taken_where_it_follows_its_format(meta: dict[str, Any], found: dict[str, str]) -> None:
    assert trace_context(meta) == found


@pytest.mark.parametrize(
    "parent",
    [
        "",
        1,
        None,
        [],
        PARENT.upper(),
        PARENT + "\n",
        PARENT + "-00",
        " " + PARENT,
        PARENT.replace("00-0af", "ff-0af"),
        f"00-{'0' * 32}-00f067aa0ba902b7-01",
        f"00-0af7651916cd43dd8448eb211c80319c-{'0' * 16}-01",
        PARENT[:-1],
        PARENT.replace("-", "_"),
        "\u0660" + PARENT[1:],
    ],
)
def test_60_another_traceparent_is_left_out(parent: Any) -> None:
    assert trace_context({"traceparent": parent}) == {}
