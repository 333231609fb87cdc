"""The catalogues: each has every text that people see, and what is compiled is what is written."""

import ast
import gettext
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from django.template.base import Node
from django.template.loader import get_template
from django.templatetags.i18n import BlockTranslateNode, TranslateNode
from django.utils.translation import trim_whitespace

PACKAGE = Path(__file__).resolve().parents[2] / "mcp_django"
LOCALE = PACKAGE / "locale"
LANGUAGES = ["ar", "de", "es", "fr", "it", "ja", "ko", "nl", "pl", "pt", "zh_Hans"]
TEMPLATES = sorted(path.relative_to(PACKAGE / "templates") for path in PACKAGE.glob("templates/**/*.html"))
# How a text is marked, and what separates its context from it in a catalogue.
MARKS = {"_", "gettext", "gettext_lazy", "gettext_noop"}
SEPARATOR = "\x04"
# What is filled in, and what must stay markup.
PLACES = re.compile(r"%\(\w+\)s|\{\w+\}|</?[a-z]+[^>]*>")


def in_templates() -> Iterator[str]:
    for name in TEMPLATES:
        template: Any = get_template(str(name))
        for node in template.template.nodelist.get_nodes_by_type(Node):
            if isinstance(node, TranslateNode):
                yield str(node.filter_expression.var.literal)
            elif isinstance(node, BlockTranslateNode):
                text = node.render_token_list(node.singular)[0]
                yield trim_whitespace(text) if node.trimmed else text


def in_code() -> Iterator[str]:
    for path in PACKAGE.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call):
                continue
            name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
            texts = [item.value for item in node.args if isinstance(item, ast.Constant) and isinstance(item.value, str)]
            if name in MARKS and texts:
                yield texts[0]
            elif name == "pgettext":
                yield SEPARATOR.join(texts)


@cache
def used() -> frozenset[str]:
    """Every text that is marked: found by the first test that asks, as all modules are read for that."""
    return frozenset([*in_templates(), *in_code()])


def written(language: str) -> dict[str, str]:
    """What the readable catalogue says: a reader of the plain form in which ours are written."""
    found: dict[str, str] = {}
    for entry in (LOCALE / language / "LC_MESSAGES" / "django.po").read_text().split("\n\n"):
        parts = {"msgctxt": "", "msgid": "", "msgstr": ""}
        current = ""
        for line in entry.splitlines():
            if line.startswith("#"):
                assert "fuzzy" not in line
                continue
            keyword, _, text = line.partition(" ")
            current, text = (keyword, text) if keyword in parts else (current, line)
            parts[current] += ast.literal_eval(text)
        if current:
            key = SEPARATOR.join([parts["msgctxt"], parts["msgid"]]) if parts["msgctxt"] else parts["msgid"]
            assert key not in found
            found[key] = parts["msgstr"]
    return found


def compiled(language: str) -> dict[str, str]:
    with (LOCALE / language / "LC_MESSAGES" / "django.mo").open("rb") as file:
        return dict(gettext.GNUTranslations(file)._catalog)  # type: ignore[attr-defined]


def test_there_are_texts_to_translate_and_these_languages() -> None:
    assert {"Allow access?", "Deny", "See the data that you can see"} <= used()
    assert len(used()) > 70
    assert sorted(path.name for path in LOCALE.iterdir()) == LANGUAGES


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_text_has_its_translation_and_no_other_has_one(language: str) -> None:
    catalogue = {key: value for key, value in written(language).items() if key}
    assert set(catalogue) == used()
    assert all(catalogue.values())


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_is_compiled_is_what_is_written(language: str) -> None:
    assert compiled(language) == written(language)


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_translation_keeps_what_is_filled_in_and_its_markup(language: str) -> None:
    for text, translation in written(language).items():
        if text:
            assert sorted(PLACES.findall(translation)) == sorted(PLACES.findall(text)), translation
