"""What docstrings say of a function and its parameters."""

import pytest

from mcp_django.schema.docstrings import Docstring

GOOGLE = """Find orders.

    Over all years.

    Args:
        year: Calendar year,
            four digits: no less.
        status (str, optional): One of the states.
        **rest: The others.

    Returns:
        orders: A list.
    """

SPHINX = """Find orders.

    :param year: Calendar year,
        four digits
    :param str status: One of the states
    :type year: int
    :returns: orders
    """

PLAIN = """Find orders.

    Parameters:
        year -- Calendar year
        status -- One of the states
    """


@pytest.mark.parametrize(
    ("text", "description", "parameters"),
    [
        (None, "", {}),
        ("", "", {}),
        ("One line.", "One line.", {}),
        (
            GOOGLE,
            "Find orders.\n\nOver all years.",
            {
                "year": "Calendar year, four digits: no less.",
                "status": "One of the states.",
                "rest": "The others.",
            },
        ),
        (SPHINX, "Find orders.", {"year": "Calendar year, four digits", "status": "One of the states"}),
        (PLAIN, "Find orders.", {"year": "Calendar year", "status": "One of the states"}),
        ("Note that: this is prose\nNot a section: either", "Note that: this is prose\nNot a section: either", {}),
    ],
)
def test_the_text_before_the_sections_is_the_description(
    text: str | None, description: str, parameters: dict[str, str]
) -> None:
    found = Docstring.parse(text)
    assert (found.description, found.parameters) == (description, parameters)


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("What one customer ordered at one time.", "What one customer ordered at one time."),
        ("An order\n    over two lines. And more.\n\n    Not this.", "An order over two lines."),
        ("Things, e.g. orders. More.", "Things, e.g. orders."),
        ("Version 2.5 of it! More.", "Version 2.5 of it!"),
        ("No end\n\nAnother paragraph.", "No end"),
        ("Order(id, number)", ""),
        ("x" * 300, f"{'x' * 200}…"),
        ("", ""),
        (None, ""),
    ],
)
def test_the_first_sentence_of_a_class_is_its_own(text, sentence):
    order = type("Order", (), {"__doc__": text})
    assert Docstring.of_class(order).summary == sentence
    # What is inherited says what something else is.
    assert Docstring.of_class(type("Sub", (order,), {})).summary == ""
