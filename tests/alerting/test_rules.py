"""The rules for Prometheus and the page about alerts say what the code says."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

import pytest
import yaml

from oracles.promql import Scrape, evaluate, fires, names_in
from sumus.alerting import ALERTS, rules_text
from sumus.alerting.rules import GONE, rule_name
from sumus.watching import Health
from sumus.watching.metrics import families_of

ROOT = Path(__file__).parents[2]
GENERATED = runpy.run_path(str(ROOT / "docs" / "gen_alerts.py"))
EVERYTHING = runpy.run_path(str(ROOT / "docs" / "gen_metrics.py"))["everything"]


def test_the_file_and_the_page_are_those_of_the_code() -> None:
    assert (ROOT / "docs" / "alerts.rules.yml").read_text(encoding="utf-8") == rules_text()
    page = (ROOT / "docs" / "alerts.md").read_text(encoding="utf-8")
    assert page == GENERATED["written"](page)
    assert set(GENERATED["NOTICED"]) == {alert.name for alert in ALERTS}


def test_the_file_is_one_that_prometheus_reads() -> None:
    """Groups of rules, each with a name, an expression, and at most a time, labels, annotations."""
    (group,) = yaml.safe_load(rules_text())["groups"]
    assert group["name"] == "sumus"
    names = [rule["alert"] for rule in group["rules"]]
    assert names == [*(rule_name(alert.name) for alert in ALERTS), "SumusGone"]
    assert len(set(names)) == len(names)
    for rule in group["rules"]:
        assert set(rule) <= {"alert", "expr", "for", "labels", "annotations"}
        assert re.fullmatch(r"[A-Z]\w*", rule["alert"])
        assert re.fullmatch(r"\d+m", rule.get("for", "1m"))
        assert rule["labels"]["severity"] in ("info", "warning", "error")
        assert rule["annotations"]["summary"]


def samples() -> set[str]:
    """Every name that `/metrics` can have."""
    return {
        sample.name
        for watched in ("operator", "silo", "train")
        for family in families_of(EVERYTHING(watched), alive=True)
        for sample in family.samples
    }


@pytest.mark.parametrize("alert", ALERTS, ids=lambda alert: alert.name)
def test_a_rule_reads_metrics_that_there_are(alert) -> None:  # type: ignore[no-untyped-def]
    assert names_in(alert.rule)
    assert names_in(alert.rule) <= samples()


def test_a_party_that_is_gone_is_seen_by_prometheus_alone() -> None:
    def scraped(time: float, up: int) -> Scrape:
        return Scrape.of(time, f'up{{job="sumus"}} {up}\n')

    well = [scraped(60.0 * minute, 1) for minute in range(10)]
    gone = [scraped(600.0 + 60.0 * minute, 0) for minute in range(7)]
    assert not fires(GONE, well, 300.0)
    assert not fires(GONE, [*well, *gone[:3]], 300.0)
    assert fires(GONE, [*well, *gone], 300.0)


def test_the_small_promql_is_promql() -> None:
    """Its arithmetic on what the manual says."""
    text = 'a{x="1"} 4\na{x="2"} 6\nb{x="1"} 8\n'
    first = Scrape.of(0.0, 'c_total{x="1"} 5\n' + text)
    last = Scrape.of(60.0, 'c_total{x="1"} 7\n' + text)
    one = frozenset({("x", "1")})
    assert evaluate("a / b", [last]) == {one: 0.5}
    assert evaluate('a{x="1"} == 4', [last]) == {one: 4.0}
    assert evaluate('a{x=~"1|3"} > 3', [last]) == {one: 4.0}
    assert evaluate("a < b", [last]) == {one: 4.0}
    assert evaluate("time() - a > 55", [last]) == {one: 56.0}
    assert evaluate("increase(c_total[5m]) > 0", [first, last]) == {one: 2.0}
    assert evaluate("increase(c_total[5m]) > 0", [last]) == {}
    assert evaluate("increase(c_total[1m]) > 0", [first, last]) == {}
    restarted = Scrape.of(120.0, 'c_total{x="1"} 1\n')
    assert evaluate("increase(c_total[5m])", [first, last, restarted]) == {one: 3.0}
    assert evaluate("nothing > 0", [last]) == {}


def test_health_of_another_book_is_refused() -> None:
    from sumus.errors import StorageError

    with pytest.raises(StorageError, match="broken must be of"):
        Health(broken=("diary",))
