"""Descriptions from docstrings."""

import pytest

from mcp_django.schemas.docstrings import parse_docstring

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
    found = parse_docstring(text)
    assert (found.description, found.parameters) == (description, parameters)
