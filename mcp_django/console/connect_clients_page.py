"""The console's page that shows how to connect each MCP client, with this site's URLs."""

from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponseBase

from ..oauth.resource_urls import resource_url
from ..routing import mounted_endpoints
from ..transports.client_configs import set_ups
from .console_pages import Page
from .health_checks_page import CheckResult, reached


@dataclass(frozen=True, slots=True)
class Endpoint:
    """An endpoint to connect clients to: URL, set-up of each client, result of the check (None before the check)."""

    url: str
    set_ups: list[dict[str, str]]
    findings: list[CheckResult] | None


def respond(page: Page, request: HttpRequest) -> HttpResponseBase:
    """Render the page that shows how to connect each client; a POST checks the endpoint and its metadata."""
    context: dict[str, Any] = {"endpoints": [], "fault": ""}
    for path in mounted_endpoints():
        try:
            url = resource_url(request, path)
        except ImproperlyConfigured as error:
            context["fault"] = str(error)
            break
        findings = list(reached(url)) if request.method == "POST" else None
        context["endpoints"].append(Endpoint(url, list(set_ups(url)), findings))
    return page.render(request, context)
