"""What the package names itself, so that it need not load the protocol's types, is what those say."""

import subprocess
import sys

import mcp_types
import pytest
from mcp_types import jsonrpc
from mcp_types.methods import CACHEABLE_METHODS, INPUT_REQUIRED_METHODS

from mcp_django.protocol import eras, errors

pytestmark = pytest.mark.one_django

CODES = (
    "HEADER_MISMATCH",
    "INTERNAL_ERROR",
    "INVALID_PARAMS",
    "INVALID_REQUEST",
    "METHOD_NOT_FOUND",
    "MISSING_REQUIRED_CLIENT_CAPABILITY",
    "PARSE_ERROR",
    "UNSUPPORTED_PROTOCOL_VERSION",
)


def test_the_codes_are_those_of_the_protocol() -> None:
    assert {name: getattr(errors, name) for name in CODES} == {name: getattr(jsonrpc, name) for name in CODES}


def test_the_members_of_meta_are_those_of_the_protocol() -> None:
    assert eras.VERSION_KEY == mcp_types.PROTOCOL_VERSION_META_KEY
    assert eras.CAPABILITIES_KEY == mcp_types.CLIENT_CAPABILITIES_META_KEY
    assert eras.CLIENT_KEY == mcp_types.CLIENT_INFO_META_KEY
    assert eras.LOG_LEVEL_KEY == mcp_types.LOG_LEVEL_META_KEY
    assert eras.SERVER_KEY == mcp_types.SERVER_INFO_META_KEY


def test_the_methods_are_those_of_the_protocol() -> None:
    assert eras.CACHEABLE_METHODS == CACHEABLE_METHODS
    assert eras.Call.MAY_ASK == INPUT_REQUIRED_METHODS


def test_the_types_are_loaded_by_the_first_message() -> None:
    code = """
import sys
import mcp_django.protocol.eras, mcp_django.protocol.client_requests, mcp_django.protocol.eras
from mcp_django.protocol.eras import validate
assert not {"mcp_types", "pydantic"} & sys.modules.keys()
validate("tools/list", "2025-11-25", {})
assert {"mcp_types", "pydantic"} <= sys.modules.keys()
"""
    subprocess.run([sys.executable, "-c", code], check=True)
