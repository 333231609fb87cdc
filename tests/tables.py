"""Tables of projects in which nothing is migrated: they are made as the models are now.

The toolkit's own migrations change a hundred columns, each of them with all models that refer to a user. They take
longer than everything else that makes a database. The example, the tutorial and the wheel run them.
"""

# The apps, for `MIGRATION_MODULES`: the toolkit, and what its tables refer to. `migrate` needs `run_syncdb` for them.
UNMIGRATED = dict.fromkeys(["admin", "auth", "contenttypes", "oauth2_provider", "sessions"])
