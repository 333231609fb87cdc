"""Every type of field, end to end: written, shown, found by a filter, written again as it was shown."""

import uuid
from pathlib import Path
from typing import Any

import pytest
from django.contrib import admin

from mcp_django import MCPSite, ToolError
from mcp_django.orm.fields import kind_of
from mcp_django.tools.describe_model import DescribeModel
from mcp_django.tools.get_record import GetRecord
from mcp_django.tools.query_records import QueryRecords
from mcp_django.tools.write_tools import CreateRecord, UpdateRecord
from tests.factories import make_superuser
from tests.fieldapp.models import Sample, folder
from tests.library import query_of, read, reader, shown
from tests.tool_calls import call, refusal, site_with

pytestmark = [pytest.mark.walk, pytest.mark.postgresql, pytest.mark.django_db]

CREATE, UPDATE, GET, QUERY = CreateRecord(), UpdateRecord(), GetRecord(), QueryRecords()
KEY = str(uuid.UUID(int=7))

# The field, what a caller writes, what is shown, and filters that find it.
VALUES: list[tuple[str, Any, Any, list[Any]]] = [
    ("name", "Zoë 名前 שלום", "Zoë 名前 שלום", [{"name": "Zoë 名前 שלום"}, {"name__contains": "שלום"}]),
    ("text", "a\nb", "a\nb", [{"text__startswith": "a"}]),
    ("slug", "a-b", "a-b", [{"slug": "a-b"}]),
    ("url", "https://example.com/?a=1", "https://example.com/?a=1", [{"url__contains": "example"}]),
    ("email", "a@example.com", "a@example.com", [{"email__in": ["a@example.com"]}]),
    ("upper", "abc", "ABC", [{"upper": "ABC"}]),
    ("integer", 7, 7, [{"integer": 7}, {"integer__range": [7, 8]}, {"integer": "7"}]),
    ("integer", "-7", -7, [{"integer__lt": 0}]),
    ("small", 32767, 32767, [{"small__gte": 32767}]),
    ("big", 2**63 - 1, str(2**63 - 1), [{"big": 2**63 - 1}, {"big": str(2**63 - 1)}]),
    ("positive", 0, 0, [{"positive": 0}]),
    ("flag", True, True, [{"flag": True}, {"flag": "true"}]),
    ("maybe", True, True, [{"maybe": True}]),
    ("maybe", False, False, [{"maybe": False}]),
    ("maybe", None, None, [{"maybe": None}, {"maybe__isnull": True}]),
    ("decimal", "12345678.1234", "12345678.1234", [{"decimal": "12345678.1234"}, {"decimal__gt": 12345678}]),
    ("decimal", 1.5, "1.5000", [{"decimal": 1.5}]),
    ("number", 0.1, 0.1, [{"number": 0.1}, {"number__lt": 1}]),
    ("number", 1e300, 1e300, [{"number__gt": 1e299}]),
    ("day", "0001-01-01", "0001-01-01", [{"day": "0001-01-01"}]),
    ("day", "9999-12-31", "9999-12-31", [{"day__gte": "9999-12-31"}]),
    ("moment", "2026-01-31T12:00:00.123456Z", "2026-01-31T12:00:00.123456Z", [{"moment": "2026-01-31"}]),
    ("moment", "2026-01-31T12:00:00+05:30", "2026-01-31T06:30:00Z", [{"moment": "2026-01-31T06:30:00Z"}]),
    ("clock", "23:59:59.000001", "23:59:59.000001", [{"clock": "23:59:59.000001"}]),
    ("length", "1 02:30:00", "1 day, 2:30:00", [{"length": "1 day, 2:30:00"}, {"length__gt": "PT1H"}]),
    ("length", "-1 02:30:00", "-1 day, 2:30:00", [{"length__lt": "0"}]),
    ("length", "-PT5S", "-1 day, 23:59:55", [{"length": "-PT5S"}]),
    ("key", KEY, KEY, [{"key": KEY}, {"key__in": [KEY]}]),
    ("ip", "2001:0DB8::1", "2001:db8::1", [{"ip": "2001:db8::1"}]),
    ("data", {"a": [1, None, "é"]}, {"a": [1, None, "é"]}, [{"data__isnull": False}]),
    ("data", '{"a": 1}', {"a": 1}, []),
    ("data", "text", "text", []),
    ("data", [], [], []),
    ("colour", "r", "r", [{"colour": "r"}, {"colour": "Red"}]),
    ("colour", "Green", "g", [{"colour": "green"}]),
    ("colour", None, None, [{"colour": None}]),
    ("level", 10, 10, [{"level": 10}, {"level": "10"}, {"level": "High"}]),
    ("level", "Low", 1, [{"level__in": ["Low", "10"]}]),
    ("medium", "cd", "cd", [{"medium": "CD"}]),
    ("answer", "y", "y", [{"answer": "Yes"}, {"answer__in": ["no", "y"]}]),
    ("point", "1;2", "1;2", [{"point__isnull": False}]),
]


class SampleAdmin(admin.ModelAdmin):
    readonly_fields = ("doubled",)


@pytest.fixture(params=["form", "admin"])
def asking(request: Any) -> Any:
    if request.param == "form":
        return reader(make_superuser(), site_with(Sample))
    own = admin.AdminSite("fields")
    own.register(Sample, SampleAdmin)
    return reader(make_superuser(), MCPSite(admin_site=own))


@pytest.mark.parametrize(
    ("name", "given", "expected", "filters"), VALUES, ids=[f"{name}-{i}" for i, (name, *_) in enumerate(VALUES)]
)
def test_what_is_written_is_shown_found_and_written_again(
    asking: Any, name: str, given: Any, expected: Any, filters: list[Any]
) -> None:
    label = Sample._meta.label_lower
    made = call(CREATE, asking, model=label, values={"name": "x", name: given})
    assert made["fields"][name] == expected
    assert call(GET, asking, model=label, pk=made["pk"])["fields"][name] == expected
    Sample.objects.create(name="other", integer=1, flag=False, maybe=None)
    page = call(QUERY, asking, model=label, fields=[name], filters={"pk": made["pk"]})
    assert page["rows"] == [[made["pk"], expected]]
    for found in filters:
        page = call(QUERY, asking, model=label, fields=["name"], filters=found)
        assert made["pk"] in [row[0] for row in page["rows"]], found
    before = Sample.objects.filter(pk=made["pk"]).values().get()
    again = call(UPDATE, asking, model=label, pk=made["pk"], values={name: expected})
    assert again["changed"] == []
    assert Sample.objects.filter(pk=made["pk"]).values().get() == before


def test_the_three_roads_agree_on_every_field() -> None:
    for name, given, _, _ in VALUES:
        if not isinstance(given, str) or name not in (
            "answer",
            "colour",
            "level",
            "medium",
            "point",
            "length",
            "upper",
        ):
            Sample.objects.create(**{"name": "x", name: given})
    site = site_with(Sample)
    request = reader(make_superuser(), site)
    query = query_of(request, site.exposures[Sample])
    plan, tuples, instances = (read(query, road) for road in ("plan", "tuples", "instances"))
    assert shown(plan) == shown(tuples) == shown(instances)
    assert len(plan.rows) > 20


def test_what_is_generated_is_read_filtered_and_sorted_but_not_written(asking: Any) -> None:
    label = Sample._meta.label_lower
    for number in (3, 1, None, 2):
        made = call(CREATE, asking, model=label, values={"name": "x", "integer": number})
        assert made["fields"].get("doubled") == (None if number is None else 2 * number)
    page = call(QUERY, asking, model=label, fields=["doubled"], filters={"doubled__gt": 2}, ordering=["-doubled"])
    assert [row[1] for row in page["rows"]] == [6, 4]
    assert "cannot write" in refusal(CREATE, asking, model=label, values={"name": "x", "doubled": 1})


def test_a_path_is_one_of_those_in_its_folder(asking: Any) -> None:
    label = Sample._meta.label_lower
    path = str(Path(folder()) / "0001_initial.py")
    made = call(CREATE, asking, model=label, values={"name": "x", "path": path})
    assert made["fields"]["path"] == path
    assert call(UPDATE, asking, model=label, pk=made["pk"], values={"path": path})["changed"] == []
    for other in ("/etc/passwd", "../models.py", str(Path(folder()).parent / "models.py")):
        assert "path" in refusal(UPDATE, asking, model=label, pk=made["pk"], values={"path": other})


def test_binaries_are_shown_by_their_size_and_not_written() -> None:
    asking = reader(make_superuser(), site_with(Sample))
    made = Sample.objects.create(name="x", blob=b"12345")
    label = Sample._meta.label_lower
    assert call(GET, asking, model=label, pk=made.pk)["fields"]["blob"] == "<5 bytes>"
    assert "cannot write" in refusal(UPDATE, asking, model=label, pk=made.pk, values={"blob": "x"})


def outcome(tool: Any, asking: Any, **arguments: Any) -> str:
    """Return the text of the result, or of the refusal; nothing else may happen."""
    try:
        return str(call(tool, asking, **arguments))
    except ToolError as error:
        return error.message


HOSTILE: list[Any] = [
    {},
    {"a": 1},
    {"$gt": 1},
    [],
    [[]],
    [{}],
    [1, "x", None],
    True,
    1.5,
    1e308,
    -(2**63) - 1,
    10**400,
    "",
    "x" * 5000,
    "\0",
    "'; DROP TABLE fieldapp_sample --",
    "%(name)s",
    "NaN",
    "Infinity",
    "1e999999999",
    "0001-01-01T00:00:00+14:00",
    "9999-12-31T23:59:59-14:00",
    "٣",
]


@pytest.mark.parametrize("field", Sample._meta.concrete_fields, ids=lambda field: field.name)
def test_row_132_hostile_values_are_refused_or_typed_and_nothing_fails(field: Any) -> None:
    asking = reader(make_superuser(), site_with(Sample))
    label = Sample._meta.label_lower
    kept = Sample.objects.create(name="kept")
    for value in HOSTILE:
        for lookup in ("exact", "in", "gt", "range", "contains", "isnull", "has_key", "len", "regex", "a__b"):
            assert "SELECT" not in outcome(QUERY, asking, model=label, filters={f"{field.name}__{lookup}": value})
        assert "UPDATE" not in outcome(UPDATE, asking, model=label, pk=kept.pk, values={field.name: value})
    assert Sample.objects.filter(pk=kept.pk).exists()


@pytest.mark.parametrize("name", ["data__a", "data__has_key", "data__0", "data__contains", "data__a__gt", "point__x"])
def test_row_132_there_is_no_way_into_a_value(name: str) -> None:
    asking = reader(make_superuser(), site_with(Sample))
    for value in ("a", {"a": 1}, 1):
        refusal(QUERY, asking, model=Sample._meta.label_lower, filters={name: value})


def test_each_type_has_a_word_and_the_form_says_what_it_takes() -> None:
    asking = reader(make_superuser(), site_with(Sample))
    described = call(DescribeModel(), asking, model=Sample._meta.label_lower, detail=True)
    words = {line.partition(":")[0]: line.partition(": ")[2].partition(",")[0] for line in described["fields"]}
    assert words["length"] == "duration or null"
    assert words["key"] == "uuid or null"
    assert words["ip"] == "ip or null"
    assert words["point"] == "value or null"
    assert words["doubled"] == "integer or null"
    assert words.keys() == {field.name for field in Sample._meta.concrete_fields}
    taken = described["input_schema"]["properties"]
    assert "duration" in taken["length"]["description"]
    assert "ISO 8601" in taken["moment"]["description"]
    assert taken["level"]["enum"] == [1, 10]
    assert "r = Red" in taken["colour"]["description"]
    assert all(kind_of(field).word for field in Sample._meta.concrete_fields)
