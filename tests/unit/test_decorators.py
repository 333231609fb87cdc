import pytest
from django.core.exceptions import ImproperlyConfigured

import mcp_django as mcp
from tests.testapp.models import Author, Book


@pytest.fixture
def site():
    return mcp.MCPSite("own")


def test_register_takes_a_class_for_one_or_more_models(site):
    @mcp.register(Author, Book, site=site)
    class Exposure(mcp.ModelExposure):
        fields = ["id"]

    assert [type(exposure) for exposure in site.exposures.values()] == [Exposure, Exposure]


def test_register_wants_a_model_and_an_exposure(site):
    with pytest.raises(ValueError, match="At least one model"):
        mcp.register(site=site)
    with pytest.raises(ValueError, match="ModelExposure"):
        mcp.register(Author, site=site)(type("Wrong", (), {}))


def test_tool_and_prompt_are_used_bare_or_with_options(site):
    @mcp.tool(site=site, name="hello", read_only=True)
    def greet(request, name: str) -> str:
        """Say hello."""
        return name

    @mcp.prompt(site=site)
    def introduce(request, name: str) -> str:
        """Introduce somebody."""
        return name

    assert [tool.name for tool in site.function_tools()] == ["hello"]
    assert list(site.prompts) == ["introduce"]
    assert greet(None, "still a function") == "still a function"


def test_resource_makes_a_resource_or_a_template(site):
    @mcp.resource("note://all", site=site)
    @mcp.resource("note://{number}", site=site)
    def note(request, number: str = "") -> str:
        """A note."""
        return number

    assert [resource.is_template for resource in site.resources.values()] == [True, False]


def test_a_name_that_clients_would_mangle_is_refused(site):
    with pytest.raises(ImproperlyConfigured):
        mcp.tool(lambda request: "", site=site, name="Not A Name")


def test_action_marks_a_method_with_its_options():
    @mcp.action(permissions=["view"], destructive=False, description="Count them")
    def count(self, request, queryset): ...

    @mcp.action
    def archive(self, request, queryset): ...

    assert count.mcp_action.permissions == ("view",)
    assert not count.mcp_action.destructive
    assert archive.mcp_action.permissions == ("change",)
    assert archive.mcp_action.destructive
