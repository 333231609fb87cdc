"""The conditions of approval rules."""

from mcp_django.approvals.conditions import RuleCondition


def test_a_condition_keeps_its_data() -> None:
    assert RuleCondition({"total__gt": 100}).data == {"total__gt": 100}
    assert RuleCondition().data == {}
