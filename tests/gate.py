"""The gate: the modules that alone decide who a caller is, what they may see and what they may do.

``docs/audit.md`` says what each of them promises. The architecture test compares this module with the code: wherever
else the code asks for rows, runs SQL or asks for a permission, this module counts it and says why.
"""

import ast
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final, Literal

PACKAGE = Path(__file__).resolve().parent.parent / "mcp_django"

# In the order in which a call meets them.
MODULES: Final = (
    "oauth/bearer.py",
    "oauth/token_query.py",
    "oauth/resource_urls.py",
    "signin.py",
    "scopes.py",
    "context/call_restrictions.py",
    "orm/permission_queries.py",
    "orm/access.py",
    "exposures/model_exposure.py",
    "exposures/querysets.py",
    "emulation/admin_exposure.py",
    "schema/secrets.py",
    "orm/columns.py",
    "orm/path.py",
    "orm/allowed_filters.py",
    "orm/conditions.py",
    "orm/hidden_parts.py",
    "orm/row_finder.py",
    "exposures/declared_actions.py",
    "context/confirmation.py",
)
MAX_LINES: Final = 6_000

Kind = Literal["rows", "SQL", "permission"]

MANAGERS: Final = frozenset({"_base_manager", "_default_manager", "objects"})
SQL_METHODS: Final = frozenset({"callproc", "execute", "executemany", "extra", "raw"})
PERMISSION_METHODS: Final = frozenset({"has_perm", "has_perms", "has_module_perms"})
# Functions of django-oauth-toolkit that return its own models.
OWN_MODELS: Final = (
    "get_access_token_model()",
    "get_application_model()",
    "get_grant_model()",
    "get_refresh_token_model()",
)

# Uses outside of the gate, by reason: how many there are in each file, or in all files of a folder. They may only get
# fewer.
ROWS: Final[Mapping[str, Mapping[str, int]]] = {
    "Tables of the app and of the sign-in: tokens, clients, users, sessions. No call answers with these rows.": {
        "approvals/deciders.py": 1,
        "approvals/notices.py": 1,
        "models.py": 1,
        "approvals/rule_faults.py": 2,
        "approvals/rules.py": 2,
        "checks/approvals.py": 1,
        "management/command_arguments.py": 2,
        "oauth/": 26,
        "operating/switches.py": 3,
        "orm/own_tables.py": 1,
        "server/stored_calls.py": 1,
        "subscriptions/subscribers.py": 2,
        "transports/http/file_links.py": 1,
        "transports/local_client.py": 1,
    },
    "Pages of the admin, for a user whom the admin has let in.": {"admin.py": 1, "console/": 8},
    "Looks at declarations, at the database or at the SQL of a query, and reads no row of the project.": {
        "checks/declarations.py": 3,
        "differences/restoring.py": 1,
        "differences/erased_values.py": 1,
        "differences/rehearsals.py": 1,
        "orm/filter_parser.py": 1,
        "orm/ordering.py": 3,
        "tools/query_records.py": 1,
    },
    "Starts from the rows that get_queryset of the exposure gives this caller.": {
        "orm/aggregates/aggregation.py": 1,
        "orm/subqueries.py": 1,
        "orm/computed_columns.py": 1,
        "orm/field_comparisons.py": 2,
        "orm/named_filters.py": 2,
        "orm/pagination.py": 1,
        "orm/row_reading.py": 7,
        "exports/questions.py": 2,
        "subscriptions/subscribers.py": 1,
        "subscriptions/watched_resources.py": 4,
    },
    "Labels of related rows: the keys are those of rows that the caller reads, the labels those of visible rows.": {
        "orm/labels.py": 6,
    },
    "Looks up by their keys rows that the gate has given.": {
        "emulation/hidden_values.py": 1,
        "emulation/row_changes.py": 2,
        "orm/compiled_queries.py": 1,
        "differences/writes.py": 2,
    },
    "Does what a page of the admin does: asks the ModelAdmin, its inlines and forms, and leaves out hidden rows.": {
        "differences/row_rights.py": 3,
        "emulation/action_responses.py": 1,
        "emulation/deleting.py": 2,
        "emulation/picked_rows.py": 1,
        "emulation/form_filling.py": 3,
        "emulation/history.py": 3,
        "emulation/history_model.py": 5,
        "emulation/inline_formsets.py": 7,
        "emulation/inline_rows.py": 12,
        "emulation/list_filters.py": 6,
        "emulation/saving.py": 3,
        "emulation/validation_errors.py": 1,
        "orm/uris.py": 1,
    },
    "A viewset of the project: REST framework reads its rows.": {"rest/parameters.py": 1},
    "Makes the rows and the user of the shop that `python -m mcp_django` serves.": {
        "tryout/sample_rows.py": 3,
        "tryout/shop.py": 2,
    },
}
SQL: Final[Mapping[str, Mapping[str, int]]] = {
    "Runs what Django's compiler wrote.": {"orm/compiled_queries.py": 3},
    "Recognises raw SQL of the project.": {"orm/computed_columns.py": 1},
    "Asks the database for a function, or sets its time limits.": {
        "context/databases.py": 10,
        "orm/trigram_search.py": 1,
    },
    "Reads, and puts back as they were, the stored rows that a write of the caller touched.": {
        "context/stored_columns.py": 5,
    },
    "Writes the app's own log of calls.": {"operating/call_log_storage.py": 6},
    "Checks foreign keys of a write that is tried, as the commit would.": {"differences/rehearsals.py": 2},
    "Is no SQL: BaseCommand.execute.": {"management/command_arguments.py": 1},
}
PERMISSIONS: Final[Mapping[str, Mapping[str, int]]] = {
    "Pages of the admin and of the sign-in, for a person with a session.": {
        "admin.py": 4,
        "approvals/deciders.py": 3,
        "approvals/queue.py": 1,
        "console/": 21,
        "oauth/": 7,
        "operating/metrics.py": 1,
        "templatetags/mcp_console.py": 1,
    },
    "A system check.": {"checks/oauth.py": 3},
    "Tools, resources and prompts are asked for their own permission, which the gate answers.": {
        "resources/model_resources.py": 1,
        "server/methods/resources_and_prompts.py": 1,
        "sites.py": 5,
        "tools/function_tools.py": 1,
        "transports/http/file_links.py": 1,
    },
    "A function or a viewset of the project declares its own permissions.": {
        "functions/project_function.py": 1,
        "rest/tools.py": 1,
    },
    "Whether another person may decide on a call.": {"approvals/rules.py": 1},
    "Does what a page of the admin does: asks the ModelAdmin and its inlines, besides the gate.": {
        "emulation/action_calls.py": 1,
        "emulation/admin_actions.py": 2,
        "emulation/history.py": 2,
        "emulation/history_model.py": 1,
        "emulation/inline_rows.py": 3,
        "orm/uris.py": 3,
        "tools/model_overview.py": 4,
    },
}
EXCEPTIONS: Final[Mapping[Kind, Mapping[str, Mapping[str, int]]]] = {
    "rows": ROWS,
    "SQL": SQL,
    "permission": PERMISSIONS,
}


def own_models() -> frozenset[str]:
    """Return the names of the app's own models, whose rows are not the project's."""
    tree = ast.parse((PACKAGE / "models.py").read_text())
    return frozenset(node.name for node in tree.body if isinstance(node, ast.ClassDef))


def uses(tree: ast.AST, own: frozenset[str]) -> Iterator[Kind]:
    """Yield what a module asks for: rows of a model, SQL of its own, a permission."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in SQL_METHODS:
            yield "SQL"
        if isinstance(node, ast.Name) and node.id == "RawSQL":
            yield "SQL"
        if not isinstance(node, ast.Attribute):
            continue
        is_hook = node.attr.startswith("has_") and node.attr.endswith("_permission")
        if is_hook or node.attr in PERMISSION_METHODS:
            yield "permission"
        if node.attr == "get_queryset":
            yield "rows"
        if node.attr in MANAGERS and ast.unparse(node.value) not in {*own, *OWN_MODELS}:
            yield "rows"


def listed(kind: Kind) -> dict[str, int]:
    """Return the numbers of the exceptions of one kind, by file or folder, for all reasons together."""
    total: Counter[str] = Counter()
    for numbers in EXCEPTIONS[kind].values():
        total.update(numbers)
    return dict(total)


def uses_outside() -> dict[Kind, dict[str, int]]:
    """Return how often each module outside of the gate asks for rows, SQL or a permission.

    A folder that is listed as a whole counts all of its modules.
    """
    own = own_models()
    found: dict[Kind, Counter[str]] = {kind: Counter() for kind in EXCEPTIONS}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if name in MODULES or "migrations" in path.parts:
            continue
        room = name.partition("/")[0] + "/"
        for kind in uses(ast.parse(path.read_text()), own):
            found[kind][room if room in listed(kind) else name] += 1
    return {kind: dict(counts) for kind, counts in found.items()}


if __name__ == "__main__":
    print(",".join(f"mcp_django/{name}" for name in MODULES))
