"""The admin's form of an approval rule, which refuses what does not fit, and what the history says of a change."""

import json
from collections.abc import Mapping
from typing import Any, ClassVar, Final

from django import forms
from django.apps import apps
from django.contrib.admin.widgets import FilteredSelectMultiple
from django.db.models import Model, QuerySet
from django.utils.functional import cached_property
from django.utils.html import format_html, format_html_join
from django.utils.text import Truncator, capfirst
from django.utils.translation import gettext, override
from django.utils.translation import gettext_lazy as _

from ..approvals.conditions import RuleCondition
from ..approvals.rule_faults import RuleNames, faults_of
from ..approvals.rules import Rule
from ..models import ApprovalRule
from .known_sites import known_sites

# Maximum characters of a value in the history.
MAX_VALUE: Final = 500
# Maximum number of permissions that a browser can complete.
MAX_OFFERED: Final = 1_000
CODE: Final = {"dir": "ltr", "spellcheck": "false", "autocapitalize": "off", "autocomplete": "off"}
LARGE: Final = {**CODE, "class": "vLargeTextField"}


class Offered(forms.TextInput):
    """A text field whose values the browser can complete; ``offered`` returns them."""

    offered: Any = None

    def render(self, name: str, value: Any, attrs: Any = None, renderer: Any = None) -> Any:
        """Render the field with its list of values."""
        key = f"{name}-offered"
        options = format_html_join("", '<option value="{}"></option>', ((item,) for item in (self.offered or list)()))
        field = super().render(name, value, {**(attrs or {}), "list": key}, renderer)
        return format_html('{}<datalist id="{}">{}</datalist>', field, key, options)


class ModelChooser(FilteredSelectMultiple):
    """A choice of several models, which its script puts into two lists."""

    def render(self, *args: Any, **kwargs: Any) -> Any:
        """Render the choice in an element of its own: the script moves it to the beginning of where it stands."""
        return format_html("<div>{}</div>", super().render(*args, **kwargs))


class NamesField(forms.CharField):
    """A list of names, one a line."""

    widget = forms.Textarea(attrs={**LARGE, "rows": 3})

    def prepare_value(self, value: Any) -> Any:
        """Return the names as lines."""
        if isinstance(value, (list, tuple)):
            return "\n".join(map(str, value))
        return value

    def to_python(self, value: Any) -> list[str]:  # type: ignore[override]
        """Return the names, each once."""
        lines = str(value or "").splitlines()
        return list(dict.fromkeys(line.strip() for line in lines if line.strip()))

    def run_validators(self, value: Any) -> None:
        """Run none: those of a text do not fit a list."""

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Return whether there are other names."""
        return self.to_python(self.prepare_value(initial)) != self.to_python(data)


class ConditionField(forms.JSONField):
    """A condition as JSON, indented; an empty text is the condition that always holds."""

    widget = forms.Textarea(attrs={**LARGE, "rows": 6})
    empty_values = [*forms.JSONField.empty_values, {}]  # noqa: RUF012 - as Django's fields have it

    def prepare_value(self, value: Any) -> Any:
        """Return the condition as text."""
        if value in (None, {}):
            return ""
        if isinstance(value, (Mapping, list)):
            return json.dumps(value, indent=2, ensure_ascii=False)
        return super().prepare_value(value)

    def clean(self, value: Any) -> Any:
        """Return the condition, an empty one for an empty text."""
        return super().clean(value.strip() if isinstance(value, str) else value) or {}

    def has_changed(self, initial: Any, data: Any) -> bool:
        """Return whether it is another condition, however it is written."""
        return super().has_changed(initial or {}, data or "{}")


class ApprovalRuleForm(forms.ModelForm):  # type: ignore[type-arg]
    """The form of a rule: every name must be there, and the condition must fit each model."""

    labels = forms.MultipleChoiceField(
        label=_("models"), required=False, help_text=_("None chosen means the rows of all models.")
    )
    kinds = forms.MultipleChoiceField(
        label=_("kinds of calls"),
        required=False,
        choices=ApprovalRule.Kind.choices,
        widget=forms.CheckboxSelectMultiple,
        help_text=_("None chosen means all kinds."),
    )
    tools = NamesField(
        label=_("tools"),
        required=False,
        help_text=_("One name a line, as clients know it. Empty means all tools."),
    )
    actions = NamesField(
        label=_("actions"),
        required=False,
        help_text=_("One a line, such as shop.order.refund. Empty means all actions."),
    )
    condition = ConditionField(
        label=_("condition"),
        required=False,
        help_text=_(
            'JSON, as in filters of query_records. {"total__gt": 100} is about rows before or after the call, '
            '{"after": {"status": "refunded"}} about rows after it, and {"arguments": {"amount__gt": 100}} about what '
            "the call is given. Columns that callers do not see count too. What cannot be compared meets the condition."
        ),
    )
    clients = NamesField(label=_("calls by these clients"), required=False, help_text=_("One client id a line."))

    class Meta:
        model = ApprovalRule
        fields = (
            *("name", "is_active", "effect", "labels", "kinds", "tools", "actions", "condition", "rows_above"),
            *("users", "groups", "service_accounts", "clients", "permission", "group", "hours"),
        )
        widgets: ClassVar = {"permission": Offered(attrs={**CODE, "class": "vTextField"})}
        help_texts: ClassVar = {
            "effect": _("What is blocked is refused, and nobody can approve it."),
            "rows_above": _("Calls with no more rows than this pass. Empty means any number."),
            "users": _("A rule that names no users, groups, service accounts or clients is for all callers."),
            "permission": _(
                "Such as shop.approve_refund. Whoever has it decides, but not on what they have asked for themselves."
            ),
            "group": _("Its members decide, in place of those with a permission."),
            "hours": _("A request that nobody has decided by then expires."),
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        for name in ("labels", "kinds"):
            self.initial[name] = _texts(self.initial.get(name))
        fields: dict[str, Any] = self.fields
        for name in self.declared_fields:
            fields[name].label = capfirst(fields[name].label)
        if "hours" not in fields:
            # Whoever may only view rules gets no fields of the model.
            return
        # What is chosen stays chosen although the model is gone: without it, the rule would be about all models.
        known = known_labels()
        chosen = [(label, label) for label in self.initial["labels"] if label not in known]
        fields["labels"].widget = ModelChooser(gettext("models"), is_stacked=True)
        fields["labels"].choices = [*chosen, *known.items()]
        fields["hours"].widget.attrs["min"] = 1
        fields["permission"].widget.offered = self._permissions

    def _permissions(self) -> list[str]:
        return sorted(self._names.permissions)[:MAX_OFFERED]

    @cached_property
    def _names(self) -> RuleNames:
        return RuleNames(known_sites().values())

    def clean_actions(self) -> list[str]:
        """Return the actions with the labels of their models in lower case."""
        return [_as_action(name) for name in self.cleaned_data["actions"]]

    def clean_hours(self) -> int:
        """Validate that requests are open for some time."""
        hours: int = self.cleaned_data["hours"]
        if hours < 1:
            raise forms.ValidationError(gettext("A request is open for at least one hour."))
        return hours

    def clean(self) -> dict[str, Any]:
        """Validate that all that is named is there, and that the condition fits."""
        cleaned = super().clean() or {}
        group = cleaned.get("group")
        rule = Rule(
            name=cleaned.get("name", ""),
            blocks=cleaned.get("effect") == ApprovalRule.Effect.BLOCK,
            labels=frozenset(cleaned.get("labels", ())),
            kinds=frozenset(cleaned.get("kinds", ())),
            tools=frozenset(cleaned.get("tools", ())),
            actions=frozenset(cleaned.get("actions", ())),
            condition=_condition(cleaned.get("condition")),
            permission=cleaned.get("permission", ""),
            group=group.name if group is not None else "",
            group_key=group.pk if group is not None else None,
        )
        for column, text in faults_of(rule, self._names):
            if column not in self.errors:
                self.add_error(column, text)
        return cleaned


def _condition(data: Any) -> RuleCondition:
    """Return a condition that is read later, whatever its JSON holds."""
    condition = RuleCondition()
    condition.data = data or {}
    return condition


def known_labels() -> dict[str, str]:
    """Return the models to choose from by label, each with its name."""
    models = sorted(apps.get_models(), key=lambda model: model._meta.label_lower)
    opts = [model._meta for model in models if model._meta.app_label != ApprovalRule._meta.app_label]
    return {meta.label_lower: f"{meta.label_lower} ({meta.verbose_name_plural})" for meta in opts}


def _texts(value: Any) -> list[str]:
    return [item for item in value if isinstance(item, str)] if isinstance(value, list) else []


def _as_action(name: str) -> str:
    label, dot, last = name.rpartition(".")
    return f"{label.lower()}{dot}{last}"


def change_message(form: Any) -> list[dict[str, Any]]:
    """Return the message in the history of a rule: each column that was changed, before and after."""
    # As Django has it: in English, and each reader can have it in their language.
    with override(None):
        fields = [_changed(form, name) for name in form.changed_data]
    return [{"changed": {"fields": fields}}] if fields else []


def _changed(form: Any, name: str) -> str:
    label = str(form.fields[name].label).lower()
    before = _shown(form.initial.get(name), form.fields[name])
    after = _shown(form.cleaned_data.get(name), form.fields[name])
    return f"{label}: {before} → {after}"


def _shown(value: Any, field: Any) -> str:
    """Return a value of a form as text; related rows by their names."""
    rows = getattr(field, "queryset", None)
    if rows is not None and value and not isinstance(value, (Model, list, QuerySet)):
        value = rows.filter(pk=value).first() or value
    if isinstance(value, QuerySet) or (rows is not None and isinstance(value, list)):
        value = sorted(map(str, value))
    if value in (None, "", [], {}):
        return "-"
    text = json.dumps(value, ensure_ascii=False) if isinstance(value, (list, Mapping, bool)) else str(value)
    return Truncator(text).chars(MAX_VALUE)
