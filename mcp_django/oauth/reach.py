"""Summarise what a model can reach as the signed-in user, for the consent page and a page of its own."""

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.contrib.auth.decorators import login_required
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.cache import never_cache
from django.views.decorators.clickjacking import xframe_options_deny

from ..conf import settings
from ..context.asgi_request import local_request
from ..context.languages import page_language
from ..context.request import MCPRequest
from ..orm.access import caller_actions, visible_exposures, visible_fields
from ..routing import mounted_endpoints
from ..signin import act_as, keep
from ..tools.overviews import may_words
from .frame import frame
from .resource import resource_url
from .scopes import default_scopes, expand, join
from .styles import content_security_policy

if TYPE_CHECKING:
    from ..sites import MCPSite

logger = logging.getLogger("mcp_django")


@never_cache
@xframe_options_deny
@login_required
def access(request: HttpRequest) -> HttpResponse:
    """Show what a model would see that acts as the user who is signed in here."""
    with page_language(request):
        found = [_seen(request, path, site) for path, site in mounted_endpoints().items() if not site.needs_middleware]
        response = render(request, "mcp_django/access.html", {"endpoints": found, **frame(request), "page": "access"})
    response["Content-Security-Policy"] = content_security_policy()
    response["Referrer-Policy"] = "same-origin"
    return response


def _seen(request: HttpRequest, path: str, site: "MCPSite") -> dict[str, Any]:
    asked = _asked(request, site)
    models = list(_models(asked))
    return {
        "url": resource_url(request, path),
        "tools": [tool.name for tool in site.get_tools(asked)],
        "models": models,
    }


def _asked(request: HttpRequest, site: "MCPSite") -> MCPRequest:
    """Return the request of a model that acts as the user who is signed in here."""
    asked = local_request(site)
    asked.mcp.facts = keep(request)
    act_as(asked, request.user, expand(join(default_scopes()).split()))
    return asked


def _models(asked: MCPRequest) -> Iterator[dict[str, Any]]:
    """Yield each model that the caller sees, and what the caller can do with it."""
    for exposure in visible_exposures(asked):
        allowed = {*may_words(asked, exposure).split()} - {"view"}
        yield {
            "label": exposure.label,
            "name": exposure.opts.verbose_name_plural,
            "fields": visible_fields(asked, exposure),
            "is_writable": bool(allowed),
            "is_changeable": bool(allowed - {"delete"}),
            "is_deletable": "delete" in allowed,
            "actions": 0 if settings.READ_ONLY else len(caller_actions(asked, exposure)),
        }


@dataclass(frozen=True, slots=True)
class App:
    """An app of which a model sees something: its label, its name, and by their labels the names of the models."""

    label: str
    name: str
    models: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Reach:
    """How much a model would reach: how many models and fields it sees, and what it can do with them."""

    models: int
    fields: int
    changeable: int
    deletable: int
    actions: int
    apps: tuple["App", ...] = ()


def reach_of(request: HttpRequest, sites: "Iterable[MCPSite]") -> Reach | None:
    """Return what a model would reach at these sites that acts as the user who is signed in here.

    None where it cannot be told: a site needs middleware of its own, or a hook of the project fails.
    """
    found = list(sites)
    if not found or any(site.needs_middleware for site in found):
        return None
    try:
        models = [model for site in found for model in _models(_asked(request, site))]
    except Exception as error:
        logger.error("What an application can reach cannot be counted", exc_info=error)
        return None
    return Reach(
        models=len(models),
        fields=sum(len(model["fields"]) for model in models),
        changeable=sum(model["is_changeable"] for model in models),
        deletable=sum(model["is_deletable"] for model in models),
        actions=sum(model["actions"] for model in models),
        apps=tuple(_by_app(models)),
    )


def _by_app(models: Iterable[Mapping[str, Any]]) -> Iterator[App]:
    found: dict[str, dict[str, str]] = {}
    for model in models:
        found.setdefault(model["label"].partition(".")[0], {})[model["label"]] = str(model["name"])
    for label, names in sorted(found.items()):
        config = apps.app_configs.get(label)
        yield App(label, label if config is None else str(config.verbose_name), names)
