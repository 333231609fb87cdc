"""What callers are told of inlines: names, fields, and what they may do."""

from typing import Any

import pytest

from mcp_django.tools.describe_model import DescribeModel
from tests.factories import make_superuser
from tests.inlineapp.factories import shop_request
from tests.tool_calls import call

pytestmark = pytest.mark.django_db


@pytest.fixture
def root() -> Any:
    return shop_request(make_superuser())


def test_a_model_is_described_with_its_inlines(root: Any) -> None:
    described = {"model": "inlineapp.order"}
    assert call(DescribeModel(), root, **described)["inlines"].startswith(
        "lines(product* inlineapp.product, quantity integer, price decimal, total computed, updated datetime ro), "
        "shipments(code*, lines list inlineapp.line), returns(code*, order* inlineapp.order), "
    )
    writer = shop_request(root.user, scopes=frozenset({"mcp:read", "mcp:write"}))
    lines = call(DescribeModel(), writer, **described, detail=True)["inlines"]
    assert lines[0] == (
        "lines: rows of inlineapp.line, may view add change delete: product inlineapp.product required, "
        "quantity integer optional, price decimal optional, total computed read-only, updated datetime read-only"
    )
    assert lines[1].startswith(
        "shipments: rows of inlineapp.shipment, may view add change delete: code required in a new row, "
        "lines list inlineapp.line"
    )
    assert lines[-1] == "note_set: rows of inlineapp.note, may view add delete: text text required"
    assert "may view:" in call(DescribeModel(), root, **described, detail=True)["inlines"][0]
