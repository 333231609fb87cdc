"""Descriptions from docstrings: what comes before the sections, and what they say of each parameter."""

import inspect
import re
from dataclasses import dataclass, field
from typing import Final

_SECTION: Final = re.compile(r"(\w[\w ]{0,30}):")
_SPHINX: Final = re.compile(r":(\w+)(?:\s+([^:]{0,200}))?:\s*(.*)")
_ENTRY: Final = re.compile(r"\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*(?::|--)\s+(.*)")
PARAMETERS: Final = frozenset({"args", "arguments", "parameters", "params", "keyword args", "attributes"})
SECTIONS: Final = PARAMETERS | frozenset(
    {"returns", "return", "raises", "yields", "examples", "example", "note", "notes"}
)
# The end of a sentence, which is no abbreviation such as "e.g.".
_SENTENCE: Final = re.compile(r"(?<![.\s]\w)[.!?](?=\s+[A-Z\"'`(]|\s*$)")
MAX_SENTENCE: Final = 200
SPHINX_PARAMETERS: Final = frozenset({"param", "parameter", "arg", "argument", "key", "keyword"})


@dataclass(slots=True)
class Docstring:
    """The text before the first section, and the text of each parameter, every one on a line of its own."""

    description: str = ""
    parameters: dict[str, str] = field(default_factory=dict)


def first_sentence(owner: type) -> str:
    """Return the first sentence of a class's own docstring, "" where it has none or Django wrote it.

    Django gives a model without one its fields as such: ``Order(id, number)`` (``ModelBase._prepare``).
    """
    text = owner.__dict__.get("__doc__") or ""
    if text.startswith(f"{owner.__name__}("):
        return ""
    paragraph = " ".join(parse_docstring(text).description.partition("\n\n")[0].split())
    end = _SENTENCE.search(paragraph)
    sentence = paragraph[: end.end()] if end is not None else paragraph
    return sentence if len(sentence) <= MAX_SENTENCE else f"{sentence[:MAX_SENTENCE].rstrip()}…"


def parse_docstring(text: str | None) -> Docstring:
    """Return what a docstring says, be its parameters in Google's style (``Args:``) or in Sphinx's (``:param x:``)."""
    found = Docstring()
    lines = inspect.cleandoc(text or "").splitlines()
    prose: list[str] = []
    section: str | None = None
    entry: str | None = None
    for line in lines:
        bare = line.strip()
        if sphinx := _SPHINX.fullmatch(bare):
            section, entry = "sphinx", _sphinx_entry(found, sphinx)
        elif line and not line[0].isspace() and (heading := _heading(bare)):
            section, entry = heading, None
        elif section is None:
            prose.append(line)
        elif not bare:
            entry = None if section == "sphinx" else entry
        elif section in PARAMETERS and (start := _entry(line, bare)):
            entry = start[0]
            found.parameters[entry] = start[1]
        elif entry is not None:
            found.parameters[entry] = f"{found.parameters[entry]} {bare}".strip()
    found.description = "\n".join(prose).strip()
    return found


def _heading(bare: str) -> str | None:
    match = _SECTION.fullmatch(bare)
    name = match[1].lower() if match else ""
    return name if name in SECTIONS else None


def _sphinx_entry(found: Docstring, match: re.Match[str]) -> str | None:
    words = (match[2] or "").split()
    if match[1] not in SPHINX_PARAMETERS or not words:
        return None
    name = words[-1].lstrip("*")
    found.parameters[name] = match[3]
    return name


def _entry(line: str, bare: str) -> tuple[str, str] | None:
    indent = len(line) - len(line.lstrip())
    match = _ENTRY.match(bare)
    # A deeper line that looks like an entry continues the one above it.
    return (match[1], match[2]) if match and 0 < indent <= 4 else None
