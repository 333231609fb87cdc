import pytest
from django.urls import Resolver404, resolve, reverse


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("authorize", "/oauth/authorize/"),
        ("token", "/oauth/token/"),
        ("revoke-token", "/oauth/revoke_token/"),
        ("register", "/oauth/register/"),
        ("authorized-token-list", "/oauth/authorized_tokens/"),
    ],
)
def test_names(name: str, path: str) -> None:
    assert reverse(f"mcp_oauth:{name}") == path


@pytest.mark.parametrize("path", ["authorize", "token", "revoke_token", "register"])
def test_endpoints_are_there_with_and_without_the_slash(path: str) -> None:
    assert resolve(f"/oauth/{path}").func == resolve(f"/oauth/{path}/").func


@pytest.mark.parametrize("path", ["introspect/", "applications/", "device-authorization/", "userinfo/", "register/x/"])
def test_nothing_else_of_the_toolkit_is_mounted(path: str) -> None:
    with pytest.raises(Resolver404):
        resolve(f"/oauth/{path}")


def test_other_paths_are_left_to_the_project() -> None:
    for path in (
        "/.well-known/security.txt",
        "/.well-known/oauth-protected-resourceful",
        "/x.well-known/openid-configuration",
    ):
        with pytest.raises(Resolver404):
            resolve(path)
