"""Configuration of each client program for this server: a command to run, a file to edit, or where to click."""

import json
import os
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from django.utils.translation import gettext

from ..conf import settings

# Marks a text for translation: the command prints it as it is, pages in their own language.
_ = str


class SetupError(Exception):
    """A client's configuration cannot be written; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Connection:
    """The server as a client's configuration file describes it, under ``name``.

    Either ``url``, and a bearer ``token`` where it does not sign in itself, or the ``command`` that it starts.
    """

    name: str
    url: str = ""
    token: str = ""
    command: tuple[str, ...] = ()

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.token}"} if self.token else {}


@dataclass(frozen=True, slots=True)
class Client:
    """One client program: where its configuration file is, and the entry for this server in that file.

    ``path`` is of the project (relative) or of the person (below the home directory); None: the client keeps none.
    """

    title: str
    path: Callable[[], Path] | None
    entry: Callable[[Connection], dict[str, Any]]
    key: str = "mcpServers"
    shell: Callable[[Connection], str] | None = None
    after: str = ""
    # What to do where the client can only start a command, or reach a server that the internet reaches.
    remote: str = ""
    is_toml: bool = False

    def text(self, connection: Connection) -> str:
        """Return the client's configuration for this server as text."""
        if self.is_toml:
            return _toml(f"{self.key}.{connection.name}", self.entry(connection))
        return json.dumps({self.key: {connection.name: self.entry(connection)}}, indent=2, ensure_ascii=False) + "\n"


def merged(client: Client, connection: Connection, before: str) -> str:
    """Return the client's configuration file with the server in it; ``before`` is its text today, or "".

    All else in the file stays as it is, comments of a TOML file too.
    """
    entry = client.entry(connection)
    try:
        content = (tomllib.loads if client.is_toml else json.loads)(before) if before.strip() else {}
        servers = content.setdefault(client.key, {})
        known = servers.get(connection.name)
    except (ValueError, AttributeError):
        kind = "TOML" if client.is_toml else "JSON without comments"
        raise SetupError(f"It is not {kind}. Add the lines above by hand.") from None
    if known is not None and known != entry:
        raise SetupError(f"It already has another server {connection.name!r}. Remove that, or choose another --name.")
    if known is not None:
        return before
    if client.is_toml:
        after = "\n\n".join(part for part in (before.rstrip("\n"), client.text(connection)) if part)
        try:
            tomllib.loads(after)
        except tomllib.TOMLDecodeError:
            # An inline table takes no table after it.
            raise SetupError("Its servers are written in one line. Add the lines above by hand.") from None
        return after
    servers[connection.name] = entry
    return json.dumps(content, indent=2, ensure_ascii=False) + "\n"


def _toml(table: str, entry: Mapping[str, Any]) -> str:
    # A JSON string, list of strings or number is one of TOML too.
    plain = [f"{key} = {json.dumps(value)}" for key, value in entry.items() if not isinstance(value, Mapping)]
    nested = [
        "\n" + _toml(f"{table}.{key}", value).rstrip("\n") for key, value in entry.items() if isinstance(value, Mapping)
    ]
    return "\n".join([f"[{table}]", *plain, *nested]) + "\n"


def _command(connection: Connection) -> dict[str, Any]:
    program, *arguments = connection.command
    return {"command": program, "args": arguments}


def _entry(url_key: str = "url", kind: str | None = None) -> Callable[[Connection], dict[str, Any]]:
    """Return a builder of the usual configuration entry, with the URL under ``url_key`` and ``kind`` as type."""

    def build(connection: Connection) -> dict[str, Any]:
        if connection.command:
            return ({"type": "stdio"} if kind else {}) | _command(connection)
        headers = {"headers": connection.headers} if connection.token else {}
        return ({"type": kind} if kind else {}) | {url_key: connection.url} | headers

    return build


def _codex_entry(connection: Connection) -> dict[str, Any]:
    if connection.command:
        return _command(connection)
    return {"url": connection.url} | ({"http_headers": connection.headers} if connection.token else {})


def _claude_shell(connection: Connection) -> str:
    if connection.command:
        return shlex.join(["claude", "mcp", "add", connection.name, "--", *connection.command])
    header = ["--header", f"Authorization: Bearer {connection.token}"] if connection.token else []
    return shlex.join(["claude", "mcp", "add", "--transport", "http", connection.name, connection.url, *header])


def _codex_shell(connection: Connection) -> str:
    if connection.command:
        return shlex.join(["codex", "mcp", "add", connection.name, "--", *connection.command])
    return "" if connection.token else shlex.join(["codex", "mcp", "add", connection.name, "--url", connection.url])


def _gemini_shell(connection: Connection) -> str:
    if connection.command:
        return shlex.join(["gemini", "mcp", "add", connection.name, *connection.command])
    header = ["--header", f"Authorization: Bearer {connection.token}"] if connection.token else []
    return shlex.join(["gemini", "mcp", "add", "--transport", "http", *header, connection.name, connection.url])


def _vscode_shell(connection: Connection) -> str:
    return shlex.join(["code", "--add-mcp", json.dumps({"name": connection.name} | _entry(kind="http")(connection))])


def _claude_desktop_path() -> Path:
    """Return the path of Claude Desktop's configuration file on this operating system."""
    home = Path.home()
    base = {
        "darwin": home / "Library" / "Application Support",
        "win32": Path(os.environ.get("APPDATA") or home / "AppData" / "Roaming"),
    }.get(sys.platform, home / ".config")
    return base / "Claude" / "claude_desktop_config.json"


CLIENTS: Final[Mapping[str, Client]] = {
    "claude-code": Client(
        "Claude Code",
        lambda: Path(".mcp.json"),
        _entry(kind="http"),
        shell=_claude_shell,
        after=_("In claude, enter /mcp, choose {name} and then Authenticate."),
    ),
    "claude-desktop": Client(
        "Claude Desktop",
        _claude_desktop_path,
        _entry(),
        remote=_("Where the internet reaches the server over https: Settings, Connectors, Add custom connector, {url}"),
        after=_("Restart Claude Desktop."),
    ),
    "codex": Client(
        "Codex",
        lambda: Path.home() / ".codex" / "config.toml",
        _codex_entry,
        key="mcp_servers",
        shell=_codex_shell,
        after=_("Run: codex mcp login {name}"),
        is_toml=True,
    ),
    "cursor": Client(
        "Cursor",
        lambda: Path(".cursor") / "mcp.json",
        _entry(),
        after=_("In Cursor, open Settings, MCP, and choose Connect beside {name}."),
    ),
    "vscode": Client(
        "VS Code",
        lambda: Path(".vscode") / "mcp.json",
        _entry(kind="http"),
        key="servers",
        shell=_vscode_shell,
        after=_("In VS Code, choose Start above the server in the file, and allow it to sign in."),
    ),
    "gemini": Client(
        "Gemini CLI",
        lambda: Path.home() / ".gemini" / "settings.json",
        _entry("httpUrl"),
        shell=_gemini_shell,
        after=_("In gemini, enter /mcp auth {name}."),
    ),
    "inspector": Client(
        "MCP Inspector",
        None,
        _entry(kind="streamable-http"),
        shell=lambda connection: shlex.join(["npx", "@modelcontextprotocol/inspector", *connection.command]),
        after=_("Choose Streamable HTTP, enter {url}, open Authentication and sign in."),
    ),
}


def set_ups(url: str) -> Iterator[dict[str, str]]:
    """Yield the configuration of each client: title, what to run or put into which file, and what to do then."""
    connection = Connection(str(settings.SERVER["name"]), url=url)
    for client in CLIENTS.values():
        shell = client.shell(connection) if client.shell is not None else ""
        words = client.remote if client.remote else client.after
        yield {
            "title": client.title,
            "shell": shell,
            "place": "" if shell or client.remote or client.path is None else str(client.path()),
            "text": "" if shell or client.remote else client.text(connection),
            "after": gettext(words).format(name=connection.name, url=url),
        }
