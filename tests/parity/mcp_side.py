"""The endpoint, as a client uses it that can ask nobody: calls of tools, and confirmations by token."""

from collections.abc import Mapping, Sequence
from typing import Any

from django.db.models import Model

from mcp_django.testing import MCPClient, MCPError, ToolCall

from .outcomes import Outcome

NOT_SAVED = "Nothing was saved:"
PAGE = 200

# Previews that one call can have: of its rows, and of the page that its action shows.
MOST_PREVIEWS = 2


class MCPSide:
    """The endpoint's verdicts on what `user` does."""

    def __init__(self, user: Any) -> None:
        self.client = MCPClient(user)

    def list(self, model: type[Model], search: str, filters: Mapping[str, Any], order: str) -> Outcome:
        ordering = [order] if order else None
        asked = {"search": search, "filters": filters, "ordering": ordering, "limit": PAGE, "fields": ["pk"]}
        found: list[str] = []
        cursor = None
        while True:
            page = self._call("query_records", model, **asked, **({"cursor": cursor} if cursor else {}))
            if page is None or page.is_error:
                return Outcome("refused", shown=page and page.text)
            found += [str(row[0]) for row in page.structured["rows"]]
            cursor = page.structured.get("next_cursor")
            if cursor is None:
                return Outcome("done", shown=found)

    def view(self, model: type[Model], pk: Any) -> Outcome:
        return _outcome(self._call("get_record", model, pk=str(pk)))

    def add(self, model: type[Model], values: Mapping[str, Any]) -> Outcome:
        return _outcome(self._call("create_record", model, values=values))

    def change(self, model: type[Model], pk: Any, values: Mapping[str, Any]) -> Outcome:
        return _outcome(self._call("update_record", model, pk=str(pk), values=values))

    def delete(self, model: type[Model], pk: Any) -> Outcome:
        return self._confirmed("delete_record", model, {"pk": str(pk)}, {})

    def edit(self, model: type[Model], pk: Any, name: str, value: Any) -> Outcome:
        return self.change(model, pk, {name: value})

    def suggest(self, field: Any, term: str) -> Outcome:
        return self.list(field.related_model, term, {}, "")

    def act(self, model: type[Model], name: str, pks: Sequence[Any], form: Mapping[str, str]) -> Outcome:
        return self._confirmed("run_action", model, {"action": name, "pks": [str(pk) for pk in pks]}, {"form": form})

    def _confirmed(
        self, tool: str, model: type[Model], arguments: Mapping[str, Any], also: Mapping[str, Any]
    ) -> Outcome:
        """Call a tool, and again with the token of each preview; with ``also`` where the preview asks for a form."""
        result = self._call(tool, model, **arguments)
        for _ in range(MOST_PREVIEWS):
            preview = result.structured if result is not None else None
            if not preview or "confirm_token" not in preview:
                break
            answers = also if "form" in preview else {}
            result = self._call(tool, model, **arguments, **answers, confirm_token=preview["confirm_token"])
        return _outcome(result)

    def _call(self, tool: str, model: type[Model], **arguments: Any) -> ToolCall | None:
        try:
            return self.client.call(tool, model=model._meta.label_lower, **arguments)
        except MCPError:
            return None


def _outcome(result: ToolCall | None) -> Outcome:
    if result is None:
        return Outcome("refused")
    if not result.is_error:
        return Outcome("done", shown=result.text)
    lines = result.text.split("\n")
    if lines[0] != NOT_SAVED:
        return Outcome("refused", shown=result.text)
    names = {"__all__" if line.startswith("(row)") else line.partition(":")[0] for line in lines[1:]}
    return Outcome("invalid", frozenset(names), shown=result.text)
