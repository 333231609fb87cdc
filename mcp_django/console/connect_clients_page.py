"""The page that says how each client is connected, with the addresses of this site."""

from dataclasses import dataclass
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.http import HttpRequest, HttpResponseBase

from ..oauth.resource_urls import resource_url
from ..routing import mounted_endpoints
from ..transports.client_configs import set_ups
from .console_pages import Page
from .health_checks_page import Finding, reached


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One endpoint: its address, the set-up of each client, and what a check found, None where there was none."""

    url: str
    set_ups: list[dict[str, str]]
    findings: list[Finding] | None


def respond(page: Page, request: HttpRequest) -> HttpResponseBase:
    """Answer with the set-ups; a POST looks whether what clients read first is there."""
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
