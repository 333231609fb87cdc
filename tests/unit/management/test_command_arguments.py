import pytest
from django.contrib.auth import get_user_model
from django.core.management import CommandError

from mcp_django.management.command_arguments import find_scopes, find_user

KNOWN = ("mcp:read", "mcp:write", "mcp:admin")


@pytest.mark.django_db
def test_a_user_is_found_by_name_and_must_be_active():
    users = get_user_model().objects
    assert find_user(users.create_user("ada").username).username == "ada"
    users.create_user("bob", is_active=False)
    for name, reason in (("bob", "not active"), ("nobody", "no user")):
        with pytest.raises(CommandError, match=reason):
            find_user(name)


def test_scopes_are_those_of_clients_unless_some_are_asked_for(settings):
    assert find_scopes(None, KNOWN) == ["mcp:read", "mcp:write"]
    assert find_scopes(["mcp:admin", "mcp:admin"], KNOWN) == ["mcp:admin"]
    settings.MCP_DJANGO = {**settings.MCP_DJANGO, "READ_ONLY": True}
    assert find_scopes(None, KNOWN) == ["mcp:read"]
    with pytest.raises(CommandError, match="No such scope: everything"):
        find_scopes(["mcp:read", "everything"], KNOWN)
