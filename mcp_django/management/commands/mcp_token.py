"""``manage.py mcp_token``: a bearer token for clients that cannot open a browser."""

import json
from typing import Any, Final

from django.core.management.base import CommandError, CommandParser
from django.db.models import QuerySet
from oauth2_provider.settings import oauth2_settings

from ...conf import settings
from ...context.request import MCPContext
from ...oauth.resource_urls import endpoints, named_resource, resource_url
from ...oauth.stored_tokens import create_token, facts_of_many, own_tokens
from ..command_arguments import TableCommand, find_scopes, find_user

# The fact about a token that is its name.
NAME: Final = "name"


class Command(TableCommand):
    """Create a bearer token and print it, and nothing else; list the tokens so made, or revoke one."""

    help = "Prints a bearer token with which a client acts as USER. --list shows earlier ones, --revoke ends one."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("user", metavar="USER", nargs="?", help="the name with which the user signs in")
        parser.add_argument("--name", default="", help="what the token is for, as --list shows it")
        parser.add_argument(
            "--list", action="store_true", dest="lists", help="show the tokens of USER, or of everybody"
        )
        parser.add_argument("--json", action="store_true", dest="as_json", help="print the list as JSON")
        parser.add_argument("--revoke", type=int, metavar="ID", help="end the token with the id that --list shows")
        parser.add_argument("--scope", nargs="+", default=None, help="default: what clients are asked to request")
        parser.add_argument("--days", type=int, default=30, help="days until the token expires (default 30)")
        parser.add_argument("--resource", help="URL or path of one endpoint (default: all that are mounted)")
        parser.add_argument(
            "--confirm-by-token",
            action="store_true",
            help="for programs without a person: calls are confirmed by confirm_token, never by a question",
        )

    def handle(self, *args: Any, user: str | None, **options: Any) -> None:
        if options["revoke"] is not None:
            self.revoke(options["revoke"])
        elif options["lists"]:
            tokens = own_tokens().filter(user=find_user(user)) if user else own_tokens()
            self.show(tokens, as_json=options["as_json"])
        elif user is None:
            raise CommandError("Name the user that the token acts as.")
        else:
            self.create(user, **options)

    def show(self, tokens: QuerySet[Any], *, as_json: bool) -> None:
        """Print the tokens, those that expire last first."""
        listed = list(tokens.select_related("user").order_by("-expires", "-pk"))
        facts = facts_of_many(token.token_checksum for token in listed)
        if as_json:
            rows = [
                {
                    "id": token.pk,
                    "user": str(token.user),
                    "scopes": token.scope.split(),
                    "resources": token.resource,
                    "expires": token.expires.isoformat(),
                    "name": facts.get(token.token_checksum, {}).get(NAME, ""),
                }
                for token in listed
            ]
            self.stdout.write(json.dumps(rows, indent=1, ensure_ascii=False))
            return
        if not listed:
            self.stderr.write("This command has not made any tokens.")
        for token in listed:
            name = facts.get(token.token_checksum, {}).get(NAME, "")
            until = "expired" if token.is_expired() else f"until {token.expires:%Y-%m-%d %H:%M %Z}".rstrip()
            row = [str(token.pk), str(token.user), token.scope, " ".join(token.resource), until, name]
            self.stdout.write("  ".join(part for part in row if part))

    def revoke(self, pk: int) -> None:
        """Revoke one token."""
        token = own_tokens().filter(pk=pk).first()
        if token is None:
            raise CommandError(f"There is no token {pk}. --list shows the others.")
        token.revoke()
        self.stderr.write(f"The token {pk} of {token.user} is revoked.")

    def create(self, user: str, *, days: int, resource: str | None, name: str, **options: Any) -> None:
        """Create a token and print it."""
        if days < 1:
            raise CommandError("--days must be at least 1.")
        person = find_user(user)
        scopes = find_scopes(options["scope"], oauth2_settings.SCOPES)
        if not settings.BASE_URL:
            raise CommandError('Set MCP_DJANGO["BASE_URL"]: a token is bound to the URL of the endpoint.')
        mounted = [resource_url(None, path) for path in endpoints()]
        bound = mounted
        if resource is not None:
            endpoint = named_resource(resource)
            bound = [] if endpoint is None else [endpoint]
        if not bound:
            raise CommandError(f"No such endpoint. Mounted are: {' '.join(mounted) or 'none'}.")
        facts: dict[str, Any] = {}
        if options["confirm_by_token"]:
            facts[MCPContext.CONFIRM_BY_TOKEN] = True
        if name:
            facts[NAME] = name
        token, raw = create_token(person, scopes=scopes, resources=bound, days=days, facts=facts)
        until = f"{token.expires:%Y-%m-%d %H:%M %Z}".rstrip()
        self.stderr.write(f"{person} can use {' '.join(bound)} with {' '.join(scopes)} until {until}.")
        self.stderr.write(f"The token is not shown again. It is token {token.pk}: --revoke {token.pk} ends it.")
        self.stdout.write(raw)
