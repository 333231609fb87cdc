"""The example project by itself: its data, its accounts, and its admin as people use it."""

import io
import re
import textwrap
from decimal import Decimal
from html import unescape

import pytest
import yaml
from django.apps import apps
from django.conf import settings
from django.contrib.auth import get_user_model
from django.contrib.staticfiles.finders import find
from django.core.management import CommandError, call_command
from django.db import transaction
from django.db.models import F, Sum
from django.test import Client, override_settings
from django.urls import reverse
from django.utils.html import escape
from PIL import Image

if not apps.is_installed("example_project.shop"):
    pytest.skip("needs the settings of the example project", allow_module_level=True)

from evals.shop import quiet
from example_project.places.models import City
from example_project.shop.management.commands.demo import Command as Demo
from example_project.shop.models import Document, Order, PaymentAudit, Product, Shipment, StaffProfile
from example_project.shop.views import ACCOUNTS, QUESTIONS
from mcp_django.testing import MCPClient
from mcp_django.transports.client_configs import CLIENTS, Connection
from tests.schema_walk import check_schemas

pytestmark = pytest.mark.django_db

Status = Order.Status
MODELS = [*apps.get_app_config("places").get_models(), *apps.get_app_config("shop").get_models()]
ADMIN_MODELS = [model for model in MODELS if model.__name__ != "OrderLine"]


def load(name, **options):
    call_command(name, stdout=io.StringIO(), stderr=io.StringIO(), **options)


@pytest.fixture(scope="module", autouse=True)
def example(django_db_setup, django_db_blocker):
    """The data of the example, loaded once and rolled back after the last test."""
    with quiet(), django_db_blocker.unblock(), transaction.atomic():
        load("load_places", min_population=200_000)
        load("load_shop", orders=50)
        load("create_accounts")
        yield
        transaction.set_rollback(True)


@pytest.fixture
def sign_in():
    def signed_in(name):
        client = Client()
        assert client.login(username=name, password=name)
        return client

    return signed_in


def url_of(model, view, *args):
    return reverse(f"admin:{model._meta.app_label}_{model._meta.model_name}_{view}", args=args)


def act(client, action, orders, **data):
    posted = {"action": action, "_selected_action": [order.pk for order in orders], **data}
    return client.post(url_of(Order, "changelist"), posted)


def make(status, count=2):
    """Gives some orders a status: fifty orders do not hold each of them for sure."""
    orders = list(Order.objects.all()[:count])
    Order.objects.filter(pk__in=[order.pk for order in orders]).update(status=status)
    return orders


def statuses(orders):
    return set(Order.objects.filter(pk__in=[order.pk for order in orders]).values_list("status", flat=True))


def test_totals_are_those_of_the_lines():
    sums = Order.objects.annotate(sum=Sum(F("lines__quantity") * F("lines__unit_price")))
    assert sums.count() == 50
    assert all(order.total == order.sum for order in sums)


def test_files_are_valid():
    with Image.open(Product.objects.exclude(image="").first().image) as image:
        image.verify()
    with Document.objects.filter(file__endswith=".pdf").first().file.open() as file:
        assert file.read().startswith(b"%PDF-")


def test_loading_again_keeps_the_data():
    before = City.objects.count(), Order.objects.count(), get_user_model().objects.count()
    load("load_places", min_population=200_000)
    load("load_shop", orders=60)
    load("create_accounts")
    assert (City.objects.count(), Order.objects.count(), get_user_model().objects.count()) == before


def test_accounts_need_debug():
    with override_settings(DEBUG=False), pytest.raises(CommandError, match="development only"):
        load("create_accounts")


@pytest.mark.parametrize("name", ["admin", "auditor"])
def test_lists_and_pages_open(sign_in, name):
    client = sign_in(name)
    for model in ADMIN_MODELS:
        assert client.get(url_of(model, "changelist"), {"q": "a"}).status_code == 200, model
        row = model._default_manager.first()
        assert client.get(url_of(model, "change", row.pk)).status_code == 200, model


def test_warehouse_sees_its_own_country_only(sign_in):
    client = sign_in("warehouse")
    country = StaffProfile.objects.get().country
    for model, lookup in ((Order, "country"), (Shipment, "order__country")):
        shown = client.get(url_of(model, "changelist")).context["cl"].queryset
        assert shown
        assert set(shown) == set(model.objects.filter(**{lookup: country}))
        foreign = model.objects.exclude(**{lookup: country}).first()
        assert client.get(url_of(model, "change", foreign.pk)).status_code == 302


def test_warehouse_ships_its_own_orders_only(sign_in):
    own, foreign = (
        Order.objects.filter(country="DE").first(),
        Order.objects.exclude(country="DE").first(),
    )
    parcel = {"carrier": "dhl", "shipped_at_0": "2026-01-02", "shipped_at_1": "10:00"}
    client = sign_in("warehouse")
    add = url_of(Shipment, "add")
    assert client.post(add, {**parcel, "order": own.pk, "tracking_number": "A1"}).status_code == 302
    assert client.post(add, {**parcel, "order": foreign.pk, "tracking_number": "A2"}).status_code == 200
    assert not Shipment.objects.filter(tracking_number="A2").exists()


def test_nobody_is_kept_out(sign_in):
    assert sign_in("nobody").get(url_of(Order, "changelist")).status_code == 302


def test_card_tokens_are_never_shown(sign_in):
    payment = PaymentAudit.objects.first()
    client = sign_in("admin")
    for url in (url_of(PaymentAudit, "changelist"), url_of(PaymentAudit, "change", payment.pk)):
        assert payment.card_token not in client.get(url).text
    assert client.get(url_of(PaymentAudit, "add")).status_code == 403


@pytest.mark.parametrize(("status", "deletable"), [(Status.PENDING, True), (Status.DELIVERED, False)])
def test_delivered_orders_cannot_be_deleted(sign_in, status, deletable):
    order = make(status, 1)[0]
    order.payments.all().delete()
    client = sign_in("admin")
    page = client.get(url_of(Order, "change", order.pk))
    assert "number" not in page.context["adminform"].form.fields
    assert ('class="deletelink"' in page.text) is deletable
    act(client, "delete_selected", [order], post="yes")
    assert Order.objects.filter(pk=order.pk).exists() is not deletable


def test_mark_shipped(sign_in):
    orders = make(Status.PAID)
    assert act(sign_in("auditor"), "mark_shipped", orders).status_code == 403
    act(sign_in("admin"), "mark_shipped", orders)
    assert statuses(orders) == {Status.SHIPPED}


def test_cancel_orders(sign_in):
    orders = make(Status.PENDING)
    act(sign_in("auditor"), "cancel_orders", orders)
    assert statuses(orders) == {Status.PENDING}
    act(sign_in("admin"), "cancel_orders", orders)
    assert statuses(orders) == {Status.CANCELLED}


def test_refund_asks_first(sign_in):
    orders = make(Status.PAID)
    client = sign_in("admin")
    page = act(client, "refund", orders)
    assert page.status_code == 200
    assert 'name="apply"' in page.text
    assert act(client, "refund", orders, apply="1", reason="weather").context["form"].errors.keys() == {"reason"}
    assert statuses(orders) == {Status.PAID}
    assert act(client, "refund", orders, apply="1", reason="late", amount="1.50").status_code == 302
    assert statuses(orders) == {Status.REFUNDED}
    refund = orders[0].payments.get(event="refunded", created_by="admin")
    assert refund.amount == min(Decimal("1.50"), orders[0].total)


def test_refund_needs_its_permission(sign_in):
    orders = list(Order.objects.filter(country="DE")[:1])
    Order.objects.filter(pk=orders[0].pk).update(status=Status.PAID)
    act(sign_in("warehouse"), "refund", orders, apply="1", reason="late")
    assert statuses(orders) == {Status.PAID}


def test_export_csv(sign_in):
    orders = list(Order.objects.all()[:3])
    response = act(sign_in("auditor"), "export_csv", orders)
    assert response["Content-Type"].startswith("text/csv")
    assert response["Content-Disposition"].startswith("attachment")
    assert len(response.text.splitlines()) == 4


def test_recalculate_totals(sign_in):
    order = Order.objects.first()
    Order.objects.update(total=0)
    act(sign_in("admin"), "recalculate_totals", Order.objects.all())
    assert Order.objects.get(pk=order.pk).total == order.total


def test_every_permission_of_the_warehouse_exists():
    from example_project.shop.management.commands.create_accounts import WAREHOUSE_PERMISSIONS

    warehouse = get_user_model().objects.get(username="warehouse")
    assert warehouse.user_permissions.count() == sum(map(len, WAREHOUSE_PERMISSIONS.values()))


def test_the_start_page_says_where_to_connect_with_whom_and_what_to_ask():
    page = Client().get("/").text
    assert f"<code>{settings.MCP_BASE_URL}/mcp</code>" in page
    connection = Connection("shop", url=f"{settings.MCP_BASE_URL}/mcp")
    for client in CLIENTS.values():
        has_set_up = bool(client.file or client.shell(connection)) and not client.remote
        assert (client.title in page) is has_set_up, client.title
    for text in [*ACCOUNTS, *QUESTIONS, f"claude mcp add --transport http shop {settings.MCP_BASE_URL}/mcp"]:
        assert escape(text) in page


def fetched(path):
    """Return the response to a visitor, and its body, which is read to the end: then its file is closed."""
    response = Client().get(path)
    return response, b"".join(response.streaming_content) if response.streaming else response.content


def linked_from_the_start_page():
    page = Client().get("/").text
    return page, set(re.findall(r'(?:href|src|srcset)="(/[^"]+)"', page))


def test_the_start_page_leads_to_pages_and_pictures_that_are_there(tmp_path, monkeypatch):
    page, links = linked_from_the_start_page()
    assert len([link for link in links if link.startswith("/docs/images/")]) == 3
    for link in links:
        if not link.startswith("/static/"):
            assert fetched(link)[0].status_code in (200, 302), link
    assert {"/docs/tutorial.md", "/admin/mcp_django/callentry/overview/"} <= links
    # Browsers show pages as text.
    assert fetched("/docs/tutorial.md")[0]["Content-Type"] == "text/plain; charset=utf-8"
    assert fetched("/docs/../manage.py")[0].status_code == 400
    # Both clients that come first have all that there is to type.
    first = page.partition("<details>")[0]
    for line in ("claude mcp add --transport http shop", "codex mcp add shop --url", "codex mcp login shop"):
        assert f"<code>{line}" in first
    # The site of the documentation is shown where it has been made.
    monkeypatch.setattr("example_project.shop.views.BUILT_DOCS", tmp_path)
    (tmp_path / "index.html").write_text("The documentation")
    assert "/docs/index.html" in linked_from_the_start_page()[1]
    assert fetched("/docs/index.html")[1] == b"The documentation"


@pytest.mark.parametrize("name", ACCOUNTS)
def test_every_account_can_sign_in_where_clients_send_people(name):
    client = Client()
    asked = client.get(reverse("mcp_oauth:authorized-token-list"))
    assert asked.status_code == 302
    page = client.get(asked["Location"])
    assert page.status_code == 200
    assert client.post(asked["Location"], {"username": name, "password": name}).status_code == 302
    assert client.get(reverse("mcp_oauth:authorized-token-list")).status_code == 200


def test_the_icon_is_where_clients_are_told():
    assert find(settings.MCP_DJANGO["SERVER"]["icon"].removeprefix("/static/"))


def test_the_demo_prints_what_the_start_page_shows():
    out = io.StringIO()
    Demo(stdout=out).announce(8000)
    text = out.getvalue()
    for shown in [*ACCOUNTS, f"{settings.MCP_BASE_URL}/mcp", "codex mcp add shop --url", "mcp_token admin"]:
        assert shown in text


def test_what_to_put_into_a_file_of_yaml_is_yaml_on_the_page_and_in_the_demo():
    out = io.StringIO()
    Demo(stdout=out).announce(8000)
    shown = {
        "demo": textwrap.dedent(re.search(r"  Goose\n((?: {4}.*\n)+)", out.getvalue())[1]),
        "page": unescape(re.search(r"<dt>Goose</dt>.*?<code>(.*?)</code>", Client().get("/").text, re.DOTALL)[1]),
    }
    for text in shown.values():
        entry = yaml.safe_load(text)["extensions"]["shop"]
        assert entry["uri"] == f"{settings.MCP_BASE_URL}/mcp"
        assert entry["type"] == "streamable_http"


def test_every_tool_has_schemas_that_all_clients_take():
    user = get_user_model().objects.filter(is_superuser=True).first()
    for schemas, free in (("full", True), ("plain", False)):
        with override_settings(MCP_DJANGO={**settings.MCP_DJANGO, "SCHEMAS": schemas}):
            assert bool(check_schemas(MCPClient(user).tools())) is free


def test_rows_go_by_the_names_that_people_use():
    root = MCPClient(get_user_model().objects.get(username="admin"))
    order = Order.objects.select_related("customer", "country").order_by("pk").first()
    read = root.call("get_record", model="shop.order", pk=order.number)
    assert read.structured["pk"] == order.pk
    of_customer = root.call("query_records", model="shop.order", filters={"customer": order.customer.email})
    assert order.pk in [row[0] for row in of_customer.structured["rows"]]
    in_country = root.call("query_records", model="shop.order", filters={"country": order.country.name}, limit=200)
    assert order.pk in [row[0] for row in in_country.structured["rows"]]
    # The warehouse of one country does not learn of the orders of another, by whatever name.
    warehouse = get_user_model().objects.get(username="warehouse")
    country = StaffProfile.objects.get(user=warehouse).country
    hidden = Order.objects.exclude(country=country).first()
    client = MCPClient(warehouse)
    answers = {
        client.call("get_record", model="shop.order", pk=pk).text for pk in (hidden.number, hidden.pk, "nothing")
    }
    assert len(answers) == 1
