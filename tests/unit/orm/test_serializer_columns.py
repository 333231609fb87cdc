"""Rows through a DRF serializer: what it fails to make is lost, and the rest is there."""

from typing import Any

import pytest
from rest_framework import serializers

from mcp_django import MCPSite, ModelExposure
from mcp_django.orm.serializer_columns import read_fields, represented, unchanged_fields
from mcp_django.orm.undecodable_values import UNDECODABLE
from tests.testapp.models import Author
from tests.tool_calls import request_of

pytestmark = [pytest.mark.postgresql, pytest.mark.one_server]


class Masked(serializers.CharField):
    """Does not show what is stored."""


class AuthorSerializer(serializers.ModelSerializer):
    email = Masked()
    shouted = serializers.SerializerMethodField()
    renamed = serializers.CharField(source="name")

    def get_shouted(self, author: Author) -> str:
        if author.name == "bad":
            raise ValueError("no")
        return author.name.upper()

    class Meta:
        model = Author
        fields = ("name", "email", "born", "shouted", "renamed", "secret_token")
        extra_kwargs = {"secret_token": {"write_only": True}}


class Plain(serializers.BaseSerializer):
    def to_representation(self, row: Any) -> Any:
        return {"name": row.name} if row.name != "bad" else row.nothing


def exposure_with(serializer: Any) -> ModelExposure:
    return type("Serialized", (ModelExposure,), {"serializer_class": serializer})(Author, MCPSite())


def test_what_is_only_written_is_not_read() -> None:
    exposure = exposure_with(AuthorSerializer)
    assert read_fields(exposure) == ("name", "email", "born", "shouted", "renamed")
    assert unchanged_fields(exposure) == {"name", "born", "secret_token"}


def test_one_field_that_fails_costs_one_value(caplog: pytest.LogCaptureFixture) -> None:
    rows = [Author(name="good"), Author(name="bad", email="x")]
    good, bad = represented(request_of(None), exposure_with(AuthorSerializer), rows)
    assert (good["shouted"], bad["shouted"]) == ("GOOD", UNDECODABLE)
    assert (bad["name"], bad["renamed"], bad["email"], bad["born"]) == ("bad", "bad", "x", None)
    assert "secret_token" not in bad
    assert "testapp.author" in caplog.text


def test_a_serializer_without_fields_loses_the_row(caplog: pytest.LogCaptureFixture) -> None:
    rows = [Author(name="good"), Author(name="bad")]
    assert represented(request_of(None), exposure_with(Plain), rows) == [{"name": "good"}, {}]
    assert "testapp.author" in caplog.text
