from django.db import migrations, models


class Migration(migrations.Migration):

    dependencies = [
        ('mcp_django', '0001_initial'),
    ]

    operations = [
        migrations.AddField(
            model_name='callentry',
            name='waiting',
            field=models.FloatField(null=True, verbose_name='waiting for a thread (ms)'),
        ),
        migrations.AddField(
            model_name='callentry',
            name='token_check',
            field=models.FloatField(null=True, verbose_name='check of the token (ms)'),
        ),
        migrations.AddField(
            model_name='callentry',
            name='own_code',
            field=models.FloatField(null=True, verbose_name='functions of the project (ms)'),
        ),
        migrations.AddField(
            model_name='callentry',
            name='rendering',
            field=models.FloatField(null=True, verbose_name='writing the result (ms)'),
        ),
        migrations.AddIndex(
            model_name='callentry',
            index=models.Index(fields=['client_name', 'time'], name='mcp_call_client_name'),
        ),
        migrations.AddIndex(
            model_name='callentry',
            index=models.Index(condition=models.Q(('error_id__gt', '')), fields=['error_id'], name='mcp_call_error_id'),
        ),
        migrations.AddIndex(
            model_name='callentry',
            index=models.Index(condition=models.Q(('trace__gt', '')), fields=['trace'], name='mcp_call_trace'),
        ),
        migrations.AddIndex(
            model_name='callentry',
            index=models.Index(condition=models.Q(('call_id__lt', '1')), fields=['time', 'call_id'], name='mcp_call_sample'),
        ),
    ]
