"""`make bench` and `make bench-check`: what is read, kept, written and compared, without measuring."""

# ruff: noqa: E402

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
sys.path.append(str(ROOT / "benchmarks"))  # scripts, no package

import collect
from bench_page import BEGIN, END, draw_curves, page_with, written
from measuring import BenchmarkError, Measured, machine_milliseconds, measure
from regressions import TOLERATED, best_of, regressions
from rows import Curve, Row, at_least, at_most, last_line, read_last_line
from suite import BENCHMARKS, ELSEWHERE, Benchmark

NOISE = BENCHMARKS[0]
CURVE = Curve("draw", "draws", "ns", (1.0, 10.0, 100.0), (3.0, 2.0, 1.5))


def run(*rows: Row, machine_ms: float = 10.0, curves: tuple[Curve, ...] = ()) -> Measured:
    return Measured(
        rows=rows,
        curves=curves,
        load_before=0.25,
        load_after=1.5,
        others=0.125,
        machine_ms=machine_ms,
        seconds=60.0,
    )


def test_what_a_benchmark_says_is_what_is_read() -> None:
    rows = [
        at_most("a | b", 1.5, 1.2, "steps", floor="1.1", where="norms"),
        at_least("c", 3, 2, "×"),
    ]
    said = f"whatever\n{last_line(rows, [CURVE], benchmark='noise')}\n"
    assert read_last_line(said) == (rows, [CURVE])
    assert [row.met for row in rows] == [False, True]
    assert not at_most("d", math.nan, 2.0, "s").met


@pytest.mark.parametrize(
    "printed",
    ["", "done", "[]", "3", '{"ratios": {}}', '{"rows": [{"name": "a"}]}', '{"rows": 3}'],
)
def test_a_last_line_without_rows_is_refused_by_name(printed: str) -> None:
    with pytest.raises(ValueError, match="the last line must be"):
        read_last_line(printed)


def test_every_script_is_run_by_make_bench_or_says_why_not() -> None:
    scripts = {path.stem for path in (ROOT / "benchmarks").glob("*.py")}
    run_by_bench = [benchmark.name for benchmark in BENCHMARKS]
    assert len(set(run_by_bench)) == len(run_by_bench)
    assert scripts == {*run_by_bench, *ELSEWHERE}
    assert not {*run_by_bench} & {*ELSEWHERE}


def script(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> Benchmark:
    """A benchmark of these lines."""
    (folder / "made_up.py").write_text(text)
    monkeypatch.setattr("measuring.FOLDER", folder)
    return Benchmark("made_up", "made up", quick=("quick",), full=("full", "twice"))


def test_a_benchmark_is_run_with_the_options_of_its_size_and_the_machine_is_watched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    lines = (
        "import json, sys\n"
        "row = dict(name=' '.join(sys.argv[1:]), ratio=2.0, target=1.0, better='less', unit='s')\n"
        "print('in between')\n"
        "print(json.dumps({'rows': [row]}))\n"
    )
    benchmark = script(tmp_path, lines, monkeypatch)
    for quick, options in ((True, "quick"), (False, "full twice")):
        found = measure(benchmark, quick=quick)
        assert [row.name for row in found.rows] == [options]
        assert found.seconds > 0.0
        assert found.others >= 0.0
        assert 0.0 < found.machine_ms < 60_000.0
    assert capfd.readouterr().out == "  in between\n" * 2


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        ("raise SystemExit(3)", "made_up.py ended with 3"),
        ("print('done')", "the last line must be"),
    ],
)
def test_a_benchmark_that_fails_or_says_nothing_is_named(
    lines: str, reason: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(BenchmarkError, match=reason):
        measure(script(tmp_path, lines, monkeypatch), quick=True)


def test_a_figure_regresses_when_it_is_worse_by_more_than_a_fifth() -> None:
    stored = run(at_most("less", 1.0, 2.0, "×"), at_least("more", 12.0, 2.0, "×"))
    same = [
        run(at_most("less", less, 2.0, "×"), at_least("more", more, 2.0, "×"))
        for less, more in ((1.0, 12.0), (0.5, 100.0), (1.199, 10.01))
    ]
    assert [regressions(stored, each, all_rows=True) for each in same] == [[], [], []]
    worse = run(at_most("less", 1.201, 2.0, "×"), at_least("more", 9.99, 2.0, "×"))
    found = regressions(stored, worse, all_rows=True)
    assert [each.name for each in found] == ["less", "more"]
    assert all(TOLERATED < each.factor < 1.21 for each in found)
    assert "was 12, is 9.99: worse by a factor of 1.20" in str(found[1])


def test_a_figure_that_is_no_number_regresses() -> None:
    stored = run(at_most("less", 1.0, 2.0, "×"), at_least("more", 12.0, 2.0, "×"))
    nothing = run(at_most("less", math.nan, 2.0, "×"), at_least("more", 0.0, 2.0, "×"))
    assert len(regressions(stored, nothing, all_rows=False)) == 2


def test_a_row_that_is_gone_regresses_where_all_were_measured() -> None:
    stored, now = run(at_most("a", 1.0, 2.0, "×")), run(at_most("new", 9.0, 2.0, "×"))
    assert regressions(stored, now, all_rows=False) == []
    (gone,) = regressions(stored, now, all_rows=True)
    assert str(gone) == "a: was 1, is no longer measured"


@pytest.mark.parametrize("unit", ["s", "ms", "ns a draw"])
def test_a_slower_machine_makes_no_regression_of_seconds(unit: str) -> None:
    stored = run(at_most("a", 1.0, 2.0, unit), machine_ms=10.0)
    again = run(at_most("a", 3.0, 2.0, unit), machine_ms=30.0)
    assert regressions(stored, again, all_rows=True) == []
    assert regressions(stored, replace(again, machine_ms=10.0), all_rows=True)
    # a faster machine hides none
    assert regressions(stored, run(at_most("a", 1.0, 2.0, unit), machine_ms=5.0), all_rows=True)


def test_a_slower_machine_excuses_no_ratio() -> None:
    stored = run(at_most("a", 1.0, 2.0, "×"), machine_ms=10.0)
    assert regressions(stored, run(at_most("a", 3.0, 2.0, "×"), machine_ms=30.0), all_rows=True)


def test_of_several_runs_the_best_figure_of_each_row_counts() -> None:
    first = run(at_most("less", 3.0, 2.0, "×"), at_least("more", 9.0, 2.0, "×"), machine_ms=9.0)
    second = run(at_most("less", 1.0, 2.0, "×"), at_least("more", math.nan, 2.0, "×"))
    third = run(at_most("less", math.nan, 2.0, "×"), at_least("more", 8.0, 2.0, "×"))
    for order in ((first, second, third), (third, second, first)):
        best = best_of(order)
        assert {row.name: row.ratio for row in best.rows} == {"less": 1.0, "more": 9.0}
        assert best.machine_ms == 9.0


@pytest.mark.parametrize(
    ("figures", "asked", "code"),
    [
        ([1.0], [True], 0),
        ([2.0, 1.1], [True, True], 0),
        ([2.0, 2.0, 1.1], [True, True, False], 0),
        ([2.0, 2.0, 2.0], [True, True, False], 1),
    ],
)
def test_the_check_repeats_before_it_fails(
    figures: list[float], asked: list[bool], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    stored = {NOISE.name: run(at_most("a", 1.0, 2.0, "×"))}
    coming, sizes = iter(figures), []

    def measuring(benchmark: Benchmark, quick: bool) -> Measured:
        sizes.append(quick)
        return run(at_most("a", next(coming), 2.0, "×"))

    assert collect.check([NOISE], stored, full=False, measuring=measuring) == code
    assert sizes == asked
    told = capsys.readouterr().out
    assert ("worse: a: was 1, is 2" in told) == bool(code)
    assert ("no figure is worse" in told) == (not code)


def test_the_check_fails_where_a_benchmark_fails_and_goes_on(
    capsys: pytest.CaptureFixture[str],
) -> None:
    stored = {each.name: run(at_most("a", 1.0, 2.0, "×")) for each in BENCHMARKS[:2]}
    asked = []

    def measuring(benchmark: Benchmark, quick: bool) -> Measured:
        asked.append(benchmark.name)
        if len(asked) == 1:
            raise BenchmarkError(f"{benchmark.name}.py ended with 1")
        return run(at_most("a", 1.0, 2.0, "×"))

    assert collect.check(BENCHMARKS[:2], stored, full=False, measuring=measuring) == 1
    assert asked == [each.name for each in BENCHMARKS[:2]]
    assert f"failed: {NOISE.name}.py ended with 1" in capsys.readouterr().out


@pytest.fixture
def places(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for what is kept and written."""
    monkeypatch.setattr(collect, "ROOT", tmp_path)
    monkeypatch.setattr(collect, "STORED", tmp_path / "stored.json")
    monkeypatch.setattr(collect, "PAGE", tmp_path / "performance.md")
    monkeypatch.setattr(collect, "FIGURES", tmp_path / "figures")
    (tmp_path / "performance.md").write_text(f"# Before\n\n{BEGIN}\nold\n{END}\n\nAfter.\n")
    return tmp_path


@pytest.mark.deep
def test_what_was_measured_is_kept_beside_what_was_before(places: Path) -> None:
    other = run(at_most("of another", 3.14159265, 4.0, "s"))
    collect.write(places / "stored.json", {BENCHMARKS[1].name: other})
    row = at_least("draws | of noise", 1.0 / 3.0, 0.5, "×", floor="0.4: the stream", where="all")

    def measuring(benchmark: Benchmark, quick: bool) -> Measured:
        assert not quick
        return run(row, curves=(CURVE,))

    assert collect.collect([NOISE], measuring=measuring) == 0
    kept = collect.read(places / "stored.json")
    assert list(kept) == [NOISE.name, BENCHMARKS[1].name]
    assert kept[NOISE.name] == run(replace(row, ratio=0.3333), curves=(CURVE,))
    assert kept[BENCHMARKS[1].name].rows[0].ratio == 3.142
    page = (places / "performance.md").read_text()
    assert page.startswith(f"# Before\n\n{BEGIN}\n\n| figure |")
    assert page.endswith(f"{END}\n\nAfter.\n")
    assert "old" not in page
    for suffix in ("png", "svg"):
        assert (places / "figures" / f"performance-noise.{suffix}").stat().st_size > 1000
    assert not (places / "figures" / f"performance-{BENCHMARKS[1].name}.svg").exists()


def test_a_benchmark_that_fails_leaves_what_was_stored_and_fails_the_whole(
    places: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = run(at_most("a", 1.0, 2.0, "×"))
    collect.write(places / "stored.json", {NOISE.name: kept})

    def measuring(benchmark: Benchmark, quick: bool) -> Measured:
        raise BenchmarkError("noise.py ended with 1")

    assert collect.collect([NOISE], measuring=measuring) == 1
    assert collect.read(places / "stored.json") == {NOISE.name: kept}
    assert "failed: noise.py ended with 1" in capsys.readouterr().out


def test_the_table_has_every_row_and_a_reason_for_every_bound_that_is_not_held() -> None:
    held = at_most("a | b", 0.01234, 0.02, "s")
    short = at_least("c", 1234.5, 2000.0, "×", floor="1,500: the stream", where="masks 80 %")
    unknown = at_most("d", math.nan, 1.0, "GB")
    text = written({NOISE.name: run(held, short, unknown, curves=(CURVE,)), "gone": run(held)})
    lines = text.splitlines()
    assert "| a / b | 0.0123 s | ≤ 0.0200 | yes | `noise` | 0.2, others 0.1 |" in lines
    assert "| c | 1,234 × | ≥ 2,000 | no | `noise` | 0.2, others 0.1 |" in lines
    assert "| d | no number GB | ≤ 1.00 | no | `noise` | 0.2, others 0.1 |" in lines
    assert "| c | 1,500: the stream | masks 80 % |" in lines
    assert "| d | not known | not known |" in lines
    assert sum(line.startswith("| a / b |") for line in lines) == 1
    assert "![draws of integer noise: ns against draws](figures/performance-noise.svg)" in lines


@pytest.mark.parametrize("page", ["", BEGIN, END, f"{END}\n{BEGIN}", f"{BEGIN}{END}{BEGIN}{END}"])
def test_a_page_without_its_markers_is_left_alone(page: str) -> None:
    with pytest.raises(ValueError, match="the page needs one line"):
        page_with(page, {})


def test_writing_twice_changes_nothing() -> None:
    once = page_with(f"{BEGIN}{END}\n", {NOISE.name: run(at_most("a", 1.0, 2.0, "s"))})
    assert page_with(once, {NOISE.name: run(at_most("a", 1.0, 2.0, "s"))}) == once


def test_a_benchmark_without_curves_has_no_figure(tmp_path: Path) -> None:
    assert draw_curves(tmp_path, NOISE, run(at_most("a", 1.0, 2.0, "s"))) == []
    assert list(tmp_path.iterdir()) == []


def test_the_machine_is_measured_by_its_processor_time() -> None:
    assert 0.0 < machine_milliseconds(repeats=1) < 60_000.0


def test_the_page_says_what_is_stored() -> None:
    stored, page = collect.read(collect.STORED), collect.PAGE.read_text(encoding="utf-8")
    assert page == page_with(page, stored), "Run: python benchmarks/collect.py --page"
    for name, measured in stored.items():
        assert name in {benchmark.name for benchmark in BENCHMARKS}
        figure = collect.FIGURES / f"performance-{name.replace('_', '-')}.svg"
        assert figure.exists() == bool(measured.curves)


def test_names_of_stored_rows_are_unique() -> None:
    names = [row.name for each in collect.read(collect.STORED).values() for row in each.rows]
    assert len(set(names)) == len(names)
