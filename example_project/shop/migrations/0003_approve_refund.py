from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ("shop", "0002_shipment_promised_at"),
    ]

    operations = [
        migrations.AlterModelOptions(
            name="order",
            options={
                "ordering": ["-created", "-id"],
                "permissions": [("refund_order", "Can refund order"), ("approve_refund", "Can approve refunds")],
            },
        ),
    ]
