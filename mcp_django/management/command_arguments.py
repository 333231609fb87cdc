"""Command line arguments that commands share: user, scope, site, model, endpoint URL."""

from collections.abc import Iterable
from contextlib import suppress
from typing import Any

from django.apps import apps
from django.contrib.auth import get_user_model
from django.core.exceptions import FieldError, ImproperlyConfigured
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError
from django.db.models import Model

from ..oauth.resource_urls import endpoints, resource_url
from ..problems import nearest
from ..routing import mounted_sites
from ..runtime.missing_migrations import MissingTables
from ..scopes import Scope, default_scopes, join
from ..sites import MCPSite
from ..sites import site as default_site


class TableCommand(BaseCommand):
    """A command that reads tables: where they do not exist, it names the missing migrations."""

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Run the command; raise ``CommandError`` with the missing migrations if they are why it fails."""
        try:
            return super().execute(*args, **options)
        except DatabaseError as error:
            if not MissingTables(error).migrations():
                raise
            raise no_tables(error) from None


class CallerCommand(TableCommand):
    """A command with the arguments ``--user``, ``--scope`` and ``--site``."""

    requires_system_checks = ()
    needs_user = False

    def add_arguments(self, parser: CommandParser) -> None:
        help_text = f"the name with which the user signs in{'' if self.needs_user else '; default: a superuser'}"
        parser.add_argument("--user", required=self.needs_user, help=help_text)
        parser.add_argument("--scope", nargs="+", default=None, help="default: what clients are asked to request")
        parser.add_argument("--site", default=None, help="name of an MCPSite that urls.py mounts")

    def find_caller(self, options: dict[str, Any]) -> tuple[MCPSite, Any, list[str]]:
        """Return site, user and scopes."""
        from oauth2_provider.settings import oauth2_settings

        # No token is issued, so scopes that the project's authorization server does not know are valid too.
        scopes = find_scopes(options["scope"], {*oauth2_settings.SCOPES, *Scope.HIERARCHY})
        site = find_site(options["site"])
        user = options["user"]
        return site, find_superuser() if user is None else find_user(user), scopes


def find_user(name: str) -> Any:
    """Return the active user of this name; raise ``CommandError`` if there is none."""
    model = get_user_model()
    try:
        person = model._default_manager.get_by_natural_key(name)
    except model.DoesNotExist:
        raise CommandError(f"There is no user {name!r}.") from None
    except DatabaseError as error:
        raise no_tables(error) from None
    if not person.is_active:
        raise CommandError(f"The user {name!r} is not active.")
    return person


def find_superuser() -> Any:
    """Return the active superuser with the lowest primary key, for a command without ``--user``."""
    model = get_user_model()
    person = None
    with suppress(FieldError):
        try:
            person = model._default_manager.filter(is_superuser=True, is_active=True).order_by("pk").first()
        except DatabaseError as error:
            raise no_tables(error) from None
    if person is None:
        raise CommandError("There is no superuser: run manage.py createsuperuser, or name a user with --user.")
    return person


def no_tables(error: DatabaseError) -> CommandError:
    """Return the error of a command for a database without tables, or with some of them."""
    missing = MissingTables(error).migrations()
    if missing:
        return CommandError(f"The database says: {error}. Not migrated: {missing}: run {MissingTables.REMEDY}.")
    return CommandError(f"The database says: {error}. If it has no tables yet, run {MissingTables.REMEDY}.")


def find_model(label: str) -> type[Model]:
    """Return the model that ``--model`` names, by label or unique name; raise ``CommandError`` if there is none."""
    models = {item._meta.label_lower: item for item in apps.get_models()}
    wanted = label.lower()
    matching = [item for item in models.values() if item._meta.model_name == wanted]
    if wanted not in models and len(matching) != 1:
        raise CommandError(f"The project has no model {label!r}.{nearest(label, models)}")
    return models.get(wanted) or matching[0]


def find_scopes(asked: Iterable[str] | None, known: Iterable[str]) -> list[str]:
    """Return the scopes that ``--scope`` names, or the default scopes; raise ``CommandError`` for an unknown one."""
    scopes = join(asked or default_scopes()).split()
    unknown = sorted(set(scopes).difference(known))
    if unknown:
        raise CommandError(f"No such scope: {', '.join(unknown)}. There are {join(known)}.")
    return scopes


def find_site(name: str | None) -> MCPSite:
    """Return the site that ``--site`` names, without it the default site; raise ``CommandError`` if there is none."""
    sites = {default_site.name: default_site, **{item.name: item for item in mounted_sites()}}
    site = sites.get(name or default_site.name)
    if site is None:
        raise CommandError(f"There is no site {name!r}. There are {', '.join(sorted(sites))}.")
    if site.needs_middleware:
        raise CommandError(f"The site {site.name!r} needs middleware, which does not run here.")
    return site


def endpoint_url(argument: str) -> str:
    """Return the default of a command's ``argument``, such as "--url URL": the endpoint that ``urls.py`` mounts."""
    try:
        urls = [resource_url(None, path) for path in endpoints()]
    except ImproperlyConfigured:
        raise CommandError(f'Set MCP_DJANGO["BASE_URL"], or name the endpoint: {argument}.') from None
    if len(urls) != 1:
        raise CommandError(f"Name one endpoint: {argument}. Mounted are: {' '.join(urls) or 'none'}.")
    return urls[0]
