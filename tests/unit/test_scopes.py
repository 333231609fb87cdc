from mcp_django import scopes
from mcp_django.oauth.scopes import HIERARCHY
from mcp_django.oauth.settings import provider_settings


def test_every_scope_has_its_place_and_is_offered():
    named = {getattr(scopes, name) for name in scopes.__all__}
    assert named == set(HIERARCHY) == set(provider_settings()["SCOPES"])
