"""The HTML pages of an endpoint, for people who visit it by browser: how to set up a client, and refusals."""

from collections.abc import Callable, Iterable
from contextlib import suppress
from http import HTTPStatus
from typing import Any

from django.http import HttpRequest
from django.middleware.csrf import get_token
from django.template.loader import render_to_string

from ..context.language import CallerLanguage
from .access_page import seen_by
from .bearer import ProtectedResource
from .page_frame import content_security_policy, copy_script, frame, url_of


class EndpointPage:
    """A page of an endpoint: ``body``, its HTML in the frame of the OAuth pages, and the ``headers`` for it."""

    def __init__(self, body: str, script: str = "") -> None:
        self.body = body.encode()
        self.headers = {"Content-Security-Policy": content_security_policy(script)}

    @classmethod
    def of_set_up(
        cls,
        resource: ProtectedResource,
        set_ups: Callable[[str], Iterable[Any]],
        visitor: HttpRequest | None,
        elsewhere: str | None,
    ) -> "EndpointPage":
        """Return the page that says how to set up clients; ``set_ups`` returns this for the URL of the endpoint.

        ``visitor`` is Django's request of a signed-in person, who sees what a client would see. ``elsewhere`` is the
        origin at which the page was opened, if clients are sent to another.
        """
        with CallerLanguage(resource.request).for_page():
            url = resource.url
            context: dict[str, Any] = {"url": url, "set_ups": list(set_ups(url))}
            context |= {"access": url_of("access"), "elsewhere": elsewhere}
            if visitor is not None:
                context |= {"page": "endpoint", "csrf_token": get_token(visitor)}
                with suppress(Exception):  # hooks are the project's own
                    context["seen"] = seen_by(visitor, resource.request.mcp.site)
            script = copy_script()
            context |= {"script": script, **frame(visitor)}
            return cls(render_to_string("mcp_django/endpoint.html", context), script)

    @classmethod
    def of_refusal(cls, request: HttpRequest, status: int, message: str) -> "EndpointPage":
        """Return the page of an error; the message stays in English, the same text that client programs get."""
        with CallerLanguage(request).for_page():
            context = {"status": status, "phrase": HTTPStatus(status).phrase, "message": message, "script": ""}
            return cls(render_to_string("mcp_django/error.html", {**context, **frame()}))
