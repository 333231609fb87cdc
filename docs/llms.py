"""The documentation for language models: `llms.txt`, `llms-full.txt`, and each page as Markdown beside its HTML.

The format is that of https://llmstxt.org. Links are relative, as the site has no address of its own here; those within
pages lead to other pages' Markdown.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from docutils import nodes
from sphinx import addnodes
from sphinx.builders.text import TextBuilder

SUMMARY: Final = (
    "`mcp_django` (distribution: django-mcp-orm) is a Django app that opens a project's models and admin to clients of "
    "the Model Context Protocol. Users sign in with OAuth and get exactly what they can do in the admin."
)
NOTES: Final = """\
- To add it to a project, follow [For coding agents](agents.md): files to write, commands, what they print.
- Import `mcp_django as mcp`; declarations are in each app's `mcp.py`. It is not the package `mcp-django` of PyPI.
- [All pages as one text](llms-full.txt). Each page is here as HTML and as Markdown (`.md`)."""
# They are about the code of the package, not about its use.
LEFT_OUT: Final = "decisions/"


class LanguageModelPages:
    """Writes the files after a build of the site."""

    def __init__(self, app: Any) -> None:
        self._env = app.env
        self._source = Path(app.srcdir)
        self._place = Path(app.outdir)
        self._texts = TextBuilder(app, app.env)
        self._texts.secnumbers = {}

    def write(self) -> None:
        """Write all files into the directory of the built site."""
        lines = [f"# {self._env.config.project}", f"> {SUMMARY}", NOTES]
        pages = [self._text("index")]
        for caption, names in self._sections():
            lines.append(f"## {caption}\n\n" + "\n".join(self._line(name) for name in names))
            pages += [self._text(name) for name in names]
        (self._place / "llms.txt").write_text("\n\n".join(lines) + "\n", encoding="utf-8")
        (self._place / "llms-full.txt").write_text("\n\n".join(pages), encoding="utf-8")

    def _sections(self) -> Iterator[tuple[str, list[str]]]:
        """Yield the parts of the navigation, with the names of their pages."""
        for tree in self._env.get_doctree("index").findall(addnodes.toctree):
            named = [name for _, name in tree["entries"] if not name.startswith(LEFT_OUT)]
            # The pages below a page come after it.
            yield (
                tree["caption"],
                [page for name in named for page in (name, *self._env.toctree_includes.get(name, []))],
            )

    def _line(self, name: str) -> str:
        """Return a page's entry of `llms.txt`: its title, and what its reader can do after it, if it says so."""
        entry = f"- [{self._env.titles[name].astext()}]({name}.md)"
        first = next(self._env.get_doctree(name).findall(nodes.paragraph))
        promise = re.match(r"After th\w+ pages? you (?:can )?(.+?\.)(?:\s|$)", " ".join(first.astext().split()))
        return entry if promise is None else f"{entry}: {promise[1][0].upper()}{promise[1][1:]}"

    def _text(self, name: str) -> str:
        """Write a page as Markdown, and return it with its place above it."""
        text = self._markdown(name)
        path = self._place / f"{name}.md"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return f"<!-- Page: {name}.md -->\n\n{text}"

    def _markdown(self, name: str) -> str:
        path = Path(self._env.doc2path(name))
        if path.suffix != ".md":
            # What autodoc reads is not in the source.
            doctree = self._env.get_and_resolve_doctree(name, self._texts)
            writer = self._texts.create_translator(doctree, self._texts)
            doctree.walkabout(writer)
            # Its first two lines are the title, underlined.
            title, _, body = writer.body.split("\n", 2)
            return f"# {title}\n\n```text\n{body.strip()}\n```\n"
        text = path.read_text(encoding="utf-8")
        text = re.sub(r"^:::\{include\} (\S+)\n.*?^:::$", lambda part: self._included(part[1]), text, flags=re.M | re.S)
        text = re.sub(r"^:::\{(?:index|toctree)\}.*?^:::\n*", "", text, flags=re.MULTILINE | re.DOTALL)
        return re.sub(r"!\[([^\]]*)\]\([^)]*\)", r"(Picture: \1)", text)

    def _included(self, name: str) -> str:
        text = (self._source / name).read_text(encoding="utf-8")
        # It stands one folder above the pages to which it leads.
        return text.replace("](docs/", "](")


def write_pages(app: Any, failure: Exception | None) -> None:
    """Write the files at the end of a build of HTML; part of Sphinx's event `build-finished`."""
    if failure is None and app.builder.format == "html":
        LanguageModelPages(app).write()
