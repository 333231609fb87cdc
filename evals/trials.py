"""Let a model answer the questions, and do the tasks, through the endpoint; each trial is undone afterwards.

A trial passes where the final values are those of the reference and the database is as it has to be: unchanged after a
question, and after a task changed as its ``check`` says, in the tables of ``changes`` and in no others.
"""

import argparse
import hashlib
import io
import itertools
import json
import re
import sys
import tomllib
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from .model import PROVIDERS, Conversation, ModelError, Turn, Use
from .questions import Question, Table, names, questions, same, table
from .shop import Endpoint, shop

TASKS: Final = Path(__file__).with_name("tasks.toml")
RECORD: Final = Path(__file__).resolve().parent.parent / "build" / "trials.json"
MAX_TURNS: Final = 15
# Columns of an answer among which those of the reference are looked for.
MAX_COLUMNS: Final = 6
FORM: Final = (
    "Answer the user's question, or do what they ask, with the tools. Nobody can answer questions of yours. End with a "
    'block ```json {"answer": [[...], ...]} ```: a row for each row of the answer, with its values alone, in the order '
    "in which they are asked for; a single value is one row of one value. Months are written as 2026-01, quarters as "
    "2026-Q1, shares as numbers between 0 and 1, percentages as numbers up to 100. After a task that asks for no "
    "values, answer [[true]]."
)
_BLOCK: Final = re.compile(r"```(?:json)?\s*(\{.*?\})\s*```", re.DOTALL)

Converse = Callable[[str, Sequence[Mapping[str, Any]]], Conversation]


@dataclass(frozen=True)
class Task:
    """Something to be done: ``check`` is Python over the example's models that is true afterwards.

    It knows by the name ``before`` what the expression ``before`` gave before the model began, and by ``said`` the
    values of the answer. With ``rules``, the approval rules of the demo are in force.
    """

    id: str
    ask: str
    check: str
    changes: tuple[str, ...]
    before: str = "None"
    rules: bool = False

    @property
    def kind(self) -> str:
        """The class of the task."""
        return "tasks"


@dataclass
class Trial:
    """What became of one try, and what it took."""

    passed: bool = False
    why: str = ""
    calls: int = 0
    read: int = 0
    written: int = 0

    def count(self, turn: Turn) -> None:
        """Count a turn of the model."""
        self.calls += len(turn.uses)
        self.read += turn.read
        self.written += turn.written


@dataclass
class Outcome:
    """The trials of one question or task."""

    asked: Question | Task
    trials: list[Trial] = field(default_factory=list)


def tasks(path: Path = TASKS) -> list[Task]:
    """Read the tasks."""
    found = tomllib.loads(path.read_text())["task"]
    return [Task(**{**entry, "changes": tuple(entry["changes"])}) for entry in found]


def attempt(asked: Question | Task, converse: Converse, username: str = "admin") -> Trial:
    """Let the model try once, judge what it did, and undo it.

    Raises:
        ModelError: the model cannot be asked.
    """
    from django.db import transaction

    endpoint = Endpoint(username)
    with transaction.atomic(), rules_of(asked):
        before = digests()
        known = asked.expected() if isinstance(asked, Question) else eval(asked.before, names())
        trial, text = _conversation(asked, endpoint, converse)
        changed = {name for name, digest in digests().items() if digest != before[name]}
        if not trial.why:
            trial.why = _fault(asked, text, known, changed)
        trial.passed = not trial.why
        transaction.set_rollback(True)
    return trial


@contextmanager
def rules_of(asked: Question | Task) -> Iterator[None]:
    """Put the approval rules of the demo in force for a task that needs them, within a transaction."""
    from django.core.management import call_command

    from mcp_django.approvals.rules import rule_book

    if not (isinstance(asked, Task) and asked.rules):
        yield
        return
    call_command("create_rules", stdout=io.StringIO())
    rule_book.expire()
    try:
        yield
    finally:
        rule_book.expire()


def _conversation(asked: Question | Task, endpoint: Endpoint, converse: Converse) -> tuple[Trial, str]:
    trial = Trial()
    conversation = converse(f"{endpoint.instructions()}\n\n{FORM}", endpoint.tools())
    turn = conversation.say(asked.ask)
    for _ in range(MAX_TURNS):
        trial.count(turn)
        if not turn.uses:
            return trial, turn.text
        turn = conversation.give([_used(endpoint, use) for use in turn.uses])
    trial.why = f"no answer after {MAX_TURNS} turns"
    return trial, ""


def _used(endpoint: Endpoint, use: Use) -> tuple[Use, str, bool]:
    from mcp_django.testing import MCPError

    if use.arguments is None:
        return use, "The arguments are not a JSON object.", True
    try:
        result = endpoint.answer(use.tool, use.arguments)
    except MCPError as error:
        return use, str(error), True
    text = "".join(block.get("text", "") for block in result["content"])
    return use, text, bool(result.get("isError"))


def _fault(asked: Question | Task, text: str, known: Any, changed: Collection[str]) -> str:
    """Return why a trial does not pass; ``known`` are the values of a question, or what was before a task."""
    allowed = asked.changes if isinstance(asked, Task) else ()
    if foreign := sorted(set(changed) - set(allowed)):
        return f"changed {', '.join(foreign)}"
    if isinstance(asked, Task):
        given = {**names(), "before": known, "said": final_values(text) or []}
        return "" if eval(asked.check, given) else "the database is not as it should be"
    found = final_values(text)
    if found is None:
        return "no values at the end"
    return "" if tells(found, known, ordered=asked.ordered) else "other values"


def final_values(text: str) -> Table | None:
    """Return the values of the last block of JSON, None where there are none."""
    for block in reversed(_BLOCK.findall(text)):
        with suppress(ValueError, KeyError, TypeError, OverflowError, RecursionError):
            return table(json.loads(block)["answer"])
    return None


def tells(found: Table, expected: Table, *, ordered: bool) -> bool:
    """Return whether columns of the answer are those of the reference, whatever else the answer has.

    The rows have to be the same ones; a column of the answer counts once.
    """
    if same(found, expected, ordered=ordered):
        return True
    width = len(expected[0]) if expected else 0
    if not found or len({len(row) for row in found}) != 1 or not width < len(found[0]) <= MAX_COLUMNS:
        return False
    return any(
        same([[row[column] for column in columns] for row in found], expected, ordered=ordered)
        for columns in itertools.permutations(range(len(found[0])), width)
    )


def digests() -> dict[str, str]:
    """Return a digest of the rows of each table of the shop, its places and its users, by the name of the model."""
    from django.apps import apps

    configs = map(apps.get_app_config, ("shop", "places", "auth"))
    models = [model for config in configs for model in config.get_models(include_auto_created=True)]
    found = {}
    for model in models:
        digest = hashlib.sha256()
        for row in model._default_manager.order_by("pk").values_list():
            digest.update(repr(row).encode())
        found[model.__name__] = digest.hexdigest()
    return found


# Report


def report(outcomes: Sequence[Outcome], k: int) -> dict[str, Any]:
    """Return the shares of questions that pass once (pass@1) and each of ``k`` times (pass^k), by class."""
    kinds: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in outcomes:
        kinds["all"].append(outcome)
        kinds[outcome.asked.kind].append(outcome)
    return {
        "k": k,
        "classes": {kind: _figures(found) for kind, found in kinds.items()},
        "trials": {outcome.asked.id: [vars(trial) for trial in outcome.trials] for outcome in outcomes},
    }


def _figures(outcomes: Sequence[Outcome]) -> dict[str, Any]:
    trials = [trial for outcome in outcomes for trial in outcome.trials]
    return {
        "questions": len(outcomes),
        "pass_once": sum(trial.passed for trial in trials) / len(trials),
        "pass_each_time": sum(all(trial.passed for trial in one.trials) for one in outcomes) / len(outcomes),
        **{
            name: round(sum(getattr(trial, name) for trial in trials) / len(trials), 1)
            for name in ("calls", "read", "written")
        },
    }


def lines(found: Mapping[str, Any]) -> list[str]:
    """Return the report as a table for people."""
    k = found["k"]
    head = f"{'class':<12}{'questions':>10}{'pass@1':>9}{f'pass^{k}':>9}{'calls':>7}{'read':>9}{'written':>9}"
    return [head] + [
        f"{kind:<12}{one['questions']:>10}{one['pass_once']:>9.1%}{one['pass_each_time']:>9.1%}"
        f"{one['calls']:>7.1f}{one['read']:>9,.0f}{one['written']:>9,.0f}"
        for kind, one in found["classes"].items()
    ]


# Command


def _positive(text: str) -> int:
    if (number := int(text)) < 1:
        raise ValueError
    return number


def parser() -> argparse.ArgumentParser:
    """Return the reader of the command line."""
    found = argparse.ArgumentParser(prog="python -m evals run", description="Let a model answer the questions.")
    found.add_argument("--provider", choices=sorted(PROVIDERS), required=True)
    found.add_argument("--model", required=True, help="its name for the provider")
    found.add_argument("--base-url", default="", help="of another server that speaks the provider's API")
    found.add_argument("--k", type=_positive, default=4, help="trials of each question (default: %(default)s)")
    found.add_argument("--only", nargs="+", default=[], metavar="ID", help="questions, tasks or classes")
    found.add_argument("--limit", type=int, help="at most so many of them")
    return found


def chosen(only: Sequence[str], limit: int | None) -> list[Question | Task]:
    """Return the questions and tasks of these ids or classes, all of them where none is named.

    Raises:
        ValueError: there is no such question, task or class.
    """
    every: list[Question | Task] = [*questions(), *tasks()]
    if unknown := sorted(set(only) - {name for one in every for name in (one.id, one.kind)}):
        raise ValueError(f"There is no question, task or class {', '.join(unknown)}.")
    return [one for one in every if not only or one.id in only or one.kind in only][:limit]


def main(arguments: Sequence[str]) -> int:
    """Run the command and return the exit status: 1 where the model cannot be asked, 2 for a wrong call."""
    options = parser().parse_args(arguments)
    try:
        wanted = chosen(options.only, options.limit)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 2

    def converse(system: str, tools: Sequence[Mapping[str, Any]]) -> Conversation:
        return PROVIDERS[options.provider](options.model, system, tools, options.base_url)

    try:
        # A key that is missing is said before the data are loaded.
        converse("", [])
    except ModelError as error:
        print(error, file=sys.stderr)
        return 1
    with shop():
        outcomes, failure = answered(wanted, converse, options.k)
    if outcomes:
        found = report(outcomes, options.k)
        RECORD.parent.mkdir(exist_ok=True)
        RECORD.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n")
        print(*lines(found), sep="\n")
    if failure is not None:
        print(failure, file=sys.stderr)
    return 0 if failure is None else 1


def answered(wanted: Sequence[Question | Task], converse: Converse, k: int) -> tuple[list[Outcome], ModelError | None]:
    """Return what became of the trials, as far as they came, and why they came no further."""
    outcomes: list[Outcome] = []
    for asked in wanted:
        outcome = Outcome(asked)
        try:
            for _ in range(k):
                outcome.trials.append(attempt(asked, converse))
        except ModelError as error:
            return outcomes, error
        outcomes.append(outcome)
        print(f"{asked.id}: {sum(trial.passed for trial in outcome.trials)} of {k}", flush=True)
    return outcomes, None
