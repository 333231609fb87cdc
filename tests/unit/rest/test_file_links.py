"""Files in answers of ViewSets are reached through the endpoint, or not at all."""

from posixpath import basename
from typing import Any

import pytest
from django.core.files.base import ContentFile
from rest_framework import permissions, serializers, viewsets
from rest_framework.decorators import action
from rest_framework.response import Response

from mcp_django import MCPSite, ModelExposure
from tests.factories import make_superuser
from tests.fileapp.models import Manual, Page
from tests.restapp.calling import fresh_site
from tests.writing import call, request_of

pytestmark = [pytest.mark.django_db, pytest.mark.urls("tests.restapp.urls")]


class PageSerializer(serializers.ModelSerializer):
    class Meta:
        model = Page
        fields = ["number", "scan"]


class ManualSerializer(serializers.ModelSerializer):
    pages = PageSerializer(many=True)

    class Meta:
        model = Manual
        fields = ["id", "title", "file", "note", "pages"]


class ManualViewSet(viewsets.ReadOnlyModelViewSet):
    queryset = Manual.objects.order_by("pk")
    serializer_class = ManualSerializer
    permission_classes = [permissions.AllowAny]

    @action(detail=False)
    def made(self, request: Any) -> Response:
        """Serialized by hand, below a name of its own."""
        context = {"request": request}
        return Response({"manuals": [ManualSerializer(row, context=context).data for row in self.queryset.all()]})


class NamedExposure(ModelExposure):
    fields = ["title", "file"]


def manual_site(exposed: bool) -> MCPSite:
    site = fresh_site("manuals", ManualViewSet)
    if exposed:
        site.register(Manual, NamedExposure)
    return site


@pytest.fixture
def manual() -> Manual:
    made = Manual.objects.create(title="a", file=ContentFile(b"x", "a.pdf"), note=ContentFile(b"x", "n.txt"))
    Page.objects.create(manual=made, number=1, scan=ContentFile(b"x", "s.txt"))
    Page.objects.create(manual=made, number=2)
    return made


def shown(site: MCPSite, tool: str, resource: str = "", **arguments: Any) -> dict[str, Any]:
    request = request_of(make_superuser(), site, resource=resource)
    return call(site.get_tool(request, tool), request, **arguments)


@pytest.mark.parametrize("exposed", [True, False])
def test_no_url_of_the_storage_is_shown(manual: Manual, exposed: bool) -> None:
    site = manual_site(exposed)
    [row] = shown(site, "list_manuals")["results"]
    assert row["file"] == (f"django://fileapp/manual/{manual.pk}/file" if exposed else basename(manual.file.name))
    assert row["note"] == basename(manual.note.name)
    assert [page["scan"] for page in row["pages"]] == [basename(manual.pages.get(number=1).scan.name), None]


def test_a_link_of_the_endpoint_leads_to_the_file(manual: Manual, client: Any) -> None:
    row = shown(manual_site(True), "retrieve_manuals", "http://testserver/mcp", pk=manual.pk)
    assert row["file"].startswith("http://testserver/mcp/files/")
    assert "/media/" not in str(row)


def test_what_a_view_serializes_by_hand_has_such_links_too(manual: Manual) -> None:
    rows = shown(manual_site(True), "made_manuals")["manuals"]
    assert rows[0]["file"] == f"django://fileapp/manual/{manual.pk}/file"
