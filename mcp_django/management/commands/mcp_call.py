"""``manage.py mcp_call``: call a tool as a user, from the command line."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from django.core.management.base import CommandError, CommandParser

from ...console.visibility_report import VisibilityReport
from ...problems import nearest
from ...transports.local_client import LocalClient
from ..command_arguments import CallerCommand


class Command(CallerCommand):
    """Call a tool, and print the result as an AI model would read it."""

    help = "Calls a tool as USER and prints what a model would read. Without a tool it lists USER's tools."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("tool", nargs="?", help="name of the tool, such as query_records")
        parser.add_argument("arguments", nargs="*", metavar="KEY=VALUE", help="JSON, or plain text")
        super().add_arguments(parser)

    def create_parser(self, prog_name: str, subcommand: str, **kwargs: Any) -> CommandParser:
        """Return a parser that takes arguments of the tool before, between and after options."""
        parser = super().create_parser(prog_name, subcommand, **kwargs)
        parser.parse_args = parser.parse_intermixed_args  # type: ignore[method-assign]
        return parser

    def handle(self, *args: Any, tool: str | None, arguments: list[str], **options: Any) -> None:
        # --scope takes every word that follows it, but no scope has an equals sign.
        if scopes := options["scope"]:
            arguments = [*arguments, *(word for word in scopes if "=" in word)]
            options["scope"] = [word for word in scopes if "=" not in word]
        site, person, scopes = self.find_caller(options)
        client = LocalClient(site, person, scopes)
        try:
            tools = {item["name"]: item for item in client.request("tools/list")["tools"]}
            if tool is None:
                lines = ((name, item.get("description", "").strip().partition("\n")[0]) for name, item in tools.items())
                self.stdout.write("\n".join(f"{name:<40} {line}" for name, line in lines) or f"{person} has no tools.")
                return
            if tool not in tools:
                hidden = {item.name: item.reason for item in VisibilityReport.of(site, person, scopes).missing_tools}
                if tool in hidden:
                    raise CommandError(f"{person} has no tool {tool!r}: {hidden[tool]}")
                there = ", ".join(tools) or "none"
                raise CommandError(f"There is no tool {tool!r}. There are: {there}.{nearest(tool, tools)}")
            values = read_arguments(arguments, tools[tool]["inputSchema"].get("properties", {}))
            result = client.request("tools/call", name=tool, arguments=values)
        except LocalClient.CallFailed as refused:
            raise CommandError(str(refused)) from None
        text = "\n".join(block["text"] for block in result["content"] if block["type"] == "text")
        if result.get("isError"):
            raise CommandError(text)
        # Print JSON with one member on each line, and any other text as it is.
        value = value_of(text)
        self.stdout.write(text if isinstance(value, str) else json.dumps(value, indent=1, ensure_ascii=False))


def read_arguments(pairs: Iterable[str], properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments in ``key=value`` pairs, for a tool whose schema has ``properties``."""
    arguments: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or key in arguments:
            raise CommandError(f"Write each argument once, as key=value: {pair!r} is not that.")
        arguments[key] = text if properties.get(key, {}).get("type") == "string" else value_of(text)
    return arguments


def value_of(text: str) -> Any:
    """Return a text parsed as JSON, or the text if it is not JSON."""
    try:
        return json.loads(text)
    except ValueError:
        return text
