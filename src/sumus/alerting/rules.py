"""The alerts as a file of alerting rules for Prometheus."""

from __future__ import annotations

import json

from sumus.alerting.alerts import ALERTS

__all__ = ["GONE", "rule_name", "rules_text"]

GONE = 'up{job="sumus"} == 0'
"""Nobody answers: what no process can tell of itself."""
_HEAD = """\
# Alerting rules for the metrics of Sumus. Written by `python docs/gen_alerts.py` from the table of
# alerts in the code; numbers are the defaults of `--alert`. Copy it, change what does not suit you.
groups:
  - name: sumus
    rules:
"""


def rule_name(alert: str) -> str:
    """What an alert is called there."""
    return "Sumus" + "".join(word.capitalize() for word in alert.split("-"))


def rules_text() -> str:
    """The file."""
    rules = [
        (rule_name(alert.name), alert.rule, alert.rule_minutes, alert.severity, alert.says)
        for alert in ALERTS
    ]
    rules.append((rule_name("gone"), GONE, 5.0, "error", "Nobody answers at the address"))
    return _HEAD + "".join(_rule(*each) for each in rules)


def _rule(name: str, expression: str, minutes: float, severity: str, says: str) -> str:
    # a JSON text is a YAML text
    lines = [
        f"- alert: {name}",
        f"  expr: {json.dumps(expression, ensure_ascii=False)}",
        *([f"  for: {minutes:.0f}m"] if minutes else []),
        f"  labels: {{severity: {severity}}}",
        f"  annotations: {{summary: {json.dumps(says, ensure_ascii=False)}}}",
    ]
    return "".join(f"      {line}\n" for line in lines)
