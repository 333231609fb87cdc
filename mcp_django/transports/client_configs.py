"""Configuration of each client program for this server: a command to run, a file to edit, or where to click."""

import base64
import json
import re
import shlex
import sys
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Final, Literal
from urllib.parse import quote, urlencode

from django.utils.translation import gettext

from ..conf import settings

# Marks a text for translation: the command prints it in English, pages in the language of the visitor.
_ = str


class SetupError(Exception):
    """Raised when a configuration cannot be written; the text says why and what to do."""


@dataclass(frozen=True, slots=True)
class Connection:
    """The server as a client's configuration file describes it, under ``name``.

    Either ``url``, with a bearer ``token`` if the client does not sign in itself, or a ``command`` that it starts.
    """

    # Names that every client accepts.
    NAME: ClassVar = re.compile(r"[A-Za-z0-9_-]{1,40}")

    name: str
    url: str = ""
    token: str = ""
    command: tuple[str, ...] = ()

    @staticmethod
    def default_name() -> str:
        """Return the name for this server from ``SERVER['name']``, in characters that every client accepts."""
        return re.sub(r"[^A-Za-z0-9_-]+", "-", str(settings.SERVER["name"]))[:40].strip("-") or "django"


@dataclass(frozen=True, slots=True)
class Client:
    """One client program: where its configuration file is, and the entry for this server in that file.

    ``file`` is relative to the project or the home directory (~), "" if the client has none. ``key`` holds the servers
    in it, "" if the vendor hosts the client. ``add`` are two shell commands, to add the server as a command or a URL.
    """

    title: str
    file: str = ""
    key: str = "mcpServers"
    # Parts of an entry: the keys of the URL and of headers, the type if it has one, constant members, and the command.
    url_key: str = "url"
    headers_key: str = "headers"
    kind: str = ""
    rest: Mapping[str, Any] = field(default_factory=dict)
    command: Callable[[tuple[str, ...]], dict[str, Any]] = lambda words: {"command": words[0], "args": [*words[1:]]}
    add: tuple[str, str] = ("", "")
    # Returns a link that opens the client, which asks whether to add the server.
    link: Callable[[str, str], str] = lambda name, url: ""
    after: str = ""
    # What to do if the client can only start commands, or only reach servers on the internet.
    remote: str = ""
    format: Literal["json", "toml", "yaml"] = "json"
    mac: str = ""
    windows: str = ""

    @property
    def path(self) -> Path | None:
        file = {"darwin": self.mac, "win32": self.windows}.get(sys.platform) or self.file
        return Path(file).expanduser() if file else None

    def then(self, after: str, remote: str = "") -> "Client":
        """Return a copy of the client with the instructions for people."""
        return replace(self, after=after, remote=remote)

    def entry(self, connection: Connection) -> dict[str, Any]:
        """Return the entry for the server in the client's configuration file."""
        entry: dict[str, Any] = {}
        if self.kind:
            entry["type"] = "stdio" if connection.command else self.kind
        if connection.command:
            entry |= self.command(connection.command)
        else:
            entry[self.url_key] = connection.url
            if connection.token:
                entry[self.headers_key] = {"Authorization": f"Bearer {connection.token}"}
        for key, value in self.rest.items():
            entry[key] = connection.name if value == "NAME" else value
        return entry

    def text(self, connection: Connection) -> str:
        """Return the text of a configuration file with this server alone, "" if the client has no such file."""
        entry = self.entry(connection)
        if self.format == "toml":
            return _toml(f"{self.key}.{connection.name}", entry)
        if self.format == "yaml":
            # Every JSON value is also a YAML value.
            values = [f"    {key}: {json.dumps(value, ensure_ascii=False)}" for key, value in entry.items()]
            return "\n".join([f"{self.key}:", f"  {connection.name}:", *values]) + "\n"
        servers = {self.key: {connection.name: entry}}
        if self.key:
            return json.dumps(servers, indent=2, ensure_ascii=False) + "\n"
        return ""

    def merged(self, connection: Connection, before: str) -> str:
        """Return the client's configuration file with the server in it; ``before`` is its text today, or "".

        Everything else in the file is kept, including the comments of a TOML file.
        """
        entry = self.entry(connection)
        if self.format == "yaml":
            # There is no YAML parser here.
            if before.strip() and self.text(connection).partition("\n")[2] not in before:
                raise SetupError("It is YAML. Add the lines above by hand.")
            return before if before.strip() else self.text(connection)
        try:
            parse = tomllib.loads if self.format == "toml" else json.loads
            content = parse(before) if before.strip() else {}
            servers = content.setdefault(self.key, {})
            # OpenCode nests them one level deeper since its version 2.
            inner = servers.get("servers")
            servers = inner if isinstance(inner, dict) and not {"type", "command"} & {*inner} else servers
            existing = servers.get(connection.name)
        except (ValueError, AttributeError):
            kind = "TOML" if self.format == "toml" else "JSON without comments"
            raise SetupError(f"It is not {kind}. Add the lines above by hand.") from None
        if existing == entry:
            return before
        if existing is not None:
            raise SetupError(f"It already has another server {connection.name!r}. Remove it, or choose another --name.")
        if self.format == "toml":
            after = "\n\n".join(part for part in (before.rstrip("\n"), self.text(connection)) if part)
            try:
                tomllib.loads(after)
            except tomllib.TOMLDecodeError:
                # TOML does not allow a table to extend an inline table.
                raise SetupError("Its servers are written in one line. Add the lines above by hand.") from None
            return after
        servers[connection.name] = entry
        return json.dumps(content, indent=2, ensure_ascii=False) + "\n"

    def shell(self, connection: Connection) -> str:
        """Return the shell command that adds the server to the client, "" if there is none."""
        words = {
            "NAME": [connection.name],
            "URL": [connection.url],
            "COMMAND": connection.command,
            "HEADER": ["--header", f"Authorization: Bearer {connection.token}"] if connection.token else [],
            "JSON": [json.dumps({"name": connection.name} | self.entry(connection))],
        }
        template = self.add[not connection.command]
        if connection.token and not {"HEADER", "JSON"} & {*template.split()} and "URL" in template:
            return ""
        return shlex.join(word for part in template.split() for word in words.get(part, [part]))


def _toml(table: str, entry: Mapping[str, Any]) -> str:
    # A JSON string, number or list of strings is also valid TOML.
    plain = [f"{key} = {json.dumps(value)}" for key, value in entry.items() if not isinstance(value, Mapping)]
    nested = [
        "\n" + _toml(f"{table}.{key}", value).rstrip("\n") for key, value in entry.items() if isinstance(value, Mapping)
    ]
    return "\n".join([f"[{table}]", *plain, *nested]) + "\n"


def _cursor_link(name: str, url: str) -> str:
    config = base64.b64encode(json.dumps({"url": url}).encode()).decode()
    return f"cursor://anysphere.cursor-deeplink/mcp/install?{urlencode({'name': name, 'config': config})}"


CLIENTS: Final[Mapping[str, Client]] = {
    "claude-code": Client(
        "Claude Code",
        ".mcp.json",
        kind="http",
        add=("claude mcp add NAME -- COMMAND", "claude mcp add --transport http NAME URL HEADER"),
    ).then(_("In claude, enter /mcp, choose {name} and then Authenticate.")),
    "claude-ai": Client("claude.ai", key="").then(
        "",
        _(
            "In claude.ai, open Customize, Connectors, choose + and Add custom connector, and enter {url}. Then choose "
            "Connect and sign in. In a Team or Enterprise plan, an owner adds it first, under Organization settings, "
            "Connectors. The internet has to reach this address over https."
        ),
    ),
    "claude-desktop": Client(
        "Claude Desktop",
        "~/.config/Claude/claude_desktop_config.json",
        mac="~/Library/Application Support/Claude/claude_desktop_config.json",
        windows="~/AppData/Roaming/Claude/claude_desktop_config.json",
    ).then(
        _("Restart Claude Desktop."),
        _("Where the internet reaches the server over https: Settings, Connectors, Add custom connector, {url}"),
    ),
    "chatgpt": Client("ChatGPT", key="").then(
        "",
        _(
            "In ChatGPT on the web, open Plugins, choose + and Add custom MCP server, enter {url}, choose OAuth and "
            "Create as a plugin, and sign in. If it is not there, turn on Developer mode under Settings, Security and "
            "login; a workspace has to permit it. The internet has to reach this address over https."
        ),
    ),
    "codex": Client(
        "Codex",
        "~/.codex/config.toml",
        "mcp_servers",
        format="toml",
        headers_key="http_headers",
        add=("codex mcp add NAME -- COMMAND", "codex mcp add NAME --url URL"),
    ).then(_("Run: codex mcp login {name}")),
    "cursor": Client("Cursor", ".cursor/mcp.json", link=_cursor_link).then(
        _("In Cursor, open Settings, MCP, and choose Connect beside {name}.")
    ),
    "vscode": Client(
        "VS Code",
        ".vscode/mcp.json",
        "servers",
        kind="http",
        add=("code --add-mcp JSON", "code --add-mcp JSON"),
        link=lambda name, url: "vscode:mcp/install?" + quote(json.dumps({"name": name, "type": "http", "url": url})),
    ).then(_("In VS Code, choose Start above the server in the file, and allow it to sign in.")),
    "gemini": Client(
        "Gemini CLI",
        "~/.gemini/settings.json",
        url_key="httpUrl",
        add=("gemini mcp add NAME COMMAND", "gemini mcp add --transport http HEADER NAME URL"),
    ).then(_("In gemini, enter /mcp auth {name}.")),
    "goose": Client(
        "Goose",
        "~/.config/goose/config.yaml",
        "extensions",
        format="yaml",
        url_key="uri",
        kind="streamable_http",
        windows="~/AppData/Roaming/Block/goose/config/config.yaml",
        rest={"name": "NAME", "description": "", "enabled": True, "timeout": 300},
        command=lambda words: {"cmd": words[0], "args": [*words[1:]]},
        link=lambda *of: "goose://extension?type=streamable_http&id={0}&name={0}&url={1}".format(*map(quote, of)),
    ).then(_("Start Goose: it opens the browser, where you sign in.")),
    "opencode": Client(
        "OpenCode", "opencode.json", "mcp", kind="remote", command=lambda words: {"type": "local", "command": [*words]}
    ).then(_("In opencode, enter /mcps, choose {name} and sign in. In version 1, run: opencode mcp auth {name}")),
    "windsurf": Client("Windsurf", "~/.codeium/windsurf/mcp_config.json", url_key="serverUrl").then(
        _("In Windsurf, open the MCPs of Cascade and press the refresh button. It opens the browser to sign in.")
    ),
    "zed": Client(
        "Zed", "~/.config/zed/settings.json", "context_servers", windows="~/AppData/Roaming/Zed/settings.json"
    ).then(_("In Zed, open Settings, AI, MCP Servers, and sign in beside {name}.")),
    "copilot": Client("GitHub Copilot CLI", "~/.copilot/mcp-config.json", kind="http", rest={"tools": ["*"]}).then(
        _("Start copilot: it opens the browser, where you sign in.")
    ),
    "qwen": Client(
        "Qwen Code",
        "~/.qwen/settings.json",
        url_key="httpUrl",
        add=("qwen mcp add NAME COMMAND", "qwen mcp add --transport http NAME URL HEADER"),
    ).then(_("In qwen, enter /mcp auth {name}.")),
    "cline": Client("Cline", "~/.cline/data/settings/cline_mcp_settings.json", kind="streamableHttp").then(
        _("In Cline, open MCP Servers, Configure, and sign in beside {name}.")
    ),
    "continue": Client("Continue", ".continue/mcpServers/mcp.json", kind="http"),
    "mcporter": Client(
        "mcporter",
        "config/mcporter.json",
        url_key="baseUrl",
        add=("", "npx mcporter config add NAME URL --auth oauth"),
    ).then(_("Run: npx mcporter auth {name}")),
    "inspector": Client(
        "MCP Inspector",
        kind="streamable-http",
        add=("npx @modelcontextprotocol/inspector COMMAND", "npx @modelcontextprotocol/inspector"),
    ).then(_("Choose Streamable HTTP, enter {url}, open Authentication and sign in.")),
    "json": Client(_("Another client (JSON)"), kind="http"),
}


def set_ups(url: str) -> Iterator[dict[str, str]]:
    """Yield the configuration of each client: title, what to run or which file to edit, and what to do next."""
    connection = Connection(Connection.default_name(), url=url)
    for client in CLIENTS.values():
        shell = client.shell(connection)
        words = client.remote or client.after
        yield {
            "title": gettext(client.title),
            "shell": shell,
            "link": client.link(connection.name, url),
            "place": "" if shell or client.remote else client.file,
            "text": "" if shell or client.remote else client.text(connection),
            "after": gettext(words).format(name=connection.name, url=url) if words else "",
        }
