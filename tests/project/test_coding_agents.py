"""A coding agent that has only the built documentation adds the app to a project, and finds what is written for it."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from django.core.management import call_command

from mcp_django.management.commands.startmcp import AGENT_FILES, AGENT_TEXTS
from tests.documentation import ROOT, Block, blocks_in
from tests.project.test_tutorial import Reader, steps_of
from tests.readme_project.builder import SOURCES

pytestmark = [pytest.mark.one_django, pytest.mark.walk]
PAGE = "agents.md"


def pages_of(text: str) -> dict[str, str]:
    """Return the pages of `llms-full.txt` by their names."""
    parts = re.split(r"^<!-- Page: (\S+) -->\n", text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


@pytest.fixture
def agent(tmp_path: Path) -> Iterator[Reader]:
    """An agent in a project as `startproject` makes it, whose person has an app with models and an admin."""
    path = tmp_path / "work"
    path.mkdir()
    call_command("startproject", "project", str(path))
    shutil.copytree(SOURCES / "shop", path / "shop", ignore=shutil.ignore_patterns("__pycache__"))
    settings = path / "project" / "settings.py"
    settings.write_text(settings.read_text() + '\nINSTALLED_APPS += ["shop"]\n')
    reader = Reader(path)
    reader.environment["DJANGO_SETTINGS_MODULE"] = "project.settings"
    for command in (["makemigrations", "shop"], ["migrate", "shop"]):
        reader.run(steps_of(Block(path, 0, "console", "$ " + " ".join(command)))[0], ["manage.py", *command])
    yield reader
    reader.forget()
    reader.stop()


def test_who_has_only_the_documentation_adds_the_app_and_the_doctor_finds_all_well(
    agent: Reader, built_docs: Path
) -> None:
    # The first file that an agent looks for leads to the page for it.
    first = (built_docs / "llms.txt").read_text()
    assert re.search(rf"^- .*\]\({re.escape(PAGE)}\)", first, re.MULTILINE)
    text = pages_of((built_docs / "llms-full.txt").read_text())[PAGE]
    project = agent.path
    commands = []
    for block in blocks_in(text, built_docs / PAGE):
        if block.file:
            agent.write(block)
            continue
        for step in steps_of(block):
            agent.do(step)
            commands.append(step.command)
    assert "python manage.py check" in commands
    assert "python manage.py mcp_doctor --user ada" in commands
    assert (project / "shop" / "mcp.py").exists()
    assert all((project / place).exists() for place in AGENT_FILES)
    works_by_the_skill(agent)


def works_by_the_skill(agent: Reader) -> None:
    """Write what the skill shows, in place of what was proposed, and run its test."""
    (place,) = (agent.path / place for place, name in AGENT_FILES.items() if name == "SKILL.md")
    exposure, tool, test = (block.text for block in blocks_in(place.read_text(), place) if block.language == "python")
    (agent.path / "shop" / "mcp.py").write_text(f"{exposure}\n\n{tool}")
    (agent.path / "shop" / "tests.py").write_text(test)
    shown = "$ python manage.py mcp_call unpaid_total --user ada\n0"
    (call,) = steps_of(Block(place, 0, "console", shown))
    agent.forget()
    agent.do(call)
    agent.run(call, ["manage.py", "test", "shop"])


def test_all_pages_are_in_one_text_in_the_order_of_the_navigation(built_docs: Path) -> None:
    listed = re.findall(r"^- \[.+?\]\((\S+?\.md)\)", (built_docs / "llms.txt").read_text(), re.MULTILINE)
    pages = pages_of((built_docs / "llms-full.txt").read_text())
    assert ["index.md", *listed] == list(pages)
    sources = {str(page.relative_to(ROOT / "docs")) for page in (ROOT / "docs").rglob("*.md")}
    assert sources - set(pages) == {name for name in sources if name.startswith("decisions/")}
    for name, text in pages.items():
        assert (built_docs / name).read_text().strip() == text.strip()
        assert ":::{" not in text
    assert "mcp_django.register" in pages["reference/decorators.md"]
    assert "## Unreleased" in pages["changes.md"]


def test_the_list_of_pages_has_the_format_of_llms_txt(built_docs: Path) -> None:
    title, summary, _, *sections = (built_docs / "llms.txt").read_text().split("\n\n")
    assert title == "# django-mcp-orm"
    assert re.fullmatch(r"> [^\n]+", summary)
    assert all(heading.startswith("## ") for heading in sections[::2])
    for entries in sections[1::2]:
        assert all(re.fullmatch(r"- \[[^\]]+\]\([\w/.-]+\.md\)(: .+)?", line) for line in entries.strip().split("\n"))


def test_links_of_the_pages_as_markdown_lead_to_pages(built_docs: Path) -> None:
    pages = pages_of((built_docs / "llms-full.txt").read_text())
    for name, text in pages.items():
        for target in re.findall(r"\]\((?!https?:)([^)\s#]+)[^)]*\)", text):
            # Those that lead to the repository, of the changelog and of pages about the code.
            if target.endswith(".md") and not target.startswith("../") and "decisions/" not in target:
                assert (built_docs / name).parent.joinpath(target).exists(), (name, target)


def test_the_skill_is_one_that_agents_load() -> None:
    (place,) = (place for place, name in AGENT_FILES.items() if name == "SKILL.md")
    _, head, body = (AGENT_TEXTS / "SKILL.md").read_text().split("---\n", 2)
    fields = yaml.safe_load(head)
    # As https://agentskills.io wants it: the name is that of the folder, and the description says when to use it.
    assert fields["name"] == Path(place).parent.name
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", fields["name"])
    assert "Use it to" in fields["description"]
    assert len(fields["description"]) <= 1024
    assert len(body.splitlines()) < 500
