"""The access page, which shows a user what an AI model would reach as them; the consent page has its figures."""

import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from django.apps import apps
from django.contrib.auth.mixins import LoginRequiredMixin
from django.http import HttpRequest
from django.views.generic import TemplateView

from ..conf import settings
from ..context.request import MCPRequest, local_request
from ..orm.access import access_of
from ..routing import ENDPOINTS
from ..scopes import default_scopes, expand
from ..signin import SignIn
from ..tools.model_overview import Overview
from .resource_urls import resource_url

if TYPE_CHECKING:
    from ..sites import MCPSite

from .page_frame import PageMixin

logger = logging.getLogger("mcp_django")


class AccessView(PageMixin, LoginRequiredMixin, TemplateView):
    """The page of the models, fields and tools that an AI model would reach as the signed-in user."""

    template_name = "mcp_django/access.html"

    def get_context_data(self, **kwargs: Any) -> dict[str, Any]:
        """Return the context of the page: the tools and models of each endpoint."""
        endpoints = []
        for path, site in ENDPOINTS.by_path().items():
            if view := seen_by(self.request, site):
                endpoints.append({"url": resource_url(self.request, path), **view})
        return super().get_context_data(endpoints=endpoints, page="access", **kwargs)


def seen_by(request: HttpRequest, site: "MCPSite") -> dict[str, list[Any]]:
    """Return the tools and models that an AI model would see at an endpoint as the user."""
    if site.needs_middleware:
        return {}
    asked = _asked(request, site)
    return {"tools": [tool.name for tool in site.get_tools(asked)], "models": list(_models(asked))}


def _asked(request: HttpRequest, site: "MCPSite") -> MCPRequest:
    """Return a request that an AI model would make as the signed-in user."""
    asked = local_request(site)
    asked.mcp.facts = SignIn(request).facts()
    SignIn(asked).act_as(request.user, expand(default_scopes()))
    return asked


def _models(asked: MCPRequest) -> Iterator[dict[str, Any]]:
    """Yield the models, each with the fields and permissions that an AI model would reach."""
    for model in access_of(asked).models:
        exposure = model.exposure
        allowed = {*Overview(model).may.split()} - {"view"}
        yield {
            "label": exposure.label,
            "name": exposure.opts.verbose_name_plural,
            "fields": model.fields,
            "is_writable": bool(allowed),
            "is_changeable": bool(allowed - {"delete"}),
            "is_deletable": "delete" in allowed,
            "actions": 0 if settings.READ_ONLY else len(model.actions),
        }


def reach_of(request: HttpRequest, sites: "Iterable[MCPSite]") -> dict[str, Any] | None:
    """Return how many models, fields and actions an AI model would reach, for the consent page.

    None if it cannot be computed: there is no site, a site needs middleware of its own, or a hook of the project fails.
    """
    mounted = list(sites)
    if not mounted or any(site.needs_middleware for site in mounted):
        return None
    try:
        models = [model for site in mounted for model in _models(_asked(request, site))]
    except Exception as error:
        logger.error("What an application can reach cannot be counted", exc_info=error)
        return None
    by_app: dict[str, dict[str, str]] = {}
    for model in models:
        by_app.setdefault(model["label"].partition(".")[0], {})[model["label"]] = str(model["name"])
    return {
        "models": len(models),
        "fields": sum(len(model["fields"]) for model in models),
        "changeable": sum(model["is_changeable"] for model in models),
        "deletable": sum(model["is_deletable"] for model in models),
        "actions": sum(model["actions"] for model in models),
        "apps": [
            {"label": label, "name": getattr(apps.app_configs.get(label), "verbose_name", label), "models": names}
            for label, names in sorted(by_app.items())
        ],
    }
