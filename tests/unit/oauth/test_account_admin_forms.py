"""The form for a service account: what can be chosen, and how the choice is kept."""

from typing import Any

import pytest

from mcp_django.models import ServiceAccount
from mcp_django.oauth.account_admin import HTTPS, ServiceAccountForm


def choices(form: Any, name: str) -> list[str]:
    return [value for value, _ in form.fields[name].choices]


def test_the_site_says_what_can_be_chosen() -> None:
    form = ServiceAccountForm()
    assert choices(form, "scopes") == ["mcp:read", "mcp:write", "mcp:admin"]
    assert "/mcp" in choices(form, "endpoints")
    assert form.fields["scopes"].initial == ["mcp:read"]


def test_what_an_account_has_can_be_kept() -> None:
    form = ServiceAccountForm(instance=ServiceAccount(scopes=["former"], endpoints=["/former"]))
    assert choices(form, "scopes")[-1] == "former"
    assert choices(form, "endpoints")[-1] == "/former"


@pytest.mark.parametrize(
    ("url", "accepted"),
    [
        ("https://a.example/jwks.json", True),
        ("https://a.example:8443/keys?tenant=1", True),
        ("http://a.example/jwks", False),
        ("https://a.example", False),
        ("https:///jwks", False),
        ("https://user:password@a.example/jwks", False),
        ("https://a.example/\njwks", False),
        ("javascript:https://a.example/jwks", False),
    ],
)
def test_keys_are_published_at_an_https_url(url: str, accepted: bool) -> None:
    assert (HTTPS.fullmatch(url) is not None) is accepted
