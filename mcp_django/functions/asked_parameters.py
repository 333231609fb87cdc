"""Asked parameters: the client's user, its AI model or the client itself provides their values, not the arguments.

``carrier: Annotated[str, Ask("Which carrier?")]`` is not in the input schema. All questions of a function are asked in
one round, before the function runs.
"""

from __future__ import annotations

import inspect
import math
import typing
from collections.abc import Callable, Collection, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, get_args, get_origin

from django.core.exceptions import ImproperlyConfigured
from django.forms import BaseForm

from ..exceptions import InputRequired
from ..schema.container_types import MISSING
from ..schema.signatures import Signature
from ..schema.value_types import FREE_OBJECT

if TYPE_CHECKING:
    from ..context.request import MCPRequest

# A text, or a function of the request and the call's arguments that returns it.
Text = str | Callable[..., str]


@dataclass(frozen=True, slots=True)
class Ask:
    """Parameter asked of the client's user: ``carrier: Annotated[str, Ask("Which carrier?")]``.

    The annotation says what to ask for, as in :meth:`~mcp_django.context.request.MCPContext.ask`, unless there is a
    ``form``: a Django form class, whose ``cleaned_data`` the function gets, or a function of the request
    and the arguments that returns a form. The default of the parameter is the initial value in the question.
    """

    message: Text
    form: Any = None


@dataclass(frozen=True, slots=True)
class Sample:
    """Parameter asked of the client's AI model: ``summary: Annotated[str, Sample("Summarise the order.",
    max_tokens=100)]``.

    The function gets the text, or the whole answer if the annotation is
    :class:`~mcp_django.context.sampling_and_roots.Sampled`.
    """

    prompt: Text
    max_tokens: int = 1_000
    system: str = ""


@dataclass(frozen=True, slots=True)
class Roots:
    """Like ``Ask``, marks an asked parameter; the client gives its directories: ``Annotated[list, Roots()]``."""


@dataclass(frozen=True, slots=True)
class Asked:
    """One asked parameter of a function; ``default`` is MISSING if it has none."""

    name: str
    annotation: Any
    marker: Ask | Sample | Roots
    default: Any = MISSING

    def answer(self, request: MCPRequest, arguments: Mapping[str, Any]) -> Any:
        """Return the answer for the asked parameter; raise ``InputRequired`` if it is not known yet."""
        mcp = request.mcp
        marker = self.marker
        match marker:
            case Ask():
                message = _text(marker.message, request, arguments)
                form = marker.form
                if form is None:
                    kind = self.annotation
                elif isinstance(form, type):
                    kind = form
                else:
                    kind = form(request, **arguments)
                return mcp.ask(message, kind, key=self.name, default=self.default)
            case Sample():
                from ..context.sampling_and_roots import Sampled

                prompt = _text(marker.prompt, request, arguments)
                found = mcp.sample(prompt, max_tokens=marker.max_tokens, system=marker.system, key=self.name)
                if self.annotation is Sampled:
                    return found
                return found.text
            case Roots():
                return mcp.roots(key=self.name)

    def check(self) -> None:
        """Raise ``ImproperlyConfigured`` if a form cannot ask for the parameter."""
        from ..context.request import KEY

        if not KEY.fullmatch(self.name):
            raise ImproperlyConfigured(f"{self.name} cannot be the key of a question")
        form = getattr(self.marker, "form", None)
        if isinstance(form, type) and not issubclass(form, BaseForm):
            raise ImproperlyConfigured(f"{self.name}: form must be a Django form")
        if isinstance(self.marker, Ask) and form is None:
            from ..schema.question_forms import question_form

            question_form(self.annotation, self.name)


def _text(text: Text, request: MCPRequest, arguments: Mapping[str, Any]) -> str:
    return str(text(request, **arguments) if callable(text) else text)


@dataclass(frozen=True, slots=True)
class AskedParameters:
    """The asked parameters of a function, in order.

    ``ARGUMENTS`` are those of every function that may ask, for answers from clients that cannot show questions to their
    user.
    """

    ARGUMENTS: ClassVar[Mapping[str, Any]] = {
        "answers": {**FREE_OBJECT, "description": "Answers to its questions, by name"},
        "confirm_token": {"type": "string", "description": "From its questions"},
    }

    items: tuple[Asked, ...]

    @classmethod
    def of(cls, function: Callable[..., Any], skip: Collection[str]) -> AskedParameters:
        """Read the parameters of the function, except those in ``skip``.

        Raises:
            ImproperlyConfigured: a form cannot ask for one of them.
        """
        signature = Signature(function)
        found = []
        for item in signature.parameters:
            if item.name in skip or item.annotation is item.empty:
                continue
            try:
                annotation = signature.resolve(item.annotation)
            except ImproperlyConfigured:
                # Reading the arguments raises the same error.
                continue
            while type(annotation).__name__ == "TypeAliasType":
                annotation = annotation.__value__
            bare, *extras = get_args(annotation) if get_origin(annotation) is Annotated else [None]
            marker = next((extra for extra in extras if isinstance(extra, (Ask, Sample, Roots))), None)
            if marker is None:
                continue
            others = tuple(extra for extra in extras if extra is not marker)
            kept: Any = typing.cast(Any, Annotated)[(bare, *others)] if others else bare
            asked = Asked(item.name, kept, marker, MISSING if item.default is item.empty else item.default)
            asked.check()
            found.append(asked)
        return cls(tuple(found))

    @property
    def names(self) -> tuple[str, ...]:
        """Their names."""
        return tuple(item.name for item in self.items)

    @property
    def of_user(self) -> tuple[str, ...]:
        """The names of those that the client's user is asked for."""
        return tuple(item.name for item in self.items if isinstance(item.marker, Ask))

    def answers(self, request: MCPRequest, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return their values; ``arguments`` are those of the call.

        Raises:
            InputRequired: some are not known yet; the exception has the questions for all of them.
            Declined: the user declined or dismissed a question.
        """
        steps = [lambda item=item: item.answer(request, arguments) for item in self.items]
        return dict(zip(self.names, InputRequired.together(steps), strict=True))


def finished(request: MCPRequest, value: Any) -> Any:
    """With asked parameters answered, return the function's result; a generator runs to its end, reporting progress.

    A generator expression is returned as a value.

    Raises:
        Cancelled: the client has gone, or the call has timed out; the generator has been closed.
        TypeError: the generator yielded something that is not a progress report.
    """
    if not inspect.isgenerator(value) or value.gi_code.co_name == "<genexpr>":
        return value
    last = 0.0
    is_counting = False
    with closing(value) as steps:
        while True:
            try:
                done, total, message = _read(next(steps))
            except StopIteration as end:
                return end.value
            if done is not None:
                last = float(done)
                is_counting = True
            elif message:
                # A text has no progress value, but the reported value must increase (basic/utilities/progress).
                last = math.nextafter(last, math.inf) if is_counting else last + 1
            request.mcp.progress(last, total, message)


def _read(report: Any) -> tuple[float | None, float | None, str]:
    match report:
        case None:
            return None, None, ""
        case str():
            return None, None, report
        case int() | float():
            return report, None, ""
        case (int() | float() as done, int() | float() | None as total):
            return done, total, ""
        case (int() | float() as done, int() | float() | None as total, message):
            return done, total, str(message)
    raise TypeError(f"a tool yields its progress, such as (done, total) or a text, not {type(report).__name__}")
