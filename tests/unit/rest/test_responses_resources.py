import json

import pytest
from rest_framework.response import Response

from mcp_django.testing import MCPError
from tests.factories import make_superuser, make_user
from tests.restapp import views
from tests.restapp.calls import fresh_site, make_order, mcp, rest
from tests.restapp.filters import FilteredViewSet
from tests.restapp.models import Client, Item
from tests.tool_calls import call, request_of

pytestmark = [
    pytest.mark.postgresql,
    pytest.mark.one_server,
    pytest.mark.django_db,
    pytest.mark.urls("tests.restapp.urls"),
]


@pytest.fixture
def ann():
    return make_user("ann", staff=False)


def read(user, uri):
    (found,) = mcp(user).read(uri)
    assert found["uri"] == uri
    assert found["mimeType"] == "application/json"
    return json.loads(found["text"])


def missing(user, uri):
    with pytest.raises(MCPError) as error:
        mcp(user).read(uri)
    return str(error.value).replace(uri, "URI")


def test_lists_and_rows_are_resources(ann):
    listed = [item["uri"] for item in mcp(ann).request("resources/list")["resources"]]
    templates = [item["uriTemplate"] for item in mcp(ann).request("resources/templates/list")["resourceTemplates"]]
    assert {"rest://orders", "rest://clock"} <= {*listed}
    assert "rest://clients" not in listed
    assert {
        "rest://orders{?search,ordering,page,page_size}",
        "rest://orders/{pk}",
        "rest://items/{order_pk}{?cursor}",
        "rest://items/{order_pk}/{pk}",
    } <= {*templates}


def test_a_row_is_what_rest_clients_get(ann):
    order = make_order(ann, "A1")
    assert read(ann, f"rest://orders/{order.pk}") == rest(ann, "get", f"orders/{order.pk}/").json()


def test_pages_name_the_next_down_to_the_last(ann):
    for number in range(5):
        make_order(ann, f"A{number}")
    uri, found = "rest://orders?search=A", []
    for _ in range(4):
        page = read(ann, uri)
        found += [row["number"] for row in page["results"]]
        uri = page.get("next")
        if uri is None:
            break
    assert found == ["A0", "A1", "A2", "A3", "A4"]
    assert page["previous"] == "rest://orders?search=A&page=2"


def test_keys_are_encoded_in_links_and_read_back(ann):
    root = make_superuser()
    for name in ("Zoe & Söhne?", "Ärger"):
        Client.objects.create(name=name)
    assert read(root, "rest://clients/Zoe%20%26%20S%C3%B6hne%3F")["name"] == "Zoe & Söhne?"
    order = make_order(ann, "A1")
    for name in ("a", "b", "c"):
        Item.objects.create(order=order, name=name)
    page = read(ann, f"rest://items/{order.pk}")
    assert [row["name"] for row in read(ann, page["next"])["results"]] == ["c"]


def test_row_125_hidden_forbidden_and_missing_rows_are_one_answer(ann):
    hidden = make_order(make_user("bob"), "hidden1")
    Client.objects.create(name="Zoe")
    answers = {
        missing(ann, uri)
        for uri in (
            f"rest://orders/{hidden.pk}",
            "rest://orders/999999",
            "rest://orders/a.b",
            "rest://orders/1/2",
            "rest://clients/Zoe",
            "rest://clients",
            "rest://nonsense",
            "rest://orders?secret=1",
        )
    }
    assert len(answers) == 1


def test_row_112_a_page_cannot_be_ordered_by_what_is_hidden(ann):
    assert missing(ann, "rest://orders?ordering=secret") == missing(ann, "rest://orders?ordering=secrex").replace(
        "secrex", "secret"
    )


def test_a_name_that_no_template_can_have_is_an_argument_of_the_tool_alone(ann):
    odd = {name: {"type": "string"} for name in ("from", "request", "größe", "a-b", "fine")}
    site = fresh_site("clock", views.ClockViewSet, parameters={"list": odd})
    assert [uri for uri in site.resources if "{" in uri] == ["rest://clock{?fine}"]
    assert call(site._tools["list_clock"], request_of(ann, site), **{"from": "x"})["query"] == {"from": "x"}


def test_links_of_the_projects_own_pages_are_uris(ann):
    class Own(views.Pages):
        def get_paginated_response(self, data):
            links = {"next": self.get_next_link(), "prev": self.get_previous_link()}
            return Response({"links": links, "rows": data})

    class Paged(views.OrderViewSet):
        pagination_class = Own

    for number in range(3):
        make_order(ann, f"A{number}")
    site = fresh_site("orders", Paged)
    resource = site.resources["rest://orders{?search,ordering,page,page_size}"]
    (found,) = resource.read(request_of(ann, site), "rest://orders?search=A")
    page = json.loads(found["text"])
    assert page["next"] == "rest://orders?search=A&page=2"
    assert len(page["rows"]) == 2
    (found,) = resource.read(request_of(ann, site), page["next"])
    assert json.loads(found["text"])["prev"] == "rest://orders?search=A"


def test_what_depends_on_the_caller_is_no_reason_to_fail(django_assert_num_queries):
    with django_assert_num_queries(0):
        site = fresh_site("filtered", FilteredViewSet)
    uris = [uri for uri in site.resources if uri.startswith("rest://filtered{")]
    assert uris == ["rest://filtered{?locked,status,client,total_min,total_max,number,note}"]
    # This one asks the request for its rows.
    site = fresh_site(r"o/(?P<order_pk>\d+)/items", views.ItemViewSet, "item", name="items")
    assert list(site.resources) == ["rest://items/{order_pk}{?cursor}", "rest://items/{order_pk}/{pk}"]
