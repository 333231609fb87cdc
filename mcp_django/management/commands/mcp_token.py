"""``manage.py mcp_token``: a bearer token for clients that cannot open a browser."""

from typing import Any

from django.contrib.auth import get_user_model
from django.core.exceptions import ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from oauth2_provider.settings import oauth2_settings

from ...oauth.resource import endpoints, origin, resource_url, same_resource
from ...oauth.scopes import default_scopes, join
from ...oauth.tokens import create_token


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
        person = _user(user)
        scopes = join(options["scope"] or default_scopes())
        unknown = sorted(set(scopes.split()) - set(oauth2_settings.SCOPES))
        if unknown:
            raise CommandError(f"No such scope: {', '.join(unknown)}. There are {join(oauth2_settings.SCOPES)}.")
        bound = _resources(resource)
        token, raw = create_token(person, scopes=scopes.split(), resources=bound, days=days)
        until = f"{token.expires:%Y-%m-%d %H:%M %Z}".rstrip()
        self.stderr.write(f"{person} may use {' '.join(bound)} with {scopes} until {until}.")
        self.stderr.write(f"The token is not shown again. In the admin it is access token {token.pk}.")
        self.stdout.write(raw)


def _user(name: str) -> Any:
    model = get_user_model()
    try:
        person = model._default_manager.get_by_natural_key(name)
    except model.DoesNotExist:
        raise CommandError(f"There is no user {name!r}.") from None
    if not person.is_active:
        raise CommandError(f"The user {name!r} is not active.")
    return person


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
        found = [known for known in mounted if same_resource(known, url)]
    if not found:
        raise CommandError(f"No such endpoint. Mounted are: {' '.join(mounted) or 'none'}.")
    return found
