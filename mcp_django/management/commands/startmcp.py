"""``manage.py startmcp``: a first ``mcp.py`` for an app, from its models, and texts for coding agents."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from django.apps import apps
from django.contrib.auth import get_user_model
from django.core.management.base import BaseCommand, CommandError, CommandParser
from django.db import DatabaseError, models

from ...context.request import local_request
from ...emulation.admin_exposure import AdminExposure
from ...schema.secrets import is_withheld
from ...sites import site
from ..command_arguments import no_tables

LINE: Final = 100
# Where coding agents look, and the text that is written there. The folder of skills is that of https://agentskills.io.
AGENT_FILES: Final = {"AGENTS.md": "AGENTS.md", ".agents/skills/django-mcp/SKILL.md": "SKILL.md"}
AGENT_TEXTS: Final = Path(__file__).resolve().parent.parent / "agents"
HEAD: Final = '''"""What MCP clients see of {app}. Every line is a proposal: delete what models must not see."""

import mcp_django as mcp

from .models import {names}
'''


class Command(BaseCommand):
    """Write the first ``mcp.py`` of an app, or texts for coding agents, or print them."""

    help = (
        "Writes a first mcp.py into the app's directory: an exposure for each of its models. --agents writes AGENTS.md "
        "and a skill for coding agents into this directory."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("app", nargs="?", help="label of an installed app, such as shop")
        parser.add_argument("--agents", action="store_true", help="write what coding agents need to know of mcp.py")
        parser.add_argument("--dry-run", action="store_true", help="print the files instead of writing them")

    def handle(self, *args: Any, app: str | None, agents: bool, dry_run: bool, **options: Any) -> None:
        if not (app or agents):
            raise CommandError("Name an app, or write --agents.")
        texts: dict[Path, str] = {}
        if app:
            texts |= _exposures(app)
        if agents:
            texts |= {
                Path.cwd() / place: (AGENT_TEXTS / name).read_text("utf-8") for place, name in AGENT_FILES.items()
            }
        if dry_run:
            self.stdout.write("\n".join(texts.values()), ending="")
            return
        # A file that is there keeps none of the others from being written.
        present = [path for path, text in texts.items() if not self._write(path, text)]
        if present:
            are = "is" if len(present) == 1 else "are"
            places = ", ".join(map(str, present))
            raise CommandError(f"{places} {are} there already. --dry-run prints what would be written.")

    def _write(self, path: Path, text: str) -> bool:
        """Write a new file; return False if there is one already."""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
        except FileExistsError:
            return False
        except OSError as error:
            raise CommandError(str(error)) from None
        then = "Read it, then run: manage.py check" if path.suffix == ".py" else "Read it, and add what is your own."
        self.stdout.write(self.style.SUCCESS(f"Written to {path}. {then}"))
        return True


def _exposures(app: str) -> dict[Path, str]:
    """Return the path and the source of an app's ``mcp.py``."""
    try:
        config = apps.get_app_config(app)
    except LookupError as error:
        raise CommandError(str(error)) from None
    app_models = [model for model in config.get_models() if model.__module__.startswith(f"{config.name}.models")]
    if not app_models:
        raise CommandError(f"The app {app!r} has no models of its own.")
    text = source(config.name, sorted(app_models, key=lambda model: model.__name__))
    return {Path(config.path) / "mcp.py": text}


def source(app: str, found: Iterable[type[models.Model]]) -> str:
    """Return the source of an app's ``mcp.py`` for these models; ``app`` is its dotted name."""
    found = list(found)
    names = ", ".join(model.__name__ for model in found)
    if len(names) > LINE - 30:
        names = "(\n    " + ",\n    ".join(model.__name__ for model in found) + ",\n)"
    return "\n\n".join([HEAD.format(app=app, names=names).rstrip("\n") + "\n", *map(_exposure, found)])


def _exposure(model: type[models.Model]) -> str:
    """Return the source of a model's class: from its ``ModelAdmin`` if it has one, else from its fields."""
    shown = [field for field in _fields(model) if not is_withheld(field.name, model)]
    model_admin = site.admin_site._registry.get(model) if site.admin_site is not None else None
    base = "ModelExposure" if model_admin is None else "AdminExposure"
    lines = [f"@mcp.register({model.__name__})", f"class {model.__name__}Exposure(mcp.{base}):"]
    lines += _listed("fields", [field.name for field in shown] if model_admin is None else _shown_by(model_admin))
    if model_admin is None:
        texts = [field for field in shown if isinstance(field, models.CharField) and not field.choices]
        lines += _listed("search_fields", [field.name for field in texts])
        lines += _filters(shown)
        if not model._meta.ordering:
            is_simple = len(model._meta.pk_fields) == 1
            lines.append(f'    ordering = ["-{model._meta.pk.name}"]' if is_simple else "    ordering = []")
    left_out = [field.name for field in _fields(model) if field not in shown]
    if left_out:
        reason = "they give rights or their names look like secrets"
        lines.append(f"    # Left out, because {reason}: {', '.join(left_out)}")
    return "\n".join(lines) + "\n"


def _shown_by(model_admin: Any) -> list[str]:
    """Return the names of the fields that the admin shows a superuser; there need not be one yet."""
    request = local_request(site)
    request.user = get_user_model()()
    vars(request.user).update(is_active=True, is_staff=True, is_superuser=True)
    try:
        names = AdminExposure(model_admin.model, site, model_admin).get_fields(request)
    except DatabaseError as error:
        raise no_tables(error) from None
    return [name for name in names if name != "pk"]


def _fields(model: type[models.Model]) -> list[Any]:
    opts = model._meta
    return [field for field in (*opts.concrete_fields, *opts.many_to_many) if not getattr(field, "parent_link", False)]


def _filters(fields: Iterable[Any]) -> list[str]:
    """Return ``filter_fields``: choices and relations by value, dates and numbers by range."""
    filters = {}
    for field in fields:
        if field.is_relation or field.choices or isinstance(field, models.BooleanField):
            filters[field.name] = ["exact", "in"] if field.choices else ["exact"]
        elif isinstance(field, models.DateField):
            filters[field.name] = ["gte", "lt"]
        elif isinstance(field, (models.IntegerField, models.DecimalField, models.FloatField)) and not field.primary_key:
            filters[field.name] = ["gte", "lte"]
    if not filters:
        return []
    body = [f"        {_quoted(name)}: [{', '.join(map(_quoted, lookups))}]," for name, lookups in filters.items()]
    return ["    filter_fields = {", *body, "    }"]


def _listed(name: str, values: list[str]) -> list[str]:
    line = f"    {name} = [{', '.join(map(_quoted, values))}]"
    if not values:
        return []
    if len(line) <= LINE:
        return [line]
    return [f"    {name} = [", *(f"        {_quoted(value)}," for value in values), "    ]"]


def _quoted(text: str) -> str:
    return f'"{text}"'
