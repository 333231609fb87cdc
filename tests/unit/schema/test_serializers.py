import pytest
from rest_framework import serializers

from mcp_django.schema.serializers import field_schema, writable_fields
from tests.restapp.models import Client, Order


class Line(serializers.Serializer):
    name = serializers.CharField(max_length=5)
    count = serializers.IntegerField(min_value=1, max_value=9, default=2)


class Deep(serializers.Serializer):
    def get_fields(self):
        return {"inner": Deep()}


class Everything(serializers.Serializer):
    text = serializers.CharField(help_text="Some words", label="The text")
    label_only = serializers.CharField(label="What it is")
    number = serializers.FloatField(allow_null=True, required=False)
    price = serializers.DecimalField(max_digits=6, decimal_places=2, min_value=0)
    yes = serializers.BooleanField(default=True)
    day = serializers.DateField()
    moment = serializers.DateTimeField()
    uuid = serializers.UUIDField()
    mail = serializers.EmailField()
    choice = serializers.ChoiceField(choices=[("a", "A"), ("b", "The other")], allow_null=True)
    numbered = serializers.ChoiceField(choices=[(1, "One"), (2, "2")])
    grouped = serializers.ChoiceField(choices=[("G", [("x", "X")]), ("y", "Y")])
    several = serializers.MultipleChoiceField(choices=["a", "b"])
    tags = serializers.ListField(child=serializers.CharField(max_length=3), max_length=2)
    map = serializers.DictField()
    anything = serializers.JSONField()
    line = Line()
    lines = Line(many=True)
    client = serializers.PrimaryKeyRelatedField(queryset=Client.objects.all())
    clients = serializers.PrimaryKeyRelatedField(queryset=Client.objects.all(), many=True)
    by_name = serializers.SlugRelatedField("name", queryset=Client.objects.all())
    shown = serializers.CharField(read_only=True)
    hidden = serializers.HiddenField(default=1)
    file = serializers.FileField()
    method = serializers.SerializerMethodField()
    deep = Deep()


FIELDS = writable_fields(Everything())


def test_what_cannot_be_sent_is_left_out():
    assert not {"shown", "hidden", "file", "method"} & FIELDS.keys()
    assert FIELDS.keys() < Everything().fields.keys()


@pytest.mark.parametrize(
    ("name", "schema"),
    [
        ("text", {"type": "string", "description": "Some words"}),
        ("label_only", {"type": "string", "description": "What it is."}),
        ("number", {"anyOf": [{"type": "number"}, {"type": "null"}]}),
        ("yes", {"type": "boolean", "default": True, "description": "(default True)"}),
        ("uuid", {"type": "string", "description": "(UUID)"}),
        ("mail", {"type": "string", "description": "(email address)"}),
        (
            "choice",
            {
                "anyOf": [{"type": "string", "enum": ["a", "b"]}, {"type": "null"}],
                "description": "(b = The other)",
            },
        ),
        ("numbered", {"type": "integer", "enum": [1, 2], "description": "(1 = One)"}),
        ("grouped", {"type": "string", "enum": ["x", "y"]}),
        ("several", {"type": "array", "items": {"type": "string", "enum": ["a", "b"]}}),
        ("map", {"type": "object", "additionalProperties": True}),
        ("anything", {}),
        ("client", {"type": "integer", "description": "(primary key of restapp.client)"}),
        ("by_name", {"type": "string", "description": "(name of restapp.client)"}),
    ],
)
def test_each_kind_of_field_has_its_schema(name, schema):
    assert field_schema(FIELDS[name]) == schema


def test_limits_stand_in_the_words_too():
    price = field_schema(FIELDS["price"])
    assert price["type"] == "string"
    assert price["description"].endswith("such as 12.50, at most 6 digits, at most 2 decimal places, at least 0)")
    tags = field_schema(FIELDS["tags"])
    assert tags["items"] == {"type": "string", "maxLength": 3}
    assert tags["description"] == "(each: at most 3 characters, at most 2 items)"


def test_serializers_within_serializers_are_objects_down_to_a_bound():
    line = field_schema(FIELDS["line"])
    assert line["required"] == ["name"]
    assert line["properties"]["count"]["default"] == 2
    lines = field_schema(FIELDS["lines"])
    assert lines["items"]["properties"].keys() == {"name", "count"}
    assert str(field_schema(FIELDS["deep"])).count("properties") == 4


def test_the_widest_integers_of_a_database_are_no_limits():
    class Serializer(serializers.ModelSerializer):
        class Meta:
            model = Order
            fields = ["total", "client"]

    wide = serializers.IntegerField(min_value=-(2**63), max_value=2**63 - 1)
    wide.bind("wide", Serializer())
    assert field_schema(wide) == {"type": "integer"}


def test_no_row_is_read_for_a_schema(django_assert_num_queries):
    # There is no database at all in this test.
    assert [field_schema(field) for field in writable_fields(Everything()).values()]


def test_files_of_the_server_are_not_listed(tmp_path):
    (tmp_path / "private.txt").touch()
    field = serializers.FilePathField(path=str(tmp_path))
    field.bind("path", Everything())
    assert field_schema(field) == {"type": "string"}


def test_many_choices_are_left_to_the_serializer():
    field = serializers.ChoiceField(choices=[str(number) for number in range(201)])
    field.bind("many", Everything())
    assert field_schema(field) == {"type": "string", "description": "(one of 201 values)"}
