from django import forms


class RefundForm(forms.Form):
    """Asked before money goes back to customers."""

    reason = forms.ChoiceField(
        choices=[("damaged", "Arrived damaged"), ("late", "Arrived too late"), ("goodwill", "Goodwill")]
    )
    comment = forms.CharField(max_length=200, required=False)
    amount = forms.DecimalField(
        min_value=0,
        max_digits=10,
        decimal_places=2,
        required=False,
        help_text="For each order, never more than its total. Empty: the total.",
    )
