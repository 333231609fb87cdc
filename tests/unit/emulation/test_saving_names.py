import pytest

from mcp_django import ToolError, site
from mcp_django.emulation.saving import RowPage
from mcp_django.orm.access import access_of
from mcp_django.tools.write_tools import CreateRecord, UpdateRecord
from tests.factories import make_superuser
from tests.testapp.models import Loan
from tests.tool_calls import request_of

pytestmark = pytest.mark.django_db

CREATE, UPDATE = CreateRecord(), UpdateRecord()
BOOK = {"model": "testapp.book"}


def test_several_wrong_names_are_told_at_once():
    root = request_of(make_superuser())
    page = RowPage(access_of(root)[site.exposures[Loan]], None)
    with pytest.raises(ToolError, match=r"You cannot write 'nothing', 'deleted' of testapp.loan\. Valid: book"):
        page.saving({"nothing": 1, "deleted": 2}, "create_record").save()
