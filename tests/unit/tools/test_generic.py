import pytest

import mcp_django as mcp
from mcp_django.sites import OWN_NAMES
from mcp_django.tools.generic import ToolSet


def get_record(request) -> str:
    return "own"


def test_the_site_knows_the_names_without_the_tools():
    assert (*ToolSet.GENERIC.new(), *ToolSet.UPLOADS.new(), *ToolSet.EXPORTS.new()) == OWN_NAMES


def test_a_function_cannot_take_the_name_of_a_generic_tool_until_that_is_taken_off():
    site = mcp.MCPSite("own")
    with pytest.raises(mcp.AlreadyRegistered):
        site.add_tool(get_record)

    site.remove_tool("get_record")
    assert "get_record" not in site.all_tool_names()
    with pytest.raises(mcp.NotRegistered):
        site.remove_tool("get_record")

    site.add_tool(get_record)
    assert site.all_tool_names().count("get_record") == 1
    with pytest.raises(mcp.AlreadyRegistered):
        site.add_tool(get_record)

    site.remove_tool("get_record")
    assert "get_record" not in site.all_tool_names()


def test_a_generic_tool_can_be_taken_off_a_site_that_is_in_use():
    site = mcp.MCPSite("own")
    assert "run_action" in site.all_tool_names()
    site.remove_tool("run_action")
    assert "run_action" not in site.all_tool_names()
    assert site.function_tools() == []
