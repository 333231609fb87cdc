"""The pages of the documentation, and the blocks of code that stand in them."""

import re
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
README = ROOT / "README.md"
DOCS = ROOT / "docs"


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    text: str

    @property
    def where(self) -> str:
        page = self.page.relative_to(ROOT) if self.page.is_relative_to(ROOT) else self.page.name
        return f"{page}:{self.line}"

    @property
    def file(self) -> str:
        """The file that the first line names, or ""."""
        found = re.match(r"# (\S+\.py)(?:, at the end)?\n", self.text)
        return found[1] if found else ""

    @property
    def is_appended(self) -> bool:
        """Whether the block goes to the end of its file instead of replacing it."""
        return self.text.partition("\n")[0].endswith(", at the end")


def blocks_of(page: Path) -> list[Block]:
    return blocks_in(page.read_text(), page)


def blocks_in(text: str, page: Path) -> list[Block]:
    """Return the blocks of a text, which stands in a page."""
    return [
        Block(page, text[: found.start()].count("\n") + 1, found[1], found[2])
        for found in re.finditer(r"^```(\w*)\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)
    ]


def section(page: Path, heading: str) -> str:
    """Return what stands below a heading, up to the next one of its level or above."""
    text = page.read_text()
    (found,) = re.finditer(rf"^(#+) {re.escape(heading)}$\n", text, re.MULTILINE)
    rest = text[found.end() :]
    # A comment in a block of code is no heading.
    prose = re.sub(r"^```.*?^```$", lambda block: " " * len(block[0]), rest, flags=re.MULTILINE | re.DOTALL)
    end = re.search(rf"^#{{1,{len(found[1])}}} ", prose, re.MULTILINE)
    return rest[: end.start()] if end else rest
