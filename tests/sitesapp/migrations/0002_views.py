from django.db import migrations

KINDS = "CREATE VIEW sitesapp_kindtotal AS SELECT kind, COUNT(*) AS items FROM sitesapp_item GROUP BY kind"
LINES = "CREATE VIEW sitesapp_itemline AS SELECT i.kind, i.name FROM sitesapp_item i, sitesapp_item p WHERE i.parent_id = p.id"


class Migration(migrations.Migration):
    dependencies = [("sitesapp", "0001_initial")]

    operations = [
        migrations.RunSQL(KINDS, "DROP VIEW sitesapp_kindtotal"),
        migrations.RunSQL(LINES, "DROP VIEW sitesapp_itemline"),
    ]
