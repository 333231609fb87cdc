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
# Between the forms of a text that counts something, as in a compiled catalogue.
PLURAL = "\0"
# What is filled in, and what must stay markup.
PLACES = re.compile(r"%\(\w+\)s|\{\w+\}|</?[a-z]+[^>]*>")


def in_templates() -> Iterator[str]:
    for name in TEMPLATES:
        template: Any = get_template(str(name))
        for node in template.template.nodelist.get_nodes_by_type(Node):
            if isinstance(node, TranslateNode):
                yield str(node.filter_expression.var.literal)
            elif isinstance(node, BlockTranslateNode):
                parts = [node.singular, node.plural] if node.plural else [node.singular]
                texts = [node.render_token_list(part)[0] for part in parts]
                yield PLURAL.join(map(trim_whitespace, texts) if node.trimmed else texts)


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
            elif name == "ngettext":
                yield PLURAL.join(texts)


@cache
def used() -> frozenset[str]:
    """Every text that is marked: found by the first test that asks, as all modules are read for that."""
    return frozenset([*in_templates(), *in_code()])


def written(language: str) -> dict[str, str]:
    """What the readable catalogue says: a reader of the plain form in which ours are written."""
    found: dict[str, str] = {}
    for entry in (LOCALE / language / "LC_MESSAGES" / "django.po").read_text().split("\n\n"):
        parts: dict[str, str] = {}
        current = ""
        for line in entry.splitlines():
            if line.startswith("#"):
                assert "fuzzy" not in line
                continue
            keyword, _, text = line.partition(" ")
            current, text = (keyword, text) if keyword.startswith("msg") else (current, line)
            parts[current] = parts.get(current, "") + ast.literal_eval(text)
        if parts:
            key = PLURAL.join(parts[name] for name in ("msgid", "msgid_plural") if name in parts)
            key = SEPARATOR.join([parts["msgctxt"], key]) if "msgctxt" in parts else key
            assert key not in found
            forms = [parts[name] for name in sorted(parts) if name.startswith("msgstr")]
            assert all(forms) or not key
            found[key] = PLURAL.join(forms)
    return found


def compiled(language: str) -> dict[str, str]:
    found: dict[str, str] = {}
    for key, text in catalogue(language)._catalog.items():  # type: ignore[attr-defined]
        # Each form has a key of its own, without the text for many.
        (key, number) = key if isinstance(key, tuple) else (key, 0)
        found[key] = PLURAL.join([found[key], text]) if number else text
    return found


def catalogue(language: str) -> gettext.GNUTranslations:
    with (LOCALE / language / "LC_MESSAGES" / "django.mo").open("rb") as file:
        return gettext.GNUTranslations(file)


def test_there_are_texts_to_translate_and_these_languages() -> None:
    assert {"Allow access?", "Deny", "See the data that you can see"} <= used()
    assert len(used()) > 70
    assert sorted(path.name for path in LOCALE.iterdir()) == LANGUAGES


@pytest.mark.parametrize("language", LANGUAGES)
def test_every_text_has_its_translation_and_no_other_has_one(language: str) -> None:
    found = {key: value for key, value in written(language).items() if key}
    assert set(found) == used()
    assert all(found.values())


@pytest.mark.parametrize("language", LANGUAGES)
def test_what_is_compiled_is_what_is_written(language: str) -> None:
    assert compiled(language) == {key.partition(PLURAL)[0]: text for key, text in written(language).items()}


@pytest.mark.parametrize("language", LANGUAGES)
def test_a_translation_keeps_what_is_filled_in_and_its_markup(language: str) -> None:
    for text, translation in written(language).items():
        if text:
            places = [sorted(PLACES.findall(form)) for form in text.split(PLURAL)]
            # The form for one may say it in words.
            assert all(sorted(PLACES.findall(form)) in places for form in translation.split(PLURAL)), translation


@pytest.mark.parametrize("language", LANGUAGES)
def test_each_form_of_a_number_is_written(language: str) -> None:
    choose = catalogue(language).plural  # type: ignore[attr-defined]
    forms = {choose(number) for number in range(200)}
    assert forms == set(range({"ar": 6, "pl": 3, "ja": 1, "ko": 1, "zh_Hans": 1}.get(language, 2)))
    for text, translation in written(language).items():
        if PLURAL in text:
            assert len(translation.split(PLURAL)) == len(forms)
