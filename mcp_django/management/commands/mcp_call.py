"""``manage.py mcp_call``: one call of a tool, as a user, from the command line."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from oauth2_provider.settings import oauth2_settings

from ...conf import nearest
from ...console.seen import look
from ...oauth.scopes import HIERARCHY
from ...transports.local import LocalClient, Refused
from ..accounts import find_scopes, find_site, find_superuser, find_user


class Command(BaseCommand):
    """Print what a model would read of the tool's result."""

    help = "Calls a tool as USER and prints what a model would read. Without a tool it lists those of USER."
    requires_system_checks = ()

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare the tool, its arguments and the caller."""
        parser.add_argument("tool", nargs="?", help="name of the tool, such as query_records")
        parser.add_argument("arguments", nargs="*", metavar="KEY=VALUE", help="JSON, or plain text where it is none")
        parser.add_argument("--user", default=None, help="the name with which the user signs in; default: a superuser")
        parser.add_argument("--scope", nargs="+", default=None, help="default: what clients are asked to request")
        parser.add_argument("--site", default=None, help="name of an MCPSite that urls.py mounts")

    def handle(self, *args: Any, tool: str | None, arguments: list[str], user: str | None, **options: Any) -> None:
        """Call the tool, or list the tools."""
        scopes = find_scopes(options["scope"], {*oauth2_settings.SCOPES, *HIERARCHY})
        site = find_site(options["site"])
        person = find_superuser() if user is None else find_user(user)
        client = LocalClient(site, person, scopes)
        try:
            tools = {item["name"]: item for item in client.request("tools/list")["tools"]}
            if tool is None:
                lines = (f"{name:<40} {first_line(item.get('description', ''))}" for name, item in tools.items())
                self.stdout.write("\n".join(lines) or f"{person} has no tools.")
                return
            if tool not in tools:
                hidden = {item.name: item.reason for item in look(site, person, scopes).missing_tools}
                if tool in hidden:
                    raise CommandError(f"{person} has no tool {tool!r}: {hidden[tool]}")
                there = ", ".join(tools) or "none"
                raise CommandError(f"There is no tool {tool!r}. There are: {there}.{nearest(tool, tools)}")
            given = read_arguments(arguments, tools[tool]["inputSchema"].get("properties", {}))
            result = client.request("tools/call", name=tool, arguments=given)
        except Refused as refused:
            raise CommandError(str(refused)) from None
        text = "\n".join(block["text"] for block in result["content"] if block["type"] == "text")
        if result.get("isError"):
            raise CommandError(text)
        self.stdout.write(pretty(text))


def first_line(text: str) -> str:
    """Return the first line of a description."""
    return text.strip().partition("\n")[0]


def read_arguments(pairs: Iterable[str], properties: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a tool whose schema has ``properties``, from ``key=value`` pairs."""
    found: dict[str, Any] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or key in found:
            raise CommandError(f"Write each argument once, as key=value: {pair!r} is not that.")
        found[key] = text if properties.get(key, {}).get("type") == "string" else value_of(text)
    return found


def value_of(text: str) -> Any:
    """Return the value that the text is as JSON, a number or a truth value too, or the text."""
    try:
        return json.loads(text)
    except ValueError:
        return text


def pretty(text: str) -> str:
    """Return JSON with one member a line, and other text as it is."""
    value = value_of(text)
    return text if isinstance(value, str) else json.dumps(value, indent=1, ensure_ascii=False)
