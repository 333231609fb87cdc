"""The measured calls: as request bytes for each contender, and what a right answer holds."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from .load import Answer, BadAnswer, Check
from .servers import Contender

LEGACY, MODERN = "2025-11-25", "2026-07-28"
OK = 200
# The answers to one request differ in the time within a cursor, and in no more.
SLACK = 0.02

ROWS = 50
STATUS = "published"
MODEL = "bench.article"


@dataclass(frozen=True)
class Call:
    """One call, the same for all contenders that have it.

    ``method`` and ``params`` are what MCP servers get, ``path`` is what bare views get. ``essence`` takes from a result
    what has to be the same for every contender.
    """

    name: str
    title: str
    method: str
    params: Mapping[str, Any]
    path: str | None
    essence: Callable[[Mapping[str, Any]], Any]
    sdk: bool = True
    # Calls of one group are compared with each other, and so measured in turns.
    group: str = ""

    def has(self, contender: Contender) -> bool:
        """Return whether the contender can be asked."""
        if not contender.speaks_mcp:
            return self.path is not None
        return self.sdk or contender.application != "sdk"

    def request(self, contender: Contender, port: int, token: str, revision: str) -> bytes:
        """Return the bytes of the request."""
        if contender.speaks_mcp:
            return mcp_request(port, self.method, self.params, token=token, revision=revision)
        assert self.path is not None
        return http_request("GET", self.path, {"Host": f"127.0.0.1:{port}", "Authorization": f"Bearer {token}"})

    def read(self, contender: Contender, answer: Answer) -> Any:
        """Return the essence of an answer.

        Raises:
            BadAnswer: it is not the answer to this call.
        """
        try:
            document = json.loads(answer.body)
            result = document["result"] if contender.speaks_mcp else document
            if answer.status != OK or result.get("isError"):
                raise BadAnswer("an error")
            return self.essence(result.get("structuredContent", result))
        except Exception as error:
            what = f"{contender.title}, {self.name}: {answer.status} {answer.body[:500]!r}"
            raise BadAnswer(f"{what} ({error!r})") from error


def http_request(method: str, path: str, headers: Mapping[str, str], body: bytes = b"") -> bytes:
    """Return an HTTP/1.1 request."""
    lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


def mcp_request(port: int, method: str, params: Mapping[str, Any], *, token: str, revision: str) -> bytes:
    """Return the POST of one JSON-RPC request, complete in itself in either era."""
    headers = {
        "Host": f"127.0.0.1:{port}",
        "Authorization": f"Bearer {token}",
        "Content-Type": "application/json",
        "Accept": "application/json, text/event-stream",
        "MCP-Protocol-Version": revision,
    }
    if revision == MODERN:
        meta = {
            "io.modelcontextprotocol/protocolVersion": revision,
            "io.modelcontextprotocol/clientInfo": {"name": "benchmarks", "version": "1"},
            "io.modelcontextprotocol/clientCapabilities": {},
        }
        params = {**params, "_meta": meta}
        headers["Mcp-Method"] = method
        if name := params.get("name") or params.get("uri"):
            headers["Mcp-Name"] = name
    body = json.dumps({"jsonrpc": "2.0", "id": 1, "method": method, "params": params}).encode()
    return http_request("POST", "/mcp", headers | {"Content-Length": str(len(body))}, body)


def checker(model_answer: Answer) -> Check:
    """Return a quick check of further answers: success, and as long an answer as the one that was read."""
    expected = len(model_answer.body)

    def check(answer: Answer) -> None:
        if answer.status != OK or abs(len(answer.body) - expected) > expected * SLACK:
            raise BadAnswer(f"{answer.status} {answer.body[:500]!r}")

    return check


# What has to be the same


def _tools(result: Mapping[str, Any]) -> int:
    return len(result["tools"])


def _page(result: Mapping[str, Any]) -> list[Any]:
    """Return the keys of the rows and the authors' labels."""
    author = result["columns"].index("author")
    found = [(row[0], row[author][1]) for row in result["rows"]]
    assert found, "no rows"
    return found


def _record(result: Mapping[str, Any]) -> Any:
    fields = result["fields"]
    return fields["id"], fields["title"], fields["author"][1]


def _events_after(number: int) -> Callable[[Mapping[str, Any]], list[Any]]:
    """Return what gives the keys of a page and requires them to be those that follow ``number``."""

    def read(result: Mapping[str, Any]) -> list[Any]:
        found = [row[0] for row in json.loads(result["contents"][0]["text"])["rows"]]
        assert found == list(range(number + 1, number + 1 + len(found))), "not the rows that follow"
        assert found, "no rows"
        return found

    return read


def calls(rows: int, deep_uri: str, deep_row: int) -> list[Call]:
    """Return the measured calls for a table of ``rows`` articles; ``deep_uri`` is the page at event ``deep_row``."""
    query = {"model": MODEL, "filters": {"status": STATUS}, "ordering": ["-published"], "limit": ROWS}
    pk = rows // 2
    return [
        Call("tools_list", "tools/list", "tools/list", {}, None, _tools),
        Call(
            "query_records",
            f"query_records: {ROWS} of {rows:,} rows, one relation label",
            "tools/call",
            {"name": "query_records", "arguments": query},
            f"/bare/articles?status={STATUS}&limit={ROWS}",
            _page,
        ),
        Call(
            "get_record",
            "get_record",
            "tools/call",
            {"name": "get_record", "arguments": {"model": MODEL, "pk": pk}},
            f"/bare/articles/{pk}",
            _record,
        ),
        Call(
            "first_page",
            "resources/read: the first page of a table",
            "resources/read",
            {"uri": "django://bench/event"},
            None,
            _events_after(0),
            sdk=False,
            group="pages",
        ),
        Call(
            "deep_page",
            f"resources/read: the page after row {deep_row:,}",
            "resources/read",
            {"uri": deep_uri},
            None,
            _events_after(deep_row),
            sdk=False,
            group="pages",
        ),
    ]
