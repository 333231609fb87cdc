from typing import Any

import pytest
from django.utils.module_loading import import_string

from mcp_django.oauth.program_grants import PROGRAM_GRANTS


@pytest.mark.parametrize("name", PROGRAM_GRANTS)
def test_a_grant_is_enabled_by_its_setting_and_names_the_function_that_issues_its_tokens(
    settings: Any, name: str
) -> None:
    grant = PROGRAM_GRANTS[name]
    provider = {"issuer": "https://idp.example", "jwks_uri": "https://idp.example/keys", "clients": ["a"]}
    values = {"SERVICE_ACCOUNTS": True, "IDENTITY_PROVIDERS": [provider]}
    assert callable(import_string(grant.function))
    assert not grant.is_enabled
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, grant.setting: values[grant.setting]}
    assert grant.is_enabled
