from mcp_django.tools.base import Tool


class Greet(Tool):
    name = "greet"
    description = "Say hello."
    read_only = True


def test_R7_a_definition_has_no_optional_key_without_a_value():
    found = Greet().definition()
    assert set(found) == {"name", "description", "inputSchema", "annotations"}


def test_R27_all_four_hints_are_explicit_and_agree_with_each_other():
    hints = Greet().definition()["annotations"]
    assert hints == {
        "readOnlyHint": True,
        "destructiveHint": False,
        "idempotentHint": True,
        "openWorldHint": False,
    }


def test_a_tool_is_destructive_unless_it_says_otherwise():
    assert Tool.destructive
    assert not Tool.read_only


def test_names_are_what_every_client_can_use():
    assert Tool.safe_name("list_orders") == "list_orders"
    long = Tool.safe_name("recalculate_everything_very_long_orders_of_the_shop")
    assert len(long) == 40
    assert long != Tool.safe_name("recalculate_everything_very_long_orders_of_the_shop2")
    assert Tool.safe_name("Größe_x").isascii()
