"""URLs of the authorization server: ``path("", include("mcp_django.oauth.urls"))``, at the root, where clients look.

The endpoints answer with and without a trailing slash: a redirect would lose the body of a POST.
"""

from django.urls import include, path, re_path

from ..conf import require_apps

# Without these apps, the next import fails and says neither why nor what to do.
require_apps("mcp_django.oauth.urls", "mcp_django", "oauth2_provider")

from . import views  # noqa: E402
from .access_page import AccessView  # noqa: E402
from .client_registration import register  # noqa: E402
from .well_known_metadata import CATALOGS, DOCUMENTS, catalog, well_known  # noqa: E402

DOCUMENT = "(?P<name>" + "|".join(DOCUMENTS) + ")"
# Line ends too: without them, such a path would get the project's HTML page for 404.
ANYTHING = r"[\s\S]"

authorize = views.ConsentView.as_view()
token = views.TokenView.as_view()
revoke = views.RevokeView.as_view()

endpoints = [
    path("authorize/", authorize, name="authorize"),
    path("authorize", authorize),
    path("token/", token, name="token"),
    path("token", token),
    path("revoke_token/", revoke, name="revoke-token"),
    path("revoke_token", revoke),
    path("register/", register, name="register"),
    path("register", register),
    path("access/", AccessView.as_view(), name="access"),
    path("sign_out/", views.sign_out, name="sign-out"),
    path("authorized_tokens/", views.TokenListView.as_view(), name="authorized-token-list"),
    path("authorized_tokens/<int:pk>/delete/", views.TokenDeleteView.as_view(), name="authorized-token-delete"),
]

urlpatterns = [
    path("oauth/", include((endpoints, "mcp_oauth"))),
    *(path(f".well-known/{name}", catalog, {"name": name}) for name in CATALOGS),
    re_path(rf"^\.well-known/{DOCUMENT}(?P<path>/{ANYTHING}*)?\Z", well_known),
    re_path(rf"^(?P<path>{ANYTHING}+)/\.well-known/{DOCUMENT}/?\Z", views.appended_well_known),
]
