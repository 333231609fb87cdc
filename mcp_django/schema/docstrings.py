"""Docstrings of functions and classes: their text, and the text of each parameter."""

from __future__ import annotations

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
# The end of a sentence, but not the end of an abbreviation such as "e.g.".
_SENTENCE: Final = re.compile(r"(?<![.\s]\w)[.!?](?=\s+[A-Z\"'`(]|\s*$)")
MAX_SENTENCE: Final = 200
SPHINX_PARAMETERS: Final = frozenset({"param", "parameter", "arg", "argument", "key", "keyword"})


@dataclass(slots=True)
class Docstring:
    """What a docstring adds to annotations: its ``description``, and the texts of ``parameters`` by name."""

    description: str = ""
    parameters: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of_class(cls, owner: type) -> Docstring:
        """Return the docstring that a class itself has.

        Django gives a model without a docstring one that lists its fields, which does not count: ``Order(id, number)``
        (``ModelBase._prepare``).
        """
        text = owner.__dict__.get("__doc__") or ""
        if text.startswith(f"{owner.__name__}("):
            return cls()
        return cls.parse(text)

    @classmethod
    def parse(cls, text: str | None) -> Docstring:
        """Read a docstring in Google's style (``Args:``) or Sphinx's (``:param x:``)."""
        found = cls()
        lines = inspect.cleandoc(text or "").splitlines()
        prose: list[str] = []
        section: str | None = None
        entry: str | None = None
        for line in lines:
            bare = line.strip()
            if sphinx := _SPHINX.fullmatch(bare):
                section = "sphinx"
                entry = None
                if sphinx[1] in SPHINX_PARAMETERS and (named := (sphinx[2] or "").split()):
                    entry = named[-1].lstrip("*")
                    found.parameters[entry] = sphinx[3]
            elif (heading := _SECTION.fullmatch(line.rstrip())) and heading[1].lower() in SECTIONS:
                section = heading[1].lower()
                entry = None
            elif section is None:
                prose.append(line)
            elif not bare:
                entry = None if section == "sphinx" else entry
            elif section in PARAMETERS and 0 < len(line) - len(line.lstrip()) <= 4 and (start := _ENTRY.match(bare)):
                # A deeper line that looks like an entry continues the one above it.
                entry = start[1]
                found.parameters[entry] = start[2]
            elif entry is not None:
                found.parameters[entry] = f"{found.parameters[entry]} {bare}".strip()
        found.description = "\n".join(prose).strip()
        return found

    @property
    def summary(self) -> str:
        """The first sentence, cut if it is long; "" for none."""
        paragraph = " ".join(self.description.partition("\n\n")[0].split())
        end = _SENTENCE.search(paragraph)
        sentence = paragraph[: end.end()] if end is not None else paragraph
        if len(sentence) <= MAX_SENTENCE:
            return sentence
        return f"{sentence[:MAX_SENTENCE].rstrip()}…"
