from mcp_django.operating import gauges_and_query_comments


def test_levels_are_asked_when_they_are_measured(monkeypatch):
    monkeypatch.setattr(gauges_and_query_comments, "_levels", {})
    waiting = []
    gauges_and_query_comments.gauge("queue", "What waits.", lambda: len(waiting))
    waiting.append("news")
    (level,) = gauges_and_query_comments.levels()
    assert (level.name, level.text, level.ask()) == ("queue", "What waits.", 1)
