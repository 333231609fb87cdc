"""Search for the models that a question is about, ranked by its words, among those that the caller sees.

Only words that the caller could read elsewhere count: names of models, fields, choices, relations and actions as
``describe_model`` gives them. The rarity of a word is computed over the same models.
"""

import re
import unicodedata
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import lru_cache
from math import log, sqrt
from typing import Any, Final

from django.conf import settings as django_settings
from django.utils import translation
from django.utils.choices import CallableChoiceIterator

from ..exposures.model_exposure import ModelExposure
from ..orm.access import ModelAccess
from ..orm.columns import Column
from ..orm.fields import kind_of
from ..runtime.failing_hooks import call_hook
from .model_overview import Overview, may_write

# Weights of a word by the kind of text that it is in. The more words a title or term has, the less each of them weighs.
TITLE: Final = 10.0
TERM: Final = 7.0
NAME: Final = 2.0
PROSE: Final = 1.5
APP: Final = 0.5
# Maximum weight that a word has from texts other than titles and terms.
MOST_OTHERS: Final = 4.0
# Weight at which a word scores half of its maximum: further occurrences add less and less.
SATURATION: Final = 6.0
# Share of the best score that a model needs unless it is among the first ALWAYS; at most MAX_FOUND are returned.
LEAST_SHARE: Final = 0.4
ALWAYS: Final = 3
MAX_FOUND: Final = 10
# Maximum number of choices read from one field.
MAX_CHOICES: Final = 50
# Maximum characters read from a description or a help text.
MAX_PROSE: Final = 500

# A text and the weight of its words.
Part = tuple[str, float]


def found_models(models: Sequence[ModelAccess], query: str) -> list[ModelAccess]:
    """Search models by the words of a question, the best match first; none if no word fits."""
    weights = [_weights(*_seen(model)) for model in models]
    spread: dict[str, float] = defaultdict(float)
    for words in weights:
        for word, weight in words.items():
            spread[word] += min(weight / TITLE, 1.0)
    names = {word for words in weights for word, weight in words.items() if weight > MOST_OTHERS}
    scores = [0.0] * len(models)
    for asked_for in question_stems(query, names):
        means = matches(asked_for, spread)
        for position, words in enumerate(weights):
            # Score of each matching word: its weight in this model times its rarity among all models.
            told = (
                sure * (log(1 + 1 / (spread[word] / len(weights))) * words[word] / (words[word] + SATURATION))
                for word, sure in means.items()
                if word in words
            )
            scores[position] += max(told, default=0.0)
    order = sorted((-score, position) for position, score in enumerate(scores) if score > 0)
    kept = [at for at, (score, _) in enumerate(order[:MAX_FOUND]) if at < ALWAYS or score <= order[0][0] * LEAST_SHARE]
    return [models[order[at][1]] for at in kept]


def _seen(model: ModelAccess) -> tuple[Any, ...]:
    """Return the cache key of a model's search words: all that they depend on for this caller."""
    request = model.request
    exposure = model.exposure
    actions: Mapping[str, Any] = model.actions if may_write(request) else {}
    terms = call_hook(exposure.label, "get_search_terms", exposure.get_search_terms, request, default=())
    return (
        exposure,
        model.fields,
        tuple(Overview(model).related()),
        tuple((name, str(action.description)) for name, action in actions.items()),
        tuple(map(str, terms)),
        translation.get_language(),
    )


@lru_cache(maxsize=1024)
def _weights(
    exposure: ModelExposure,
    names: tuple[str, ...],
    related: tuple[str, ...],
    actions: tuple[tuple[str, str], ...],
    terms: tuple[str, ...],
    language: str | None,
) -> Mapping[str, float]:
    """Return the weight of each word stem for the model search, in the languages of call and project."""
    columns = Column.all(exposure, names)
    titles: dict[str, float] = {}
    others: dict[str, float] = {}
    for spoken in dict.fromkeys([language, django_settings.LANGUAGE_CODE]):
        with translation.override(spoken):
            opts = exposure.opts
            # model_name is the name of the model as labels spell it.
            own = [str(opts.verbose_name), str(opts.verbose_name_plural), opts.object_name, opts.model_name]
            for text, weight in [*((name or "", TITLE) for name in own), *((term, TERM) for term in terms)]:
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


def _said(exposure: ModelExposure, columns: Iterable[Column]) -> Iterator[Part]:
    """Yield the texts of a model and its columns that the model search reads, with weights."""
    yield exposure.opts.app_label, APP
    yield str(getattr(exposure.opts.app_config, "verbose_name", "")), APP
    yield exposure.description[:MAX_PROSE], PROSE
    for column in columns:
        field = column.field
        yield f"{column.name} {getattr(field, 'verbose_name', '')}", NAME
        yield str(getattr(field, "help_text", ""))[:MAX_PROSE], PROSE
        if column.kind == "field" and not isinstance(getattr(field, "choices", None), CallableChoiceIterator):
            # Choices from a callable are left out: they can differ from call to call, and this result is cached.
            for stored, label in kind_of(field).choices[:MAX_CHOICES]:
                yield f"{stored} {label}", NAME


# Maximum number of words read from one question, and maximum characters of a word.
MAX_WORDS: Final = 24
MAX_WORD: Final = 40
# Minimum similarity of a misspelt word to the right one (by difflib), and how sure such a match is.
LEAST_LIKE: Final = 0.78
MISSPELT: Final = 0.7
# How sure a match by a synonym is, and by a synonym of a word that may be misspelt.
OTHER_WORD: Final = 0.6
UNSURE: Final = 0.4
# Minimum characters that two similar words share, and the minimum share of a common beginning in the longer word.
COMMON: Final = 4
COMMON_SHARE: Final = 0.55

_CAMEL: Final = re.compile(r"(?<=[a-z\d])(?=[A-Z])")
_WORD: Final = re.compile(r"[^\W_]+")
# Scripts that put no spaces between words.
_UNSPACED: Final = re.compile(r"[\u0e00-\u0eff\u3040-\u30ff\u3400-\u9fff]+")
_ENDINGS: Final = (
    *("ations", "ation", "ments", "ment", "ings", "ing", "ied", "ies", "ers"),
    *("ed", "es", "en", "er", "s", "y", "e", "i"),
)
LEAST_STEM: Final = 3

# Stop words of questions: English, German, French, Spanish, Italian, Portuguese.
_EMPTY: Final = """
    a about above across after again all also am an and any are as ask at be been before being below between both but by
    can could count counts did do does doing down during each ever every few find for from further get give had has have
    having he her here him his how i if in into is it its itself just know latest least less let list look made make
    many may me might more most much must my need never no nor not now number of off on once only or other our out over
    own per please called named
    same see shall she should show so some such tell than that the their them then there these they this those through
    time to too under until up us very want was we were what when where which while who whom whose why will with would
    yet you your
    day days week weeks month months quarter year years today yesterday ago last next since recent currently january
    february march april june july august september october november december first top best highest lowest average
    aber alle als am an auch auf aus bei bin bis das dass dem den der des die dies diese dieser doch du ein eine einem
    einen einer es für gibt haben hat ich ihr im in ist ja jede jeder kann kein keine man mehr mein mit nach nicht noch
    nur ob oder ohne seit sich sie sind so über um und uns von vor war waren was welche welchen welcher welches wenn
    wer werden wie wieviel wieviele wir wird wo wurde wurden zu zum zur zwischen
    au aux avec ce ces cette combien comme dans de depuis des dont du elle en est et il ils je la le les leur lui mais
    mes moi mon même ne nos notre nous ont ou où par pas plus pour quand que quel quelle quelles quels qui sa sans se
    ses son sont sur ta tes ton tous tout toutes très tu un une vos votre vous était été
    al algo con cual cuales cuando cuanto cuantos cuanta cuantas cómo como del desde donde el ella ellos entre era
    esta este estos fue ha hace hasta hay la las lo los más mi muy nada ni otro para pero por porque qué quien quién
    sin sobre son su sus también tiene todo todos una uno y ya yo
    che chi cosa come dai dal dalla degli dei del della delle di dove e gli ha hanno il io le loro ma nei nel nella non
    per perché più quale quali quando quanti quante quanto questo sono tra tutti un uno
    ao aos as até com da das dos e ela ele em entre essa esse foi isso já mais mas me na nas não no nos num o os ou
    para pela pelo qual quais quando quantos quantas que quem se sem ser seu sua são também tem um uma à é
"""
# Synonyms that businesses use, one group on each line.
_FAMILIES: Final = """
    customer client buyer consumer purchaser shopper patron
    order purchase checkout buy buying bought sale sold sell selling
    line item position entry row
    product article item goods merchandise sku
    supplier vendor manufacturer
    shipment parcel package delivery dispatch consignment freight shipping
    carrier courier
    invoice bill billing
    payment charge transaction paid pay money
    refund reimbursement chargeback
    review rating feedback opinion star comment
    stock inventory warehouse
    category kind type group class
    document file manual attachment pdf
    employee staff colleague worker personnel
    user account login member
    country nation
    city town
    sale sold sell selling seller revenue turnover earn earning income
    amount total sum price cost value worth spent spend spending spender revenue turnover earn earning income
    message mail email
    ticket case incident
    appointment booking reservation
    company organisation organization firm business
    person people contact customer client
    author writer
    return returned
"""


def words_of(text: str) -> Iterator[str]:
    """Split a text into words for the model search: case and accents folded, code names split."""
    plain = unicodedata.normalize("NFKD", _CAMEL.sub(" ", text).replace("ß", "ss"))
    plain = "".join(char for char in plain if not unicodedata.combining(char)).casefold()
    for word in _WORD.findall(unicodedata.normalize("NFC", plain)):
        if _UNSPACED.fullmatch(word):
            yield from (word[at : at + 2] for at in range(max(len(word) - 1, 1)))
        elif not word.isdecimal() and len(word) <= MAX_WORD:
            yield word


_STOPS: Final = frozenset(words_of(_EMPTY))


def telling_words(text: str) -> list[str]:
    """Return the words of a text for the model search, without stop words."""
    return [word for word in words_of(text) if word not in _STOPS]


def stems_of(text: str, *, all_words: bool = False) -> set[str]:
    """Return the stems of a text's words for the model search, without stop words or with ``all_words``."""
    return {stem(word) for word in words_of(text) if all_words or word not in _STOPS}


def question_stems(text: str, names: Collection[str]) -> list[str]:
    """Return the stems of a question to the model search, each once.

    A stop word counts only if its stem is one of ``names``, or if the question has nothing but stop words.
    """
    words = list(dict.fromkeys(words_of(text)))[: 4 * MAX_WORDS]
    telling = [word for word in words if word not in _STOPS or stem(word) in names] or words
    return list(dict.fromkeys(map(stem, telling)))[:MAX_WORDS]


@lru_cache(maxsize=8192)
def stem(word: str) -> str:
    """Stem a word for the model search: "deliveries", "delivered" and "delivery" have one stem."""
    if not word.isascii():
        return word
    # Twice, because "cities" ends in "es" and then in "i".
    for _ in range(2):
        ends = (end for end in _ENDINGS if word.endswith(end))
        # A longer ending must leave a longer stem, so that "order" does not become "ord".
        found = next((end for end in ends if len(word) - len(end) >= LEAST_STEM + (len(end) > 1)), None)
        if found is None or (found == "s" and word.endswith("ss")):
            break
        word = word.removesuffix(found)
    doubled = len(word) > LEAST_STEM and word[-1] == word[-2] and word[-1] not in "sl"
    return word[:-1] if doubled else word


@lru_cache(maxsize=1)
def _families() -> Mapping[str, frozenset[str]]:
    """Return the synonyms of each stem for the model search."""
    found: dict[str, frozenset[str]] = {}
    for line in _FAMILIES.strip().splitlines():
        family = frozenset(map(stem, line.split()))
        found |= {member: found.get(member, frozenset()) | family for member in family}
    return found


def matches(word: str, known: Collection[str]) -> dict[str, float]:
    """Match a stem of a question with the stems of a model search: return those meant, and how sure it is (0 to 1).

    A known stem matches itself and, less surely, its synonyms. An unknown stem matches its synonyms or else stems with
    the same beginning, stems that contain it or that it contains, and stems that it may be a misspelling of.
    """
    found = _other_words(word, known, OTHER_WORD)
    if word in known:
        # Names of models are often written as one word.
        whole = [other for other in known if other.startswith(word) or other.endswith(word)]
        parts = {other: OTHER_WORD * len(word) / len(other) for other in whole if len(word) >= LEAST_STEM}
        return parts | found | {word: 1.0}
    if found:
        return found
    alike = _alike(word, known)
    for other in _near(word, known):
        alike[other] = max(alike.get(other, 0.0), MISSPELT)
    if alike:
        return alike
    return {o: sure for near in _near(word, _families()) for o, sure in _other_words(near, known, UNSURE).items()}


def _other_words(word: str, known: Collection[str], sure: float) -> dict[str, float]:
    return {other: sure for other in _families().get(word, ()) if other in known}


def _alike(word: str, known: Iterable[str]) -> dict[str, float]:
    found = {}
    for other in known:
        shorter, longer = sorted((word, other), key=len)
        share = len(shorter) / len(longer)
        if other.startswith(word) and len(word) >= LEAST_STEM:
            found[other] = max(share, OTHER_WORD)
        elif len(shorter) >= COMMON and shorter in longer:
            found[other] = share
        else:
            differ = (at for at, (one, two) in enumerate(zip(word, other, strict=False)) if one != two)
            begins = next(differ, len(shorter))
            if begins >= COMMON and begins / len(longer) >= COMMON_SHARE:
                found[other] = begins / len(longer)
    return found


def _near(word: str, known: Iterable[str]) -> list[str]:
    """Return the words of a model search that a word could be a misspelling of."""
    if len(word) < COMMON:
        return []
    return get_close_matches(word, [other for other in known if abs(len(other) - len(word)) <= 2], 3, LEAST_LIKE)
