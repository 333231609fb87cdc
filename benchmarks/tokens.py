"""How many tokens a language model reads, counted with the public tokenizer o200k_base."""

import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import orjson
from django.contrib.auth.models import User

from mcp_django import MCPSite
from mcp_django.context.request import MCPContext, MCPRequest
from mcp_django.server.methods.tools import call_tool, list_tools

from .calls import MODERN
from .catalogue import NUMBER, ROWS, catalogue, filled

PROGRAM = Path(__file__).with_name("tokens.mjs")
MODULES = Path(__file__).parent.parent / "tests" / "node_modules"
NODE = MODULES / "node" / "bin" / "node"
TIMEOUT = 60
# What clients show of a tool to a language model.
SHOWN = ("name", "description", "inputSchema")
# What was counted, and the most that it should be.
TARGETS = {
    f"tools/list of {NUMBER} models": 1_800,
    "describe_model, for each model of 13 fields": 60,
    f"query_records: {ROWS} rows of 13 fields": 2_500,
}


def has_tokenizer() -> bool:
    """Return whether ``make tests/node_modules/.installed`` has installed the tokenizer."""
    return NODE.exists() and (MODULES / "gpt-tokenizer").exists()


def count_tokens(texts: Sequence[str]) -> list[int]:
    """Return the number of tokens of each text."""
    done = subprocess.run(
        [str(NODE), str(PROGRAM)], input=json.dumps(texts), capture_output=True, text=True, timeout=TIMEOUT, check=True
    )
    counts: list[int] = json.loads(done.stdout)
    return counts


def measured() -> list[dict[str, Any]]:
    """Return how many tokens each of ``TARGETS`` has."""
    site = catalogue()
    request = asking(site)
    tools = orjson.loads(orjson.dumps(list_tools(request, {})["tools"]))
    listed = orjson.dumps([{name: tool[name] for name in SHOWN} for tool in tools]).decode()
    described = answer_text(request, "describe_model", model=",".join(site.exposures_by_label))
    with filled(site) as label:
        names = [column.split()[0].rstrip("*") for column in field_lines(request, label)]
        page = answer_text(request, "query_records", model=label, limit=ROWS, fields=names)
    first, second, third = count_tokens([listed, described, page])
    found = zip(TARGETS.items(), (first, -(-second // NUMBER), third), strict=True)
    return [{"what": what, "value": value, "most": most, "reached": value <= most} for (what, most), value in found]


def asking(site: MCPSite) -> MCPRequest:
    """Return the request of a superuser, who sees every tool."""
    request = MCPRequest()
    request.method, request.path = "POST", "/mcp"
    request.user = User(username="reader", is_superuser=True, is_staff=True, is_active=True)
    request.mcp = MCPContext(site=site, scopes=frozenset({"mcp:read", "mcp:write"}), version=MODERN)
    return request


def answer_text(request: MCPRequest, name: str, **arguments: Any) -> str:
    """Return what a tool answers, as a language model reads it."""
    result: Any = call_tool(request, {"name": name, "arguments": arguments})
    assert not result.get("isError"), result
    return str(result["content"][0]["text"])


def field_lines(request: MCPRequest, label: str) -> list[str]:
    """Return the fields as ``describe_model`` names them."""
    fields: str = json.loads(answer_text(request, "describe_model", model=label))["fields"]
    return fields.split(", ")
