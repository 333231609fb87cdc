class ArchiveRouter:
    """The archive is in a database of its own."""

    def db_for_read(self, model, **hints):
        # Not None: Django would then ask the database of the row that refers to it.
        return "archive" if model._meta.app_label == "archive" else "default"

    db_for_write = db_for_read

    def allow_relation(self, first, second, **hints):
        return True

    def allow_migrate(self, db, app_label, **hints):
        return (db == "archive") == (app_label == "archive")
