import pytest

from mcp_django.oauth import dot


@pytest.mark.parametrize("name", dot.__all__)
def test_the_names_are_the_toolkits(name: str) -> None:
    assert getattr(dot, name).__module__.startswith("oauth2_provider.")
