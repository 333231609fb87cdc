from mcp_django.operating import telemetry


def test_levels_are_asked_when_they_are_measured(monkeypatch):
    monkeypatch.setattr(telemetry, "_levels", {})
    waiting = []
    telemetry.gauge("queue", "What waits.", lambda: len(waiting))
    waiting.append("news")
    (level,) = telemetry.levels()
    assert (level.name, level.text, level.ask()) == ("queue", "What waits.", 1)
