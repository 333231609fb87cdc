"""The admin's pages of approval rules."""

import json
from typing import Any

import pytest
from django.contrib.admin.models import ADDITION, CHANGE, DELETION, LogEntry
from django.contrib.auth.models import Group
from django.test import Client
from django.urls import reverse
from django.utils.translation import override

from mcp_django.models import ApprovalRule, ServiceAccount
from tests.factories import make_superuser, make_user

pytestmark = [pytest.mark.postgresql, pytest.mark.django_db, pytest.mark.one_server]

LIST = "admin:mcp_django_approvalrule_changelist"
ADD = "admin:mcp_django_approvalrule_add"
CHANGE_PAGE = "admin:mcp_django_approvalrule_change"


@pytest.fixture
def operator(client: Client) -> Client:
    client.force_login(make_superuser("operator"))
    return client


def values(**changed: Any) -> dict[str, Any]:
    """Return what a browser posts for a rule that fits."""
    return {
        "name": "Refunds",
        "is_active": "on",
        "effect": "require",
        "labels": ["testapp.book"],
        "kinds": ["update"],
        "tools": "",
        "actions": "",
        "condition": '{"pages__gt": 100}',
        "rows_above": "",
        "clients": "",
        "permission": "testapp.publish_book",
        "hours": "72",
        **changed,
    }


def errors_of(response: Any) -> dict[str, str]:
    assert response.status_code == 200, "it was saved"
    return {name: " ".join(texts) for name, texts in response.context["adminform"].form.errors.items()}


def test_a_rule_that_fits_is_saved(operator: Client) -> None:
    group = Group.objects.create(name="Sales")
    account = ServiceAccount.objects.create(name="nightly", user=make_user("ada"))
    data = values(
        tools="run_action\n\n withdraw_testapp_book \nrun_action",
        actions="TestApp.Book.withdraw",
        clients="codex\nclaude",
        groups=[group.pk],
        service_accounts=[account.pk],
        rows_above="5",
    )
    assert operator.post(reverse(ADD), data).status_code == 302
    rule = ApprovalRule.objects.get()
    assert (rule.labels, rule.kinds, rule.tools) == (
        ["testapp.book"],
        ["update"],
        ["run_action", "withdraw_testapp_book"],
    )
    assert (rule.actions, rule.clients) == (["testapp.book.withdraw"], ["codex", "claude"])
    assert (rule.condition, rule.rows_above) == ({"pages__gt": 100}, 5)
    assert (rule.groups.get(), rule.service_accounts.get()) == (group, account)


def test_the_page_shows_what_was_saved(operator: Client) -> None:
    operator.post(reverse(ADD), values(tools="run_action\nwithdraw_testapp_book"))
    rule = ApprovalRule.objects.get()
    page = operator.get(reverse(CHANGE_PAGE, args=[rule.pk])).content.decode()
    assert "run_action\nwithdraw_testapp_book</textarea>" in page
    assert "&quot;pages__gt&quot;: 100" in page
    assert '<option value="testapp.book" selected>' in page
    assert '<option value="testapp.publish_book"></option>' in page
    # Saved again without a change, it has none in its history.
    before = LogEntry.objects.count()
    operator.post(reverse(CHANGE_PAGE, args=[rule.pk]), values(tools="run_action\r\nwithdraw_testapp_book\r\n"))
    assert LogEntry.objects.get(action_flag=CHANGE).change_message == "[]"
    assert LogEntry.objects.count() == before + 1


@pytest.mark.parametrize(
    ("changed", "column", "message"),
    [
        ({"name": ""}, "name", "required"),
        ({"labels": ["testapp.bok"]}, "labels", "testapp.bok"),
        ({"kinds": ["fly"]}, "kinds", "fly"),
        ({"tools": "run_acton"}, "tools", "There is no tool run_acton. Did you mean run_action?"),
        ({"tools": "delete_record"}, "tools", "No rule is about the tool delete_record: choose models"),
        ({"actions": "testapp.book.withdrw"}, "actions", "Did you mean testapp.book.withdraw?"),
        ({"actions": "withdraw"}, "actions", "There is no action withdraw."),
        ({"condition": "{"}, "condition", "valid JSON"),
        ({"condition": "[1]"}, "condition", "A condition is an object"),
        ({"condition": '{"page__gt": 1}'}, "condition", "The condition does not fit testapp.book"),
        ({"condition": '{"pages__gt": "x"}'}, "condition", "testapp.book"),
        ({"condition": '{"pages": 1}', "labels": []}, "condition", "Name the models"),
        ({"condition": '{"pages": 1}', "labels": ["testapp.book", "testapp.author"]}, "condition", "testapp.author"),
        ({"permission": "testapp.publish_bok"}, "permission", "Did you mean testapp.publish_book?"),
        ({"permission": ""}, "permission", "Name the permission or the group of those who decide."),
        ({"hours": "0"}, "hours", ""),
        ({"rows_above": "-1"}, "rows_above", ""),
    ],
)
def test_what_does_not_fit_is_refused_with_what_may_be_meant(
    changed: dict[str, Any], column: str, message: str, operator: Client
) -> None:
    errors = errors_of(operator.post(reverse(ADD), values(**changed)))
    assert message in errors[column]
    assert not ApprovalRule.objects.exists()


def test_a_permission_or_a_group_decides_and_a_block_needs_neither(operator: Client) -> None:
    group = Group.objects.create(name="Managers")
    errors = errors_of(operator.post(reverse(ADD), values(group=group.pk)))
    assert "not both" in errors["permission"]
    assert operator.post(reverse(ADD), values(permission="", group=group.pk)).status_code == 302
    assert operator.post(reverse(ADD), values(name="Never", permission="", effect="block")).status_code == 302


def test_arguments_of_tools_are_known(operator: Client, tools: Any) -> None:
    def refund(request: Any, amount: int) -> str:
        """Refund."""
        return ""

    tools(refund)
    data = values(condition='{"arguments": {"amout": "1"}}', tools="refund", labels=[])
    assert "no argument 'amout'. Did you mean 'amount'" in errors_of(operator.post(reverse(ADD), data))["condition"]
    data = values(condition='{"arguments": {"amount": "1"}}', tools="refund")
    assert "would never apply" in errors_of(operator.post(reverse(ADD), data))["tools"]
    data["labels"] = []
    assert operator.post(reverse(ADD), data).status_code == 302


def test_an_empty_condition_is_one_that_always_holds(operator: Client) -> None:
    assert operator.post(reverse(ADD), values(condition=" ")).status_code == 302
    rule = ApprovalRule.objects.get()
    assert rule.condition == {}
    assert ">\n</textarea>" in operator.get(reverse(CHANGE_PAGE, args=[rule.pk])).content.decode()


def test_a_model_that_is_gone_stays_chosen_until_somebody_decides(operator: Client) -> None:
    rule = ApprovalRule.objects.create(name="Old", labels=["shop.gone"], permission="testapp.publish_book")
    page = reverse(CHANGE_PAGE, args=[rule.pk])
    assert '<option value="shop.gone" selected>' in operator.get(page).content.decode()
    errors = errors_of(operator.post(page, values(labels=["shop.gone"], condition="")))
    assert "There is no model shop.gone." in errors["labels"]
    assert operator.post(page, values()).status_code == 302


@pytest.mark.parametrize("broken", ["text", 3, [1, {}], None])
def test_a_row_that_cannot_be_read_has_a_page_that_mends_it(broken: Any, operator: Client) -> None:
    lists = dict.fromkeys(("labels", "kinds", "tools", "actions", "clients"), broken if broken is not None else [])
    rule = ApprovalRule.objects.create(name="Broken", condition=broken or "text", **lists)
    assert operator.get(reverse(CHANGE_PAGE, args=[rule.pk])).status_code == 200
    assert operator.get(reverse(LIST)).status_code == 200
    assert operator.post(reverse(CHANGE_PAGE, args=[rule.pk]), values()).status_code == 302


# List and history


def test_the_list_says_what_each_rule_does(operator: Client) -> None:
    group = Group.objects.create(name="Managers")
    ApprovalRule.objects.create(
        name="One",
        labels=["testapp.book"],
        kinds=["update", "delete"],
        tools=["refund"],
        actions=["testapp.book.withdraw"],
        condition={"pages__gt": 100},
        rows_above=5,
        permission="testapp.publish_book",
    )
    ApprovalRule.objects.create(name="Two", group=group, is_active=False)
    ApprovalRule.objects.create(name="Three", effect="block")
    page = operator.get(reverse(LIST)).content.decode()
    assert "testapp.book; change rows, delete rows; refund; testapp.book.withdraw" in page
    assert "{&quot;pages__gt&quot;: 100}; above 5 rows" in page
    assert "everything" in page
    assert 'field-deciders">testapp.publish_book' in page
    assert 'field-deciders">Managers' in page
    assert 'field-deciders">nobody' in page
    assert "Two" not in operator.get(reverse(LIST), {"is_active__exact": 1}).content.decode()
    assert "Two" in operator.get(reverse(LIST), {"q": "manag"}).content.decode()


def test_the_history_says_what_was_changed_from_what_to_what(operator: Client) -> None:
    managers, sales = Group.objects.create(name="Managers"), Group.objects.create(name="Sales")
    operator.post(reverse(ADD), values(groups=[sales.pk]))
    rule = ApprovalRule.objects.get()
    assert LogEntry.objects.get().action_flag == ADDITION
    changed = values(
        condition='{"pages__gt": 500}',
        labels=["testapp.author", "testapp.book"],
        effect="block",
        permission="",
        group=managers.pk,
        groups=[sales.pk, managers.pk],
        clients="codex",
    )
    del changed["is_active"]
    operator.post(reverse(CHANGE_PAGE, args=[rule.pk]), {**changed, "labels": ["testapp.book"]})
    entry = LogEntry.objects.get(action_flag=CHANGE)
    text = entry.get_change_message()
    for part in (
        'condition: {"pages__gt": 100} → {"pages__gt": 500}',
        "effect: require → block",
        "active: true → false",
        "permission to decide: testapp.publish_book → -",
        "group that decides: - → Managers",
        'calls of these groups: ["Sales"] → ["Managers", "Sales"]',
        'calls by these clients: - → ["codex"]',
    ):
        assert part.lower() in text.lower()
    assert "models" not in text
    operator.post(reverse("admin:mcp_django_approvalrule_delete", args=[rule.pk]), {"post": "yes"})
    assert LogEntry.objects.get(action_flag=DELETION).object_repr == "Refunds"


def test_the_history_is_the_same_in_every_language(operator: Client) -> None:
    operator.post(reverse(ADD), values())
    rule = ApprovalRule.objects.get()
    with override("de"):
        operator.post(reverse(CHANGE_PAGE, args=[rule.pk]), values(condition=""), headers={"accept-language": "de"})
    [change] = json.loads(LogEntry.objects.get(action_flag=CHANGE).change_message)
    assert change["changed"]["fields"] == ['condition: {"pages__gt": 100} → -']


# Who may


def test_only_those_with_the_permission_change_rules(client: Client) -> None:
    rule = ApprovalRule.objects.create(name="One", labels=["testapp.book"], permission="testapp.publish_book")
    client.force_login(make_user("viewer", "mcp_django.view_approvalrule"))
    page = client.get(reverse(CHANGE_PAGE, args=[rule.pk]))
    assert page.status_code == 200
    assert "testapp.book" in page.content.decode()
    assert client.post(reverse(CHANGE_PAGE, args=[rule.pk]), values()).status_code == 403
    client.force_login(make_user("nobody"))
    assert client.get(reverse(LIST)).status_code == 403


def test_users_are_chosen_where_the_admin_can_search_them(operator: Client, client: Client) -> None:
    page = operator.get(reverse(ADD)).content.decode()
    assert 'name="users"' in page
    ada = make_user("ada")
    assert operator.post(reverse(ADD), values(users=[ada.pk])).status_code in (200, 302)
