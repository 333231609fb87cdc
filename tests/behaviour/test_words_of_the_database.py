"""What triggers of the database say reaches the caller, and an error of the database in a ViewSet says what is left."""

from typing import Any

import pytest
from django.db import connection
from rest_framework import serializers, viewsets

from mcp_django import MCPSite
from mcp_django.server.methods.tools import call_tool
from mcp_django.testing import MCPClient
from tests.factories import make_author, make_superuser
from tests.testapp.models import Author, Tag
from tests.tool_calls import request_of

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db(transaction=True)]
TEXT = "An author's name is final."
TRIGGERS = {
    "mysql": [
        "CREATE TRIGGER final BEFORE UPDATE ON testapp_author FOR EACH ROW "
        "SIGNAL SQLSTATE '45000' SET MESSAGE_TEXT = 'An author''s name is final.'"
    ],
    "sqlite": [
        "CREATE TRIGGER final BEFORE UPDATE ON testapp_author BEGIN "
        "SELECT RAISE(ABORT, 'An author''s name is final.'); END"
    ],
    "postgresql": [
        "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN "
        "RAISE EXCEPTION 'An author''s name is final.' {using}; END $$",
        "CREATE TRIGGER final BEFORE UPDATE ON testapp_author FOR EACH ROW EXECUTE FUNCTION refuse()",
    ],
}
CODES = ["", "USING ERRCODE = 'check_violation'", "USING ERRCODE = '22003'", "USING ERRCODE = '45000'"]


@pytest.mark.parametrize("using", CODES, ids=["plain", "check", "data", "own"])
def test_the_text_that_a_trigger_raises_is_told(using: str) -> None:
    if using and connection.vendor != "postgresql":
        pytest.skip("the codes are PostgreSQL's")
    author = make_author()
    with connection.cursor() as cursor:
        for statement in TRIGGERS[connection.vendor]:
            cursor.execute(statement.replace("{using}", using))
    try:
        client = MCPClient(make_superuser())
        result = client.call("update_record", model="testapp.author", pk=author.pk, values={"name": "new"})
    finally:
        with connection.cursor() as cursor:
            if connection.vendor == "postgresql":
                cursor.execute("DROP TRIGGER final ON testapp_author")
                cursor.execute("DROP FUNCTION refuse")
            else:
                cursor.execute("DROP TRIGGER final")
    assert result.text == f"Nothing was changed: the database says “{TEXT}”"
    assert Author.objects.get().name == author.name


class TagSerializer(serializers.ModelSerializer):
    class Meta:
        model = Tag
        fields = ["id", "name"]
        # As in a race: the name is free when it is validated.
        extra_kwargs = {"name": {"validators": []}}


class TagViewSet(viewsets.ModelViewSet):
    queryset = Tag.objects.order_by("pk")
    serializer_class = TagSerializer

    def perform_create(self, serializer: Any) -> None:
        make_author("before")
        serializer.save()


@pytest.mark.parametrize("atomic", [True, False])
def test_a_constraint_that_a_viewset_breaks_is_no_internal_error(monkeypatch: Any, atomic: bool) -> None:
    monkeypatch.setitem(connection.settings_dict, "ATOMIC_REQUESTS", atomic)
    Tag.objects.create(name="taken")
    site = MCPSite()
    site.register_viewset("tags", TagViewSet)
    request = request_of(make_superuser(), site, scopes=frozenset({"mcp:read", "mcp:write"}))
    [name] = [tool.name for tool in site.get_tools(request) if "create" in tool.name and "tag" in tool.name]
    result: Any = call_tool(request, {"name": name, "arguments": {"name": "taken"}})
    result = result if isinstance(result, dict) else result.work()
    assert result["isError"]
    outcome = "Nothing was changed" if atomic else "It stopped half-way, and what it had done before stays"
    assert result["content"][0]["text"] == f"{outcome}: the values break a constraint of the database."
    assert Author.objects.count() == (not atomic)
