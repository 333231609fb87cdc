"""The measures together: the bars that they are held to, and what is written of them."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from . import surface
from .forms import FORMS, REACHES
from .measures import answerability, finding, recovery
from .shop import Endpoint
from .writes import JOBS, writes

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "evals" / "RESULTS.md"
RECORD = ROOT / "build" / "evals.json"
# What is measured, where it stands in the record, and the bar: a share to reach, or the most tokens.
BARS: Mapping[str, tuple[str, str, float]] = {
    "Questions answered in one call after `describe_model`": ("answerability", "one_call", 0.85),
    "Questions answered in three calls at most": ("answerability", "three_calls", 0.98),
    "Tokens of a question, median": ("answerability", "median_tokens", 1_500),
    "Tokens of a question, most": ("answerability", "most_tokens", 5_000),
    "Tokens of six prices by SKU, in one call": ("writes", "prices", 750),
    "Tokens of a merge of two customers, with its confirmation": ("writes", "merge", 1_300),
    "Wrong calls that the second try puts right": ("recovery", "right", 0.95),
    "Wordings whose model `list_models` names among its first three": ("finding", "found", 0.95),
}


def measured() -> dict[str, Any]:
    """Measure everything in the shop that is there."""
    endpoint = Endpoint()
    return {
        "answerability": answerability(endpoint),
        "writes": writes(endpoint),
        "recovery": recovery(endpoint),
        "finding": finding(endpoint),
        "surface": surface.tokens(),
    }


def reached(measures: Mapping[str, Any], what: str) -> bool:
    """Return whether a bar is reached: shares reach up to it, tokens stay below."""
    part, name, bar = BARS[what]
    value: float = measures[part][name]
    return value >= bar if bar <= 1 else value <= bar


def page(measures: Mapping[str, Any]) -> str:
    """Return what a person reads of the measures."""
    return "\n".join(_lines(measures))


def _lines(measures: Mapping[str, Any]) -> Iterator[str]:
    answers, found = measures["answerability"], measures["finding"]
    yield "# What questions the example shop's endpoint can answer\n"
    yield "`make evals` writes this page. [docs/evals.md](../docs/evals.md) says what is measured and how.\n"
    yield "| | | target | |\n|---|---|---|---|"
    for what, (part, name, bar) in BARS.items():
        verdict = "reached" if reached(measures, what) else "MISSED"
        yield f"| {what} | {_shown(measures[part][name], bar)} | {_shown(bar, bar)} | {verdict} |"
    yield f"\n## Answers\n\n{answers['questions']} questions. Tokens (o200k_base) are those of arguments and answers, "
    yield "`describe_model` included.\n"
    yield "| class | questions | in one call | in three | tokens, median |\n|---|---|---|---|---|"
    for kind, one in answers["classes"].items():
        counts = f"{one['questions']} | {one['one_call']} | {one['three_calls']}"
        yield f"| {kind} | {counts} | {one['median_tokens']} |"
    for name, fault in answers["faults"].items():
        yield f"\n- {name}: {fault}"
    yield "\n## Writes\n\nWith arguments and answers, at once and step by step; each confirmation is a call more.\n"
    yield "| | at once: calls | confirmations | tokens | in steps: calls | confirmations | tokens |"
    yield "|---|---|---|---|---|---|---|"
    for name, job in JOBS.items():
        ways = [measures["writes"]["jobs"][name][way] for way in ("at_once", "in_steps")]
        cells = [f"{way['calls']} | {way['confirmations']} | {way['tokens']}" for way in ways]
        yield f"| {job.title} | {' | '.join(cells)} |"
    yield "\n## Recovery\n\nEach correct call gets mistakes of twelve kinds; then a client does what the error says.\n"
    yield "| mistake | calls | right at the second try |\n|---|---|---|"
    for kind, one in measures["recovery"]["kinds"].items():
        yield f"| {kind} | {one['calls']} | {one['right']} |"
    yield f"\n## Finding\n\n{found['wordings']} wordings. Not found:\n"
    yield "\n".join(f"- {name}: {'; '.join(missed)}" for name, missed in found["missed"].items()) or "None."
    yield "\n## Reach\n\nForms of SQL, by the calls that give the same values; a test runs each.\n"
    yield "| calls | forms |\n|---|---|"
    yield from reach_rows()
    yield "\n## Surface\n\nTokens of `tools/list` in the example shop.\n\n| account | tokens | limit |\n|---|---|---|"
    for role, tokens in measures["surface"].items():
        yield f"| {role} | {tokens} | {surface.bounds()[role]} |"
    yield ""


def reach_rows() -> Iterator[str]:
    """Yield the rows of the table of forms, which need no measure."""
    for calls in REACHES:
        forms = [form.name for form in FORMS.values() if form.reach == calls]
        yield f"| {calls} | {len(forms)}: {', '.join(forms)} |"


def _shown(value: float, bar: float) -> str:
    return f"{value:.1%}" if bar <= 1 else f"{value:,.0f}"


def write(measures: Mapping[str, Any]) -> None:
    """Write the page and the record."""
    PAGE.write_text(page(measures))
    RECORD.parent.mkdir(exist_ok=True)
    RECORD.write_text(json.dumps(measures, indent=1, ensure_ascii=False) + "\n")
