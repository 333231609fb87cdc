"""Which models a question is about: ranked by its words, among what the caller may see.

Only words that the caller could read elsewhere count: names of models, fields, choices, relations and actions as
``describe_model`` gives them. How rare a word is, is counted over the same models.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import lru_cache
from math import log, sqrt
from typing import Any, Final

from django.conf import settings as django_settings
from django.utils import translation
from django.utils.choices import CallableChoiceIterator

from ..context.request import Exposure, MCPRequest
from ..orm.access import caller_actions, columns_of, visible_fields
from ..orm.columns import Column
from ..orm.kinds import choices_of
from ..runtime.hooks import asked
from .overviews import may_write, related_words
from .words import matches, question_stems, stems_of

# What a word counts for, by where it stands; a title is divided among its words.
TITLE: Final = 10.0
TERM: Final = 7.0
NAME: Final = 2.0
PROSE: Final = 1.5
APP: Final = 0.5
# The most that a word counts for which is not in a title.
MOST_OTHERS: Final = 4.0
# How soon further places of the same word count for less.
SATURATION: Final = 6.0
# Models that score less than this share of the best are left out after the first, and those after so many.
LEAST_SHARE: Final = 0.4
ALWAYS: Final = 3
MAX_FOUND: Final = 10
# Choices of one field that are read.
MAX_CHOICES: Final = 50
# Characters of a description or a help text that are read.
MAX_PROSE: Final = 500

# A text, and what its words count for.
Part = tuple[str, float]


def found_models(request: MCPRequest, exposures: Sequence[Exposure], query: str) -> list[Exposure]:
    """Return the exposures that a question is about, the best first; none where no word of it fits."""
    weights = [_weights(*_seen(request, exposure)) for exposure in exposures]
    spread: dict[str, float] = defaultdict(float)
    for words in weights:
        for word, weight in words.items():
            spread[word] += min(weight / TITLE, 1.0)
    names = {word for words in weights for word, weight in words.items() if weight > MOST_OTHERS}
    scores = [0.0] * len(exposures)
    for asked_for in question_stems(query, names):
        means = matches(asked_for, spread)
        for position, words in enumerate(weights):
            told = (
                sure * _score(words[word], spread[word] / len(weights)) for word, sure in means.items() if word in words
            )
            scores[position] += max(told, default=0.0)
    order = sorted((-score, position) for position, score in enumerate(scores) if score > 0)
    kept = [at for at, (score, _) in enumerate(order[:MAX_FOUND]) if at < ALWAYS or score <= order[0][0] * LEAST_SHARE]
    return [exposures[order[at][1]] for at in kept]


def _score(weight: float, share: float) -> float:
    """Return what a word adds to a model: by where it stands, and by how many of the models have it."""
    return log(1 + 1 / share) * weight / (weight + SATURATION)


def _seen(request: MCPRequest, exposure: Exposure) -> tuple[Any, ...]:
    """Return what the words of a model depend on for this caller."""
    actions: Mapping[str, Any] = caller_actions(request, exposure) if may_write(request) else {}
    terms = asked(exposure.label, "get_search_terms", exposure.get_search_terms, request, default=())
    return (
        exposure,
        visible_fields(request, exposure),
        tuple(related_words(request, exposure)),
        tuple((name, str(action.description)) for name, action in actions.items()),
        tuple(map(str, terms)),
        translation.get_language(),
    )


@lru_cache(maxsize=1024)
def _weights(
    exposure: Exposure,
    names: tuple[str, ...],
    related: tuple[str, ...],
    actions: tuple[tuple[str, str], ...],
    terms: tuple[str, ...],
    language: str | None,
) -> Mapping[str, float]:
    """Return what each stem counts for: in the language of the call and in that of the project."""
    columns = columns_of(exposure, names)
    titles: dict[str, float] = {}
    others: dict[str, float] = {}
    for spoken in dict.fromkeys([language, django_settings.LANGUAGE_CODE]):
        with translation.override(spoken):
            for text, weight in _titles(exposure, terms):
                stems = stems_of(text, all_words=True)
                for word in stems:
                    titles[word] = max(titles.get(word, 0.0), weight / sqrt(len(stems)))
            for text, weight in [*_said(exposure, columns), *((text, NAME) for text in related)]:
                for word in stems_of(text):
                    others[word] = others.get(word, 0.0) + weight
    for action in actions:
        for word in stems_of(" ".join(action)):
            others[word] = others.get(word, 0.0) + PROSE
    return {word: titles.get(word, 0.0) + min(others.get(word, 0.0), MOST_OTHERS) for word in titles | others}


def _titles(exposure: Exposure, terms: Iterable[str]) -> Iterator[Part]:
    opts = exposure.opts
    yield str(opts.verbose_name), TITLE
    yield str(opts.verbose_name_plural), TITLE
    yield opts.object_name or "", TITLE
    # As it is written in a label.
    yield opts.model_name or "", TITLE
    yield from ((term, TERM) for term in terms)


def _said(exposure: Exposure, columns: Iterable[Column]) -> Iterator[Part]:
    """Yield what is said of the model and of the columns."""
    yield exposure.opts.app_label, APP
    yield str(getattr(exposure.opts.app_config, "verbose_name", "")), APP
    yield exposure.description[:MAX_PROSE], PROSE
    for column in columns:
        field = column.field
        yield f"{column.name} {getattr(field, 'verbose_name', '')}", NAME
        yield str(getattr(field, "help_text", ""))[:MAX_PROSE], PROSE
        if column.kind == "field" and not isinstance(getattr(field, "choices", None), CallableChoiceIterator):
            # What code makes anew for each call is not kept for others.
            for stored, label in choices_of(field)[:MAX_CHOICES]:
                yield f"{stored} {label}", NAME
