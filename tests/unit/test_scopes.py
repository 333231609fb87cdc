from mcp_django import scopes
from mcp_django.oauth.scopes import HIERARCHY
from mcp_django.oauth.settings import provider_settings


def test_every_scope_has_its_place_and_is_offered():
    named = {value for name, value in vars(scopes).items() if name.isupper()}
    assert named == set(HIERARCHY) == set(provider_settings()["SCOPES"])
