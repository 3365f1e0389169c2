"""Writes docs/alerts.rules.yml, and the table in docs/alerts.md, from the code:
`python docs/gen_alerts.py`.
"""

from __future__ import annotations

from pathlib import Path

from sumus.alerting import ALERTS, Thresholds, rules_text
from sumus.alerting.rules import rule_name

FOLDER = Path(__file__).parent
PAGE, RULES = FOLDER / "alerts.md", FOLDER / "alerts.rules.yml"
BEGIN, END = "<!-- alerts: begin -->\n", "<!-- alerts: end -->\n"
TEST = "tests/alerting/test_every_alert.py"
NOTICED = {
    "run-finished": "the stage of the run becomes `finished`",
    "run-failed": "the stage becomes `failed`, `refused` or `stopped`",
    "run-paused": "the last job has ended and rounds are left",
    "plan-set-aside": "the queue: silos refuse it, or job after job ended without a round",
    "run-received": "a run more lies in the silo's folder",
    "round-lost": "a round number is passed over, or was given up",
    "refused": "a refusal that a silo signed; at the silo a line in `refusals.log`",
    "silo-lost": "the engine has no connection to it",
    "too-few-silos": "connected silos against those of the plan",
    "server-away": "the relay has no connection; the operator gets no answer",
    "process-down": "the process that keeps it looks five times a second",
    "process-restarted": "the same",
    "stuck": "its loop has not gone round in its time",
    "budget-low": "the ledger of the data set against policy or budget, at every entry",
    "budget-spent": "the same, 99 %",
    "certificate-ends": "the kit's certificates, once a minute",
    "disk-low": "the disks of vault and ledger, of the server's state, of the runs, once a minute",
    "backup-old": "`backup.json` of the vault, once a minute",
    "book-broken": "the whole chain, and what was remembered of it elsewhere, once an hour",
    "clock-jumped": "clock against uptime, every second; more than 30 s",
}
THRESHOLD = {
    "run-paused": "paused_minutes",
    "silo-lost": "silo_away_minutes",
    "too-few-silos": "silo_away_minutes",
    "server-away": "server_away_minutes",
    "process-down": "process_down_minutes",
    "budget-low": "budget_percent",
    "certificate-ends": "certificate_days",
    "disk-low": "disk_percent",
    "backup-old": "backup_days",
}
TOLD_BY = {"train": "train", "operator": "operator", "server": "server", "silo": "silo"}


def table() -> str:
    """A line for every alert."""
    lines = [
        "| alert | told by | what is so | noticed by | `--alert` | rule |",
        "|---|---|---|---|---|---|",
    ]
    defaults = Thresholds()
    for alert in ALERTS:
        who = ", ".join(name for name in TOLD_BY if name in alert.watched)
        key = THRESHOLD.get(alert.name)
        number = f"`{key}` = {getattr(defaults, key):g}" if key else "–"
        ends = "" if alert.news else "; its end is told too"
        lines.append(
            f"| `{alert.name}` ({alert.severity}) | {who} | {alert.says}{ends} "
            f"| {NOTICED[alert.name]} | {number} | `{rule_name(alert.name)}` |"
        )
    lines.append(
        "| – (error) | Prometheus | Nobody answers at the address | a scrape that fails | – "
        f"| `{rule_name('gone')}` |"
    )
    return "\n".join(lines) + "\n"


def written(page: str) -> str:
    """The page with the table as the code has it."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    RULES.write_text(rules_text(), encoding="utf-8")
    PAGE.write_text(written(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
