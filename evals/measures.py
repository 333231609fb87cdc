"""What is measured without a model: answers, how models of data are found, and what clients are shown."""

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from benchmarks.tokens import SHOWN, count_tokens

from .questions import Question, filled, questions
from .recovery import WAYS, measure
from .shop import Endpoint

# Models that a client reads of list_models before it takes one.
FIRST = 3


@dataclass(frozen=True)
class Answered:
    """What became of a question: how many calls it took, the texts that went to and fro, and why it is wrong."""

    question: Question
    calls: int
    texts: Sequence[str]
    fault: str = ""


def ask(endpoint: Endpoint, question: Question) -> Answered:
    """Describe the models of a question, make its calls and compare what they say with what the ORM says."""
    models = ",".join(asked_models(question))
    described = endpoint.answer("describe_model", {"model": models})
    texts = [json.dumps({"model": models}), text_of(described)]
    answers: list[Mapping[str, Any]] = []
    for tool, arguments in question.calls:
        given = filled(arguments, answers)
        result = endpoint.answer(tool, given)
        texts += [json.dumps(given), text_of(result)]
        if result.get("isError"):
            return Answered(question, len(question.calls), texts, text_of(result))
        answers.append(result["structuredContent"])
    fault = "" if question.agrees(answers) else "the values are not those of the ORM"
    return Answered(question, len(question.calls), texts, fault)


def asked_models(question: Question) -> list[str]:
    """Return the models that the calls of a question name."""
    return list(dict.fromkeys(str(arguments["model"]) for _, arguments in question.calls))


def text_of(result: Mapping[str, Any]) -> str:
    """Return what a model reads of a result."""
    return "".join(str(block.get("text", "")) for block in result["content"])


def answerability(endpoint: Endpoint) -> dict[str, Any]:
    """Return the share of questions that one call answers, and three at most, by class; and their tokens."""
    asked = [ask(endpoint, question) for question in questions()]
    counts = iter(count_tokens([text for one in asked for text in one.texts]))
    tokens = {one.question.id: sum(next(counts) for _ in one.texts) for one in asked}
    kinds: dict[str, list[Answered]] = defaultdict(list)
    for one in asked:
        kinds[one.question.kind].append(one)
    return {
        "questions": len(asked),
        "one_call": share([not one.fault and one.calls == 1 for one in asked]),
        "three_calls": share([not one.fault and one.calls <= 3 for one in asked]),
        "median_tokens": round(statistics.median(tokens.values())),
        "most_tokens": max(tokens.values()),
        "classes": {
            kind: {
                "questions": len(found),
                "one_call": sum(not one.fault and one.calls == 1 for one in found),
                "three_calls": sum(not one.fault and one.calls <= 3 for one in found),
                "median_tokens": round(statistics.median(tokens[one.question.id] for one in found)),
            }
            for kind, found in kinds.items()
        },
        "faults": {one.question.id: one.fault for one in asked if one.fault},
        "tokens": tokens,
    }


def finding(endpoint: Endpoint) -> dict[str, Any]:
    """Return for which share of wordings ``list_models`` names a fitting model among its first."""
    missed: dict[str, list[str]] = {}
    wordings = 0
    for question in questions():
        wanted = {*question.models, *asked_models(question)}
        for wording in question.also:
            wordings += 1
            result = endpoint.answer("list_models", {"query": wording})
            rows = result.get("structuredContent", {}).get("rows", [])[:FIRST]
            if not wanted.intersection(row[0] for row in rows):
                missed.setdefault(question.id, []).append(wording)
    return {"wordings": wordings, "found": 1 - sum(map(len, missed.values())) / wordings, "missed": missed}


def recovery(endpoint: Endpoint, asked: Iterable[Question] | None = None) -> dict[str, Any]:
    """Return for which share of calls, each made wrong, a client that does what the error says gets it right.

    The calls are those of all questions, or of some.
    """
    chosen = questions() if asked is None else asked
    score = measure(endpoint.response, (call for question in chosen for call in runnable(endpoint, question)))
    return {
        "right": score.share,
        "kinds": {kind: {"calls": score.tried[kind], "right": score.right[kind]} for kind in WAYS},
        "failed": [{"kind": kind, **wrong, "why": why} for kind, wrong, why in score.failures],
    }


def runnable(endpoint: Endpoint, question: Question) -> Iterator[dict[str, Any]]:
    """Yield the calls of a question with the values that the calls before gave."""
    answers: list[Mapping[str, Any]] = []
    for tool, arguments in question.calls:
        call = {"tool": tool, "arguments": filled(arguments, answers)}
        yield call
        if len(answers) + 1 < len(question.calls):
            answers.append(endpoint.answer(tool, call["arguments"]).get("structuredContent", {}))


def shown(tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return what clients show of tools to a model."""
    return [{name: tool[name] for name in SHOWN if name in tool} for tool in tools]


def share(verdicts: Sequence[bool]) -> float:
    """Return which part of the verdicts is true."""
    return sum(verdicts) / len(verdicts)
