import django.db.models.deletion
import django.utils.timezone
import mcp_django.models
from django.conf import settings
from django.db import migrations, models


class Migration(migrations.Migration):

    initial = True

    dependencies = [
        migrations.swappable_dependency(settings.AUTH_USER_MODEL),
    ]

    operations = [
        migrations.CreateModel(
            name='ClientKeys',
            fields=[
                ('client_id', models.CharField(max_length=255, primary_key=True, serialize=False)),
                ('jwks_uri', models.CharField(blank=True, max_length=2000)),
                ('public_key', models.TextField(blank=True, help_text='A JSON Web Key Set, where there is no URL of one.')),
            ],
        ),
        migrations.CreateModel(
            name='UsedAssertion',
            fields=[
                ('id', models.CharField(help_text='The SHA-256 of its issuer and its jti.', max_length=64, primary_key=True, serialize=False)),
                ('expires', models.DateTimeField(db_index=True)),
            ],
        ),
        migrations.CreateModel(
            name='CallEntry',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('call_id', models.CharField(max_length=32, unique=True, verbose_name='id')),
                ('time', models.DateTimeField(db_index=True, verbose_name='time')),
                ('site', models.CharField(blank=True, max_length=100, verbose_name='site')),
                ('user', models.CharField(blank=True, max_length=64, verbose_name='key of the user')),
                ('username', models.CharField(blank=True, max_length=100, verbose_name='user')),
                ('kind', models.CharField(blank=True, choices=[('person', 'person'), ('service', 'service'), ('stdio', 'stdio')], max_length=7, verbose_name='caller')),
                ('client_id', models.CharField(blank=True, max_length=255, verbose_name='client id')),
                ('client_name', models.CharField(blank=True, max_length=100, verbose_name='client')),
                ('client_host', models.CharField(blank=True, max_length=255, verbose_name='host of the client')),
                ('token', models.CharField(blank=True, max_length=16, verbose_name='token')),
                ('session', models.CharField(blank=True, max_length=32, verbose_name='session')),
                ('version', models.CharField(blank=True, max_length=10, verbose_name='protocol')),
                ('method', models.CharField(blank=True, max_length=100, verbose_name='method')),
                ('tool', models.CharField(blank=True, max_length=100, verbose_name='tool')),
                ('model', models.CharField(blank=True, max_length=100, verbose_name='model')),
                ('action', models.CharField(blank=True, max_length=100, verbose_name='action')),
                ('writes', models.BooleanField(default=False, verbose_name='can change data')),
                ('rows_read', models.PositiveIntegerField(default=0, verbose_name='rows read')),
                ('rows_changed', models.PositiveIntegerField(default=0, verbose_name='rows changed')),
                ('size', models.PositiveIntegerField(default=0, verbose_name='bytes')),
                ('tokens', models.PositiveIntegerField(default=0, verbose_name='tokens sent (about)')),
                ('outcome', models.CharField(max_length=40, verbose_name='outcome')),
                ('detail', models.CharField(blank=True, max_length=200, verbose_name='reason')),
                ('error_id', models.CharField(blank=True, max_length=32, verbose_name='error id')),
                ('duration', models.FloatField(default=0, verbose_name='duration (ms)')),
                ('queries', models.PositiveIntegerField(default=0, verbose_name='queries')),
                ('query_time', models.FloatField(default=0, verbose_name='time of the queries (ms)')),
                ('waiting', models.FloatField(null=True, verbose_name='waiting for a thread (ms)')),
                ('token_check', models.FloatField(null=True, verbose_name='check of the token (ms)')),
                ('own_code', models.FloatField(null=True, verbose_name='functions of the project (ms)')),
                ('rendering', models.FloatField(null=True, verbose_name='writing the result (ms)')),
                ('trace', models.CharField(blank=True, max_length=32, verbose_name='trace id')),
                ('history', models.JSONField(default=list, verbose_name='history')),
                ('arguments', models.TextField(blank=True, verbose_name='arguments')),
                ('result', models.TextField(blank=True, verbose_name='result')),
            ],
            options={
                'verbose_name': 'call',
                'verbose_name_plural': 'calls',
                'permissions': [('view_bodies', 'Can view captured arguments and results of calls')],
                'default_permissions': ('view',),
                'indexes': [models.Index(fields=['user', 'time'], name='mcp_call_user'), models.Index(fields=['client_id', 'time'], name='mcp_call_client_id'), models.Index(fields=['client_name', 'time'], name='mcp_call_client_name'), models.Index(fields=['tool', 'time'], name='mcp_call_tool'), models.Index(fields=['model', 'time'], name='mcp_call_model'), models.Index(fields=['outcome', 'time'], name='mcp_call_outcome'), models.Index(fields=['session', 'time'], name='mcp_call_session'), models.Index(fields=['token', 'time'], name='mcp_call_token'), mcp_django.models.PartialIndex(fields=['error_id'], name='mcp_call_error_id', where=models.Q(('error_id__gt', ''))), mcp_django.models.PartialIndex(fields=['trace'], name='mcp_call_trace', where=models.Q(('trace__gt', ''))), mcp_django.models.PartialIndex(fields=['time', 'call_id'], name='mcp_call_sample', where=models.Q(('call_id__lt', '1')))],
            },
        ),
        migrations.CreateModel(
            name='ClientHost',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('host', models.CharField(help_text='Such as claude.ai; .example.com means all of a domain.', max_length=255, unique=True, verbose_name='host')),
                ('decision', models.CharField(choices=[('waiting', 'to be decided'), ('allowed', 'allowed'), ('blocked', 'blocked')], default='waiting', max_length=7, verbose_name='decision')),
                ('url', models.CharField(blank=True, editable=False, max_length=255, verbose_name='application')),
                ('created', models.DateTimeField(default=django.utils.timezone.now, editable=False, verbose_name='created')),
                ('user', models.ForeignKey(editable=False, null=True, on_delete=django.db.models.deletion.SET_NULL, related_name='+', to=settings.AUTH_USER_MODEL, verbose_name='user')),
            ],
            options={
                'verbose_name': 'host of applications',
                'verbose_name_plural': 'hosts of applications',
            },
        ),
        migrations.CreateModel(
            name='KeyedCall',
            fields=[
                ('id', models.CharField(help_text='The digest of user, client, endpoint, tool and key.', max_length=64, primary_key=True, serialize=False)),
                ('tool', models.CharField(max_length=64)),
                ('arguments', models.CharField(help_text='Their digest.', max_length=64)),
                ('authority', models.CharField(blank=True, help_text='The digest of what the caller could do.', max_length=64)),
                ('result', models.TextField(blank=True, help_text='The result as JSON; empty while nobody knows of one.')),
                ('created', models.DateTimeField(db_index=True)),
                ('user', models.ForeignKey(editable=False, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.CreateModel(
            name='ServiceAccount',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('client_id', models.CharField(default=mcp_django.models._new_client_id, editable=False, max_length=64, unique=True, verbose_name='client id')),
                ('name', models.CharField(max_length=80, verbose_name='name')),
                ('scopes', models.JSONField(default=list, verbose_name='scopes')),
                ('endpoints', models.JSONField(blank=True, default=list, verbose_name='endpoints')),
                ('expires', models.DateTimeField(default=mcp_django.models._in_a_year, verbose_name='valid until')),
                ('is_active', models.BooleanField(default=True, verbose_name='active')),
                ('secret', models.CharField(blank=True, editable=False, help_text='Its hash, empty without one.', max_length=100)),
                ('public_key', models.TextField(blank=True, verbose_name='public key')),
                ('jwks_uri', models.CharField(blank=True, max_length=500, verbose_name='URL of the public keys (JWKS)')),
                ('created', models.DateTimeField(auto_now_add=True)),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL, verbose_name='user')),
            ],
            options={
                'verbose_name': 'service account',
                'verbose_name_plural': 'service accounts',
            },
        ),
        migrations.CreateModel(
            name='Session',
            fields=[
                ('id', models.CharField(max_length=32, primary_key=True, serialize=False)),
                ('facts', models.JSONField(default=list, help_text='Version, client and capabilities, where the id does not carry them.')),
                ('log_level', models.CharField(blank=True, max_length=10)),
                ('uris', models.JSONField(default=list, help_text='The resources that it is subscribed to.')),
                ('created', models.DateTimeField()),
                ('seen', models.DateTimeField(db_index=True)),
                ('ended', models.BooleanField(default=False)),
                ('user', models.ForeignKey(editable=False, null=True, on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.CreateModel(
            name='Stream',
            fields=[
                ('id', models.CharField(max_length=32, primary_key=True, serialize=False)),
                ('request_id', models.JSONField(help_text='The id of the call, null for a stream of many calls.', null=True)),
                ('call', models.TextField(blank=True, help_text='The call, to be run again with the answers to its questions.')),
                ('version', models.CharField(blank=True, max_length=10)),
                ('state', models.CharField(choices=[('running', 'Running'), ('asking', 'Asking'), ('done', 'Done')], default='running', max_length=7)),
                ('questions', models.JSONField(default=list, help_text="What was asked: id, key, method, and the client's result.")),
                ('answers', models.JSONField(default=dict, help_text='What was answered before.')),
                ('events', models.PositiveIntegerField(default=0, help_text='How many events there were.')),
                ('size', models.PositiveIntegerField(default=0, help_text='Bytes of the events that are kept.')),
                ('alive', models.DateTimeField(db_index=True, help_text='When its worker last said so.')),
                ('session', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='streams', to='mcp_django.session')),
            ],
        ),
        migrations.CreateModel(
            name='Switch',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('kind', models.CharField(choices=[('everything', 'everything'), ('writes', 'changes'), ('tool', 'tool'), ('model', 'model'), ('action', 'action'), ('client', 'client'), ('user', 'user'), ('service', 'service account')], max_length=10, verbose_name='what')),
                ('target', models.CharField(blank=True, max_length=255, verbose_name='which')),
                ('name', models.CharField(blank=True, max_length=100, verbose_name='name')),
                ('reason', models.CharField(blank=True, max_length=200, verbose_name='reason, which callers are told')),
                ('by', models.CharField(blank=True, max_length=100, verbose_name='by')),
                ('begins', models.DateTimeField(default=django.utils.timezone.now, verbose_name='from')),
                ('until', models.DateTimeField(blank=True, null=True, verbose_name='until')),
                ('ended', models.DateTimeField(blank=True, null=True, verbose_name='ended')),
                ('ended_by', models.CharField(blank=True, max_length=100, verbose_name='ended by')),
            ],
            options={
                'verbose_name': 'switch',
                'verbose_name_plural': 'switches',
                'default_permissions': ('view', 'change'),
                'indexes': [models.Index(fields=['ended', 'until'], name='mcp_switch_active')],
            },
        ),
        migrations.CreateModel(
            name='TokenFacts',
            fields=[
                ('token', models.CharField(help_text='The SHA-256 of the token or the code.', max_length=64, primary_key=True, serialize=False)),
                ('family', models.UUIDField(db_index=True, help_text='The family of the refresh token, None without one.', null=True)),
                ('facts', models.JSONField(default=dict, help_text='What was so when the user agreed, by name.')),
                ('created', models.DateTimeField(db_index=True)),
                ('user', models.ForeignKey(editable=False, on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL)),
            ],
        ),
        migrations.CreateModel(
            name='ConnectedApplication',
            fields=[
            ],
            options={
                'verbose_name': 'application with access',
                'verbose_name_plural': 'applications with access',
                'proxy': True,
                'default_permissions': (),
                'indexes': [],
                'constraints': [],
            },
            bases=('mcp_django.tokenfacts',),
        ),
        migrations.CreateModel(
            name='LinkedIdentity',
            fields=[
                ('id', models.BigAutoField(auto_created=True, primary_key=True, serialize=False, verbose_name='ID')),
                ('issuer', models.CharField(max_length=255, verbose_name='identity provider')),
                ('subject', models.CharField(max_length=255, verbose_name='subject there')),
                ('created', models.DateTimeField(auto_now_add=True, verbose_name='created')),
                ('user', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to=settings.AUTH_USER_MODEL, verbose_name='user')),
            ],
            options={
                'verbose_name': 'linked identity',
                'verbose_name_plural': 'linked identities',
                'constraints': [models.UniqueConstraint(fields=('issuer', 'subject'), name='mcp_django_one_user_a_subject'), models.UniqueConstraint(fields=('issuer', 'user'), name='mcp_django_one_subject_a_user')],
            },
        ),
        migrations.CreateModel(
            name='StreamEvent',
            fields=[
                ('id', models.BigAutoField(primary_key=True, serialize=False)),
                ('number', models.PositiveIntegerField()),
                ('data', models.TextField()),
                ('stream', models.ForeignKey(on_delete=django.db.models.deletion.CASCADE, related_name='+', to='mcp_django.stream')),
            ],
            options={
                'constraints': [models.UniqueConstraint(fields=('stream', 'number'), name='mcp_django_one_event_a_number')],
            },
        ),
    ]
