"""``manage.py mcp_token``: a bearer token for clients that cannot open a browser."""

from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from oauth2_provider.settings import oauth2_settings

from ...oauth.resource import canonical, endpoints, origin, resource_url
from ...oauth.tokens import create_token
from ..accounts import find_scopes, find_user


class Command(BaseCommand):
    """Print a token on standard output, and nothing else there."""

    help = "Prints a bearer token with which a client acts as USER. Revoke it in the admin, under access tokens."

    def add_arguments(self, parser: CommandParser) -> None:
        """Declare user, scopes, days and resource."""
        parser.add_argument("user", metavar="USER", help="the name with which the user signs in")
        parser.add_argument("--scope", nargs="+", default=None, help="default: what clients are asked to request")
        parser.add_argument("--days", type=int, default=30, help="days until the token expires (default 30)")
        parser.add_argument("--resource", help="URL or path of one endpoint (default: all that are mounted)")

    def handle(self, *args: Any, user: str, days: int, resource: str | None, **options: Any) -> None:
        """Create the token.

        Raises:
            CommandError: the user, a scope, the number of days or the resource is not acceptable.
        """
        if days < 1:
            raise CommandError("--days must be at least 1.")
        person, scopes = find_user(user), find_scopes(options["scope"], oauth2_settings.SCOPES)
        bound = _resources(resource)
        token, raw = create_token(person, scopes=scopes, resources=bound, days=days)
        until = f"{token.expires:%Y-%m-%d %H:%M %Z}".rstrip()
        self.stderr.write(f"{person} may use {' '.join(bound)} with {' '.join(scopes)} until {until}.")
        self.stderr.write(f"The token is not shown again. In the admin it is access token {token.pk}.")
        self.stdout.write(raw)


def _resources(asked: str | None) -> list[str]:
    """Return the endpoints that the token is for, by URL."""
    try:
        base = origin(None)
    except ImproperlyConfigured:
        raise CommandError('Set MCP_DJANGO["BASE_URL"]: a token is bound to the URL of the endpoint.') from None
    mounted = [resource_url(None, path) for path in endpoints()]
    if asked is None:
        found = mounted
    else:
        url = base + asked if asked.startswith("/") else asked
        known = canonical(None, url)
        found = [] if known is None else [known]
    if not found:
        raise CommandError(f"No such endpoint. Mounted are: {' '.join(mounted) or 'none'}.")
    return found
