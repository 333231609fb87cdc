"""Error classes: the code, status and data of each."""

from collections.abc import Callable

import pytest

from mcp_django.protocol import errors
from mcp_django.protocol.errors import (
    HeaderMismatch,
    InternalError,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    MissingClientCapability,
    ParseError,
    ProtocolError,
    ResourceNotFound,
    UnsupportedVersion,
)
from tests.protocol_messages import check_error

pytestmark = pytest.mark.one_django

CASES: list[tuple[Callable[[], ProtocolError], int, int, int]] = [
    (ParseError, -32700, -32700, 400),
    (InvalidRequest, -32600, -32600, 400),
    (MethodNotFound, -32601, -32601, 404),
    (InvalidParams, -32602, -32602, 400),
    (lambda: ResourceNotFound("django://shop/order/1"), -32602, -32002, 400),
    (InternalError, -32603, -32603, 200),
    (HeaderMismatch, -32020, -32020, 400),
    (lambda: MissingClientCapability({"elicitation": {}}), -32021, -32021, 400),
    (lambda: UnsupportedVersion("v999.0.0", ["2026-07-28"]), -32022, -32022, 400),
]


@pytest.mark.parametrize(("make", "modern", "legacy", "status"), CASES)
def test_each_error_has_its_code_in_each_era(
    make: Callable[[], ProtocolError], modern: int, legacy: int, status: int
) -> None:
    error = make()
    assert (error.code_for(modern=True), error.code_for(modern=False), error.status) == (modern, legacy, status)
    assert error.message
    assert str(error) == error.message
    for era in (True, False):
        check_error(error.response(1, modern=era), modern=era)


def test_the_table_above_is_complete() -> None:
    tested = {type(make()).__name__ for make, *_ in CASES}
    assert tested | {"ProtocolError"} == {
        name for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, errors.ProtocolError)
    }


def test_no_error_reports_a_server_fault_as_http_status() -> None:
    assert all(make().status < 500 for make, *_ in CASES)


def test_a_message_and_data_of_ones_own_replace_the_default() -> None:
    error = InvalidParams("Invalid params: cursor", data={"errorId": "1"})
    assert (error.message, error.data) == ("Invalid params: cursor", {"errorId": "1"})
    assert InvalidParams().message == "Invalid params"
    assert InvalidParams().data is None


def test_a_missing_resource_is_told_by_its_uri_alone() -> None:
    first, second = ResourceNotFound("django://shop/order/1"), ResourceNotFound("django://shop/secret/1")
    assert first.message == second.message == "Resource not found"
    assert first.data == {"uri": "django://shop/order/1"}


def test_an_unsupported_version_names_those_that_are() -> None:
    error = UnsupportedVersion("v999.0.0", iter(["2026-07-28", "2025-11-25"]))
    assert error.data == {"supported": ["2026-07-28", "2025-11-25"], "requested": "v999.0.0"}


def test_a_missing_capability_is_named() -> None:
    assert MissingClientCapability({"sampling": {}}).data == {"requiredCapabilities": {"sampling": {}}}
