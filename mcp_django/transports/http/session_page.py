"""What pages at the address of an endpoint have in common: they know a person by the session of a browser alone."""

from typing import Any

from django.contrib.auth import get_user
from django.contrib.auth.mixins import LoginRequiredMixin
from django.contrib.auth.models import AnonymousUser
from django.http import HttpRequest
from django.views.generic.base import TemplateResponseMixin, View

from ...oauth.page_frame import PageMixin


class SessionPage(PageMixin, LoginRequiredMixin, TemplateResponseMixin, View):
    """A page for a person who has signed in to the site; everybody else is sent to its login page.

    ``site`` is the ``MCPSite`` below whose endpoint the page is. Decorate subclasses with ``login_not_required``: they
    send to the login page themselves, also those whom a middleware would let pass.
    """

    site: Any = None

    def setup(self, request: HttpRequest, *args: Any, **kwargs: Any) -> None:
        """Take the user of the session, whatever middleware has made of other credentials."""
        super().setup(request, *args, **kwargs)
        is_bearer = request.META.get("HTTP_AUTHORIZATION", "").strip().lower().startswith("bearer")
        request.user = AnonymousUser()
        if not is_bearer and hasattr(request, "session"):
            request.user = get_user(request)
