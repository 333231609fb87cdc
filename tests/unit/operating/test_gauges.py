from mcp_django.operating import gauges


def test_levels_are_asked_when_they_are_measured(monkeypatch):
    monkeypatch.setattr(gauges, "_levels", {})
    waiting = []
    gauges.gauge("queue", "What waits.", lambda: len(waiting))
    waiting.append("news")
    (level,) = gauges.levels()
    assert (level.name, level.text, level.ask()) == ("queue", "What waits.", 1)
