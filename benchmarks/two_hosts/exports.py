"""Clients that export a table, and open the file as a person in a browser."""

import csv
import time
from importlib.util import find_spec
from typing import Any
from urllib.parse import urlsplit

import httpx2

from .client import HOST, NO_ANSWER, Trouble, refusal
from .cluster import URL
from .people import Person

# Words of a host of the version before, which has no such tool.
UNKNOWN_TOOL = "Unknown tool: export_records"
# Columns of the file that are compared.
EXPORTED = ["number", "name"]


class Exporter(Person):
    """Has a table written to a file, reads it as a resource and opens it in a browser; another person cannot."""

    kind = "export"

    async def once(self) -> None:
        began = time.monotonic()
        question = {"model": "ledger.row", "fields": EXPORTED, "ordering": ["number"]}
        try:
            made = await self.ask(
                "export_records", lambda: self.client.call("export_records", **question), UNKNOWN_TOOL
            )
        except Trouble as trouble:
            if UNKNOWN_TOOL in trouble.text:
                self.book.notes["exports asked of the version before, which has none"] += 1
            return
        if made["rows"] != self.run.rows:
            self.book.lost("export", f"{made['file']} has {made['rows']} rows")
            return
        if not can_open():
            self.book.kept("export", time.monotonic() - began)
            return
        try:
            mine = await self.insist("export page", lambda: self.open(made["url"], self.known["browser"]))
            read = await self.insist(
                "resources/read", lambda: self.client.result("resources/read", {"uri": made["uri"]})
            )
        except Trouble as trouble:
            self.book.lost("export", f"{made['file']}: {trouble}")
            return
        expected = [{"number": str(number), "name": f"Row {number}"} for number in range(self.run.rows)]
        wrong = [where for where, text in (("page", mine), ("resource", text_of(read))) if rows_of(text) != expected]
        other = self.run.people[(self.number + 1) % len(self.run.people)]
        try:
            await self.ask("export page of another", lambda: self.open(made["url"], other["browser"]), "404 ")
        except Trouble as trouble:
            if not trouble.text.startswith("404") and trouble.kind != NO_ANSWER and "503" not in trouble.text:
                wrong.append(f"another person gets {trouble}")
        else:
            wrong.append("another person gets the file")
        if wrong:
            self.book.lost("export", f"{made['file']}: {', '.join(wrong)}")
        else:
            self.book.kept("export", time.monotonic() - began)

    async def open(self, url: str, browser: str) -> str:
        """Return the file that a browser gets.

        Raises:
            Trouble: it gets none.
        """
        headers = {"Host": HOST, "Cookie": f"sessionid={browser}"}
        try:
            response = await self.run.http.get(f"{URL}{urlsplit(url).path}", headers=headers)
        except httpx2.TransportError as error:
            raise Trouble(NO_ANSWER, type(error).__name__) from error
        if response.status_code != 200:
            raise refusal(response)
        return response.text


def rows_of(text: str) -> list[dict[str, str]]:
    """Return the compared columns of a CSV file."""
    read = csv.DictReader(text.removeprefix("\ufeff").splitlines())
    return [{name: row[name] for name in EXPORTED} for row in read]


def text_of(result: dict[str, Any]) -> str:
    """Return the text of a resource."""
    text: str = result["contents"][0].get("text", "")
    return text


def can_open() -> bool:
    """Return whether this version has the page of an export."""
    return find_spec("mcp_django.transports.http.export_page") is not None
