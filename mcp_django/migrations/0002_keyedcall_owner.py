from django.db import migrations, models


class Migration(migrations.Migration):
    dependencies = [
        ('mcp_django', '0001_initial'),
    ]

    operations = [
        migrations.AddField(
            model_name='keyedcall',
            name='owner',
            field=models.CharField(blank=True, help_text='The mark of the call that claimed the key.', max_length=32),
        ),
    ]
