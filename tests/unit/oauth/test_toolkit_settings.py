import subprocess
import sys

import pytest
from oauth2_provider.settings import DEFAULTS

import mcp_django.oauth
from mcp_django.oauth.toolkit_settings import provider_settings


def test_the_issuer_is_the_base_url_without_a_slash() -> None:
    assert provider_settings(base_url="https://a.example/")["OIDC_ISS_ENDPOINT"] == "https://a.example"
    assert provider_settings()["OIDC_ISS_ENDPOINT"] == ""


def test_overrides_win() -> None:
    assert provider_settings(ACCESS_TOKEN_EXPIRE_SECONDS=60)["ACCESS_TOKEN_EXPIRE_SECONDS"] == 60


def test_every_key_is_one_of_the_toolkit() -> None:
    assert set(provider_settings()) <= set(DEFAULTS)


def test_a_settings_module_can_import_it() -> None:
    code = "from mcp_django.oauth import provider_settings; provider_settings(base_url='https://a.example')"
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True, timeout=60)


def test_the_package_exports_the_settings_alone() -> None:
    assert mcp_django.oauth.__all__ == ["provider_settings"]


@pytest.mark.parametrize("name", ["DCR_ENABLED", "CIMD_ENABLED", "OIDC_ENABLED"])
def test_what_is_not_needed_is_off(name: str) -> None:
    assert provider_settings()[name] is False
