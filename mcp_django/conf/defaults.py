"""The settings: what each of them means, its default, and what it can be. docs/settings.md is written from this table.

``SECTIONS`` are the sections of that page, which `python docs/settings_page.py` writes.
"""

from typing import Any, Final

from .value_kinds import (
    FLAG,
    HOST_NAME,
    HTTPS,
    NAMES,
    PROXY,
    SITE,
    SO_MANY,
    TEXT,
    URLS,
    Kind,
    Setting,
    choice,
    confirmers,
    daily_budgets,
    either,
    group,
    items,
    number,
    own_host,
    records,
    times,
    whole,
)

# Upper bound of MAX_BULK_ROWS: SQLite takes 32,766 parameters, and a composite key needs several for each row.
MOST_ROWS: Final = 10_000
# Upper bound of MAX_FILE_BYTES: a file is held in memory while it is written.
MOST_BYTES: Final = 1024**3
# Upper bound of CALL_LOG['max_bytes'], for the arguments or the result in the log of calls.
MOST_CAPTURED: Final = 1024**2

SO_MANY_OR_ALL: Final = SO_MANY.or_none("no limit")
CLASSES: Final = items("classes, or their dotted names")
HOSTS: Final = items("hosts, such as claude.ai, or .example.com for all of a domain", HOST_NAME)
DOCUMENT_HOSTS: Final = either(choice("all", "ask", "off"), items("hosts, such as claude.ai", HOST_NAME))
IDENTITY_PROVIDER: Final = {
    "issuer": HTTPS,
    "jwks_uri": HTTPS,
    "clients": items("client ids", TEXT),
    "client_keys": URLS,
    "link": choice("subject", "email", "email_staff"),
    "create": FLAG,
    "groups": NAMES,
}
REQUIRED_OF_PROVIDER: Final = ("issuer", "jwks_uri", "clients")

SECTIONS: Final[dict[str, dict[str, Setting]]] = {
    "The address": {
        "BASE_URL": Setting(
            None,
            TEXT.or_none(),
            "Scheme, host and port at which clients reach the site, without a path. Tokens are bound to it. `None`: "
            "taken from the request, in `DEBUG` only",
        ),
        "URLCONFS": Setting(
            (),
            items("URLconfs"),
            "More URLconfs that mount endpoints, if middleware chooses the URLconf, for example "
            "[by host](deployment.md#several-hosts)",
        ),
        "ALLOWED_ORIGINS": Setting(
            [],
            items("origins, each of them one site, such as https://inspector.example", SITE),
            "Origins of web pages that can call the endpoint (`scheme://host[:port]`), besides the site's own",
        ),
    },
    "How the server presents itself": {
        "SERVER": group(
            name=Setting("django", TEXT, "The server's name for clients, which `mcp_install` uses too"),
            title=Setting(None, TEXT.or_none(), "The server's name for people"),
            version=Setting("1", TEXT, "The server's version"),
            icon=Setting(None, TEXT.or_none(), "The URL of an image (PNG or SVG), or its path below `BASE_URL`"),
            description=Setting(None, TEXT.or_none(), "What the server is for, in at most 100 characters"),
            website=Setting(None, TEXT.or_none(), "The URL of a page about the server"),
            card=Setting(
                False, FLAG, "Anyone can read a card of each endpoint, see [discovery](registration.md#discovery)"
            ),
        ),
        "INSTRUCTIONS": Setting(
            "",
            TEXT,
            "Text for the model, put before the generated instructions: what your business does, what its terms mean",
        ),
    },
    "What is exposed": {
        "AUTO_REGISTER": Setting(
            True, FLAG, "Expose every `ModelAdmin` of the default admin site. `False`: only what an `mcp.py` registers"
        ),
        "READ_ONLY": Setting(False, FLAG, "No tool that writes is listed or can be called, whatever else is set"),
        "TOOL_BUDGET": Setting(
            40,
            whole(0),
            "Maximum number of tools for one caller. Beyond it, admin actions are available only through `run_action`",
        ),
        "SCHEMAS": Setting(
            "full",
            choice("full", "plain"),
            '`"plain"` declares objects with arbitrary members as JSON text, for clients whose strict modes [refuse '
            "such objects](tools.md#schemas)",
        ),
    },
    "Who can call": {
        "AUTHENTICATION_CLASSES": Setting(
            ["mcp_django.oauth.bearer.BearerAuthentication"],
            CLASSES,
            "DRF authentication classes, in order: [other authentication](oauth.md#other-authentication). Empty: open "
            "to anyone, for tests only",
        ),
        "SIGN_IN_FACTS": Setting(
            ["mcp_django.signin.OTPDevice"],
            CLASSES,
            "What the sign-in [leaves with the tokens](oauth.md#what-the-sign-in-leaves-with-the-tokens)",
        ),
        "CALL_MIDDLEWARE": Setting(
            (),
            items("dotted names", TEXT),
            "Middleware that also runs around each call, with the token's user: "
            "[audit trails](deployment.md#audit-trails), [roles](deployment.md#roles-and-sessions)",
        ),
    },
    "Clients": {
        "REGISTRATION": Setting(
            "open",
            choice("open", "authenticated", "off"),
            '`"open"`: clients register themselves. `"authenticated"`: only with a token of this server. `"off"`: '
            "administrators add them",
        ),
        "CLIENT_DOCUMENTS": group(
            hosts=Setting(
                None,
                DOCUMENT_HOSTS.or_none("all while REGISTRATION is 'open', and none otherwise"),
                "Clients that [describe themselves by a document](registration.md#clients-that-describe-themselves). "
                '`"all"`: from any host. A list: from these hosts (`.example.com` is a whole domain). `"ask"`: from '
                'hosts that an administrator has allowed. `"off"`: none. `None`: `"all"` while `REGISTRATION` is '
                '`"open"`, otherwise `"off"`',
            ),
            blocked=Setting(
                (),
                HOSTS,
                "Hosts whose clients are refused, such as `evil.example`, or `.example.com` for a whole domain",
            ),
            private=Setting(
                (),
                items("hosts, such as login.intranet or localhost:8443", own_host()),
                "Hosts of your own network from which documents and keys are fetched too, such as `login.intranet` or "
                "`localhost:8443`",
            ),
            ca=Setting(
                None,
                TEXT.or_none("only the system's authorities"),
                "File of certificate authorities (PEM) to trust besides those of the system, for documents and keys",
            ),
            proxy=Setting(
                None,
                PROXY.or_none("no proxy"),
                "HTTP proxy through which the server fetches documents and keys, such as `http://proxy.intranet:3128`. "
                "It is not used for `private` hosts",
            ),
        ),
        "IDENTITY_PROVIDERS": Setting(
            (),
            records("dicts, each with issuer, jwks_uri and clients", IDENTITY_PROVIDER, *REQUIRED_OF_PROVIDER),
            "Identity providers that vouch for users, who then need no consent page: a list of dicts with "
            "`issuer`, `jwks_uri`, `clients` and, optionally, `client_keys`, `link`, `create` and `groups` "
            "([single sign-on](single-sign-on.md#single-sign-on))",
        ),
        "SERVICE_ACCOUNTS": Setting(
            False,
            FLAG,
            "Programs can sign in without a person as [service accounts](single-sign-on.md#service-accounts), which "
            "superusers create in the admin",
        ),
    },
    "Size of answers and writes": {
        "PAGE_SIZE": Setting(20, whole(1), "Rows per page if the client does not say"),
        "MAX_PAGE_SIZE": Setting(200, whole(1), "Maximum rows per page"),
        "RESULT_CHARS": Setting(40_000, whole(1), "Maximum characters of one result. Lower it to save tokens"),
        "MAX_BULK_ROWS": Setting(
            1_000, whole(1, MOST_ROWS), "Rows that one call can change, delete or run an action on, at most 10,000"
        ),
        "MAX_FILE_BYTES": Setting(
            5 * 1024**2, whole(1, MOST_BYTES), "Maximum bytes of a file that is read or written; it is held in memory"
        ),
    },
    "Changes that were made": {
        "UNDO_DAYS": Setting(
            30,
            whole(0, 3650),
            "Days for which a change can be taken back, and for which `clear_mcp_sessions` keeps it. `0`: changes "
            "cannot be taken back, and the rows before and after are not kept",
        ),
        "CONFIRM": Setting(
            "model",
            confirmers(sign_in=whole(1)),
            'Who confirms a call that asks. `"model"`: the user, by a question of their client, or by a token that the '
            'model sends back. `"person"`: only [the user, on a page](safe-writes.md#confirmed-by-a-person) for which '
            'they are signed in to the site. `{"delete": "person", "rows": 50}`: a person confirms deletions, and '
            'calls about more than 50 rows. `{"all": "person", "sign_in": 300}`: all that asks, and '
            "[no longer than 300 seconds after they have signed in](safe-writes.md#a-fresh-sign-in)",
        ),
        "APPROVAL_MAILS": Setting(
            False,
            FLAG,
            "Mail those who may decide a [request for approval](approval.md#mails-and-signals), and the requester when "
            "it is decided, by Django's mail backend",
        ),
    },
    "Load": {
        "RATES": group(
            calls=Setting("1200/m", SO_MANY_OR_ALL, "Calls of one user"),
            completions=Setting("600/m", SO_MANY_OR_ALL, "Completions of one user"),
            uploads=Setting("120/h", SO_MANY_OR_ALL, "Files that one user can send to upload URLs"),
            registrations=Setting("30/h", SO_MANY_OR_ALL, "Registrations of clients from one address"),
            registrations_total=Setting("600/h", SO_MANY_OR_ALL, "Registrations of clients in total"),
            documents=Setting(
                "60/h",
                SO_MANY_OR_ALL,
                "Metadata documents of clients that are fetched for one address, and five times as many from one host",
            ),
            refusals=Setting(
                "60/m",
                SO_MANY_OR_ALL,
                "Refused requests for tokens by one client at one address, and five times as many by all at it; "
                "a client with a credential of its own is answered all the same",
            ),
        ),
        "BUDGETS": Setting(
            {},
            daily_budgets(),
            'What each user, client or service account can use in a day, such as `{"user": {"calls": 5000}}` '
            "([budgets](budgets.md))",
        ),
        "THREADS": Setting(
            4,
            whole(1),
            "Queries that run at the same time in one worker, besides twice as many writes, actions and tools of your "
            "own. One user gets at most half of each",
        ),
        "CALL_TIMEOUT": Setting(60, number(), "Seconds that one call can take, waiting included (not under WSGI)"),
        "STATEMENT_TIMEOUT": Setting(
            5,
            number().or_none("no limit"),
            "Seconds that the queries of one read can take on SQLite, PostgreSQL, MySQL and MariaDB. `None`: no limit",
        ),
        "COMPILED_QUERIES": Setting(
            True,
            FLAG,
            "Compile the SQL of pages, rows and tokens once, and run it with the values of each call. `False`: the "
            "ORM builds each query anew, which takes longer and gives the same answers. It counts as `False` on a "
            "release of Django that is newer than the tested ones",
        ),
        "CACHE_TTL_MS": Setting(
            {"tools": 60_000, "prompts": 60_000, "templates": 60_000, "discover": 60_000},
            times("tools", "prompts", "resources", "templates", "read", "discover"),
            "Milliseconds that a client can keep a list before it asks again (2026-07-28): one number, or a dict by "
            "`tools`, `prompts`, `resources`, `templates`, `read`, `discover`",
        ),
    },
    "Long work": {
        "TASK_BACKEND": Setting(
            None,
            TEXT.or_none("threads of the web server's own processes"),
            "What runs calls that [go on as tasks](tasks.md#engines): the alias of a backend in Django's setting "
            '`TASKS`, or the dotted name of a function that hands an id on, such as `"shop.celery.enqueue"`. `None`: '
            "threads of the web server's own processes",
        ),
        "TASK_ROWS": Setting(
            500,
            whole(0).or_none("no write becomes a task for its rows"),
            "Writes of more rows go on [as tasks](tasks.md), for clients that declare that they take tasks. `None`: no "
            "write does",
        ),
        "TASK_TIMEOUT": Setting(
            3600,
            number(),
            "Seconds that one run of a [task](tasks.md) can take, unless its tool has a limit of its own. "
            "`CALL_TIMEOUT` does not hold for tasks",
        ),
    },
    "Operating": {
        "EVENTS": Setting(
            "default",
            Kind("the name of a channel layer, or False", lambda value: value is False or TEXT.admits(value)),
            "The channel layer that carries changes of exposed models between workers, for subscribers. `False`: "
            "subscribers are not told of changes",
        ),
        "CALL_LOG": group(
            can_be_off=True,
            days=Setting(30, whole(1), "Days for which `clear_mcp_calls` keeps the log"),
            rows=Setting(
                True,
                FLAG,
                "Keep [the key of the row](call-log.md#who-read-a-record) of each call that reads or writes one record",
            ),
            capture=Setting(
                "off",
                choice("full", "off"),
                '`"full"` keeps [arguments and results](call-log.md#arguments-and-results) too',
            ),
            max_bytes=Setting(16 * 1024, whole(1, MOST_CAPTURED), "Maximum bytes kept of each"),
            redact=Setting(
                None,
                TEXT.or_none(),
                "Dotted name of a function that gets tool, arguments and result, and returns what to keep of the last "
                "two",
            ),
        ),
        "TELEMETRY": group(
            opentelemetry=Setting(
                False, FLAG, "Give [OpenTelemetry](telemetry.md#opentelemetry) a span and a measurement of each call"
            ),
            prometheus=Setting(False, FLAG, "Count calls for [Prometheus](telemetry.md#prometheus)"),
            metrics_token=Setting(
                None,
                TEXT.or_none("only users with a permission"),
                "The bearer token that can read the page of metrics",
            ),
            alerts=Setting(
                "off",
                choice("off", "signal", "mail"),
                '[Alerts](console.md#alerts): `"signal"` sends the signal `alert_raised`, `"mail"` also mails them to '
                "Django's `ADMINS`",
            ),
            failing_share=Setting(0.25, number(), "The share of failed calls that raises an alert"),
            failing_minutes=Setting(5, whole(1, 60), "Minutes over which this share is measured"),
            failing_calls=Setting(20, whole(1), "Minimum number of calls in these minutes"),
            sql_comments=Setting(
                False,
                FLAG,
                "End each query of a call with a [comment](telemetry.md#comments-on-queries) that names client, tool "
                "and trace",
            ),
        ),
    },
}
SETTINGS: Final[dict[str, Setting]] = {name: setting for part in SECTIONS.values() for name, setting in part.items()}
DEFAULTS: Final[dict[str, Any]] = {name: setting.default for name, setting in SETTINGS.items()}
