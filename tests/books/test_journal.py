"""Run folders: nothing is lost on a crash or a full disk, nothing is changed unnoticed, two
processes never write at once.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import re
import shutil
import signal
import stat
import subprocess
import sys
import textwrap
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings, strategies as st

from files.test_storage import under_file_limit
from sumus.books import RoundEntry, RunFolder, rounded_up, run_name
from sumus.errors import PlanError, StorageError
from sumus.files import atomic as storage
from sumus.plan import TrainingPlan
from support.synthetic_runs import SILOS, made_account, made_plan, made_round, made_run


def test_a_run_reads_back_as_it_was_written(tmp_path: Path) -> None:
    plan = made_plan()
    account = made_account(plan)
    with RunFolder.create(plan, account, tmp_path, silos=SILOS) as run:
        written = [
            run.commit(made_round(n), {"weights": np.full(3, n)}, {"round": n}) for n in (1, 2, 3)
        ]
        run.finish({"accuracy": 0.9, "worst": math.inf})
    read = RunFolder.open(run.path)
    assert read.plan == plan
    assert read.rounds() == written
    assert read.guarantee is not None
    assert (read.guarantee.epsilon, read.guarantee.proved, read.guarantee.trust) == (
        account.epsilon,
        True,
        account.trust,
    )
    assert [each.name for each in read.guarantee.analyses] == ["convex-pass", "local"]
    assert read.silos == SILOS
    assert read.void is None
    assert {"python", "numpy", "sumus"} <= read.versions.keys()
    assert read.summary is not None
    assert read.summary["accuracy"] == 0.9
    assert json.loads((run.path / "summary.json").read_text()) == read.summary
    checkpoint = read.read_checkpoint()
    assert checkpoint is not None
    np.testing.assert_array_equal(checkpoint[0]["weights"], np.full(3, 3))
    assert checkpoint[1] == {"round": 3}
    assert read.verify() == run.head


def test_every_round_names_the_line_before_it(tmp_path: Path) -> None:
    run = RunFolder.open(made_run(tmp_path, rounds=4))
    assert [each.previous for each in run.rounds()] == [link.hash for link in run.links[:4]]
    assert (
        run.links[0].body["plan_file"]
        == hashlib.sha256((run.path / "plan.toml").read_bytes()).hexdigest()
    )
    assert run.plan_hash == run.plan.hash


def test_numbers_from_numpy_and_beyond_json_survive(tmp_path: Path) -> None:
    plan = made_plan()
    with RunFolder.create(plan, None, tmp_path, void="no noise at all") as run:
        record = made_round(
            1,
            loss=float("nan"),
            accuracy=np.float32(0.5),
            nonfinite=np.int64(3),
            epsilon_spent=math.inf,
        )
        run.commit(record, {}, {"step": np.int64(4)})
    read = RunFolder.open(run.path)
    assert read.guarantee is None
    assert read.void == "no noise at all"
    (only,) = read.rounds()
    assert (only.nonfinite, only.metrics["accuracy"], only.epsilon_spent) == (3, 0.5, math.inf)
    assert math.isnan(only.metrics["loss"])


def test_names_are_safe_and_tell_data_time_and_plan() -> None:
    plan = made_plan()
    noon = datetime(2026, 11, 15, 12, 0, 0, tzinfo=UTC)
    assert re.fullmatch(r"digits-20261115T120000Z-[0-9a-f]{8}", run_name(plan, now=noon))
    assert run_name(plan, now=noon, nonce=b"a") != run_name(plan, now=noon, nonce=b"b")
    assert run_name(plan, now=noon) != run_name(made_plan(privacy__delta="1e-6"), now=noon)
    assert run_name(plan, name="../../etc/<b>", now=noon).startswith("etc-b-2026")
    assert run_name(plan, name="///", now=noon).startswith("run-2026")


def test_two_runs_of_one_second_get_two_folders(tmp_path: Path) -> None:
    plan = made_plan()
    names = {RunFolder.create(plan, None, tmp_path / str(number % 2)).name for number in range(6)}
    # also across roots: a ledger tells runs apart by name; 32 random bits each, so 4e-9 of a false
    # alarm
    assert len(names) == 6


def test_an_account_of_another_plan_is_refused(tmp_path: Path) -> None:
    with pytest.raises(PlanError, match="plan_hash"):
        RunFolder.create(made_plan(), made_account(made_plan(privacy__delta="1e-6")), tmp_path)
    assert list(tmp_path.iterdir()) == []


# -- one writer


def test_a_run_in_progress_can_be_read_but_not_written_by_others(tmp_path: Path) -> None:
    plan = made_plan()
    with RunFolder.create(plan, made_account(plan), tmp_path) as run:
        run.append(made_round(1))
        reader = RunFolder.open(run.path)
        assert len(reader.rounds()) == 1
        with pytest.raises(StorageError, match="reading only"):
            reader.append(made_round(2))
        with pytest.raises(StorageError, match="in use by another process"):
            RunFolder.open(run.path, resume=True)
    with RunFolder.open(run.path, resume=True) as resumed:
        resumed.append(made_round(2))


@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_round_on_record_is_never_written_again(tmp_path: Path, number: int) -> None:
    plan = made_plan()
    with RunFolder.create(plan, made_account(plan), tmp_path) as run:
        run.append(made_round(1))
        run.append(made_round(2))
        with pytest.raises(StorageError, match=r"in the journal already|counted from 1"):
            run.commit(made_round(number), {}, {})
        assert len(run.rounds()) == 2


@pytest.mark.parametrize("spent", [0.1, math.nan])
def test_epsilon_spent_never_falls(tmp_path: Path, spent: float) -> None:
    plan = made_plan()
    with RunFolder.create(plan, made_account(plan), tmp_path) as run:
        run.append(made_round(1, epsilon_spent=0.2))
        with pytest.raises(StorageError, match="must not fall"):
            run.append(made_round(2, epsilon_spent=spent))


def test_a_finished_run_stays_as_it_is(tmp_path: Path) -> None:
    path = made_run(tmp_path, rounds=2)
    before = (path / "journal.jsonl").read_bytes()
    with RunFolder.open(path, resume=True) as run:
        for write in (
            lambda: run.append(made_round(3)),
            lambda: run.finish({}),
            lambda: run.note("x", {}),
            lambda: run.write_checkpoint({}, {}),
        ):
            with pytest.raises(StorageError, match="finished already"):
                write()
    assert (path / "journal.jsonl").read_bytes() == before


def test_the_seed_of_the_randomness_is_private_and_dies_with_the_run(tmp_path: Path) -> None:
    plan = made_plan()
    with RunFolder.create(plan, made_account(plan), tmp_path) as run:
        run.write_secret(b"s" * 32)
        file = run.path / "secret.key"
        assert stat.S_IMODE(file.stat().st_mode) == 0o600
        assert RunFolder.open(run.path).read_secret() == b"s" * 32
        run.finish({})
        assert not file.exists()


# -- crashes and full disks


class Killed(BaseException):
    """Stands for kill -9: nothing of ours runs after it."""


@pytest.mark.parametrize("point", range(40))
def test_a_crash_at_any_system_call_of_a_commit_leaves_the_round_in_both_files_or_in_neither(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, point: int
) -> None:
    plan = made_plan()
    run = RunFolder.create(plan, made_account(plan), tmp_path)
    run.commit(made_round(1), {"weights": np.full(3, 1)}, {"round": 1})
    left = point

    def counted(name: str) -> None:
        original = getattr(os, name)

        def call(*arguments: object, **named: object) -> object:
            nonlocal left
            left -= 1
            if left < 0:
                raise Killed
            return original(*arguments, **named)

        monkeypatch.setattr(storage.os, name, call)

    for name in ("write", "fsync", "replace", "ftruncate", "open", "close", "lseek"):
        counted(name)
    finished = True
    try:
        run.commit(made_round(2), {"weights": np.full(3, 2)}, {"round": 2})
    except Killed:
        finished = False
    monkeypatch.undo()
    run.close()
    with RunFolder.open(run.path, resume=True) as resumed:
        checkpoint = resumed.read_checkpoint()
        assert checkpoint is not None
        assert checkpoint[1]["round"] == resumed.last_round == len(resumed.rounds())
        assert checkpoint[0]["weights"][0] == resumed.last_round
        assert resumed.last_round == 2 or not finished
        assert resumed.events[-1] == ("resumed", {"after_round": resumed.last_round})
        resumed.commit(made_round(resumed.last_round + 1), {"weights": np.full(3, 9)}, {})
        resumed.verify()


@pytest.mark.deep
def test_a_run_killed_with_signal_9_resumes_where_it_was(tmp_path: Path) -> None:
    source = f"""
        import sys
        sys.path[:0] = {[str(Path(__file__).parent.parent)]!r}
        from pathlib import Path
        import numpy as np
        from support.synthetic_runs import made_account, made_plan, made_round
        from sumus.books import RunFolder
        plan = made_plan(federation__rounds=100000)
        run = RunFolder.create(plan, made_account(plan), Path({str(tmp_path)!r}))
        for number in range(1, 100000):
            run.commit(made_round(number, rounds=100000), {{"weights": np.full(50000, number)}}, {{"round": number}})
            print(number, flush=True)
        """
    child = subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(source)], stdout=subprocess.PIPE, text=True
    )
    assert child.stdout is not None
    for line in child.stdout:
        if int(line) >= 7:
            break
    child.send_signal(signal.SIGKILL)
    rest = child.stdout.read().split()
    child.stdout.close()
    child.wait()
    committed = int(rest[-1]) if rest else 7
    (path,) = tmp_path.iterdir()
    with RunFolder.open(path, resume=True) as run:
        checkpoint = run.read_checkpoint()
        assert checkpoint is not None
        assert run.last_round in (committed, committed + 1)
        assert checkpoint[1]["round"] == run.last_round
        assert set(checkpoint[0]["weights"]) == {run.last_round}
        run.verify()


@pytest.mark.deep
@pytest.mark.parametrize(("weights", "full"), [(5000, "checkpoint.npz"), (2, "journal.jsonl")])
def test_a_full_disk_while_committing_names_the_file_and_loses_nothing(
    tmp_path: Path, weights: int, full: str
) -> None:
    """No file may exceed 16,000 bytes: a large checkpoint does not fit; with a small one the
    growing record does not.
    """
    plan = made_plan()
    run = RunFolder.create(plan, made_account(plan), tmp_path)
    run.commit(made_round(1, rounds=99), {"weights": np.full(2, 1.0)}, {"round": 1})
    run.close()
    done = under_file_limit(
        16_000,
        f"""
        import sys
        sys.path[:0] = {[str(Path(__file__).parent.parent)]!r}
        import numpy as np
        from support.synthetic_runs import made_round
        from sumus.errors import StorageError
        from sumus.books import RunFolder
        run = RunFolder.open({str(run.path)!r}, resume=True)
        try:
            for number in range(2, 99):
                run.commit(made_round(number, rounds=99), {{"weights": np.full({weights}, number)}}, {{"round": number}})
        except StorageError as error:
            print(error)
        """,
    )
    assert done.returncode == 0, done.stderr
    assert f"{full} cannot be written: no space left" in done.stdout
    with RunFolder.open(run.path, resume=True) as resumed:
        checkpoint = resumed.read_checkpoint()
        assert checkpoint is not None
        assert checkpoint[1]["round"] == resumed.last_round >= (1 if weights > 2 else 3)
        resumed.commit(made_round(resumed.last_round + 1, rounds=99), {}, {})
        resumed.verify()


def test_a_record_torn_at_any_byte_of_its_last_line_opens(tmp_path: Path) -> None:
    plan = made_plan()
    with RunFolder.create(plan, made_account(plan), tmp_path) as run:
        for number in (1, 2):
            run.append(made_round(number))
    file = run.path / "journal.jsonl"
    content = file.read_bytes()
    start = content[:-1].rindex(b"\n") + 1
    for length in range(start, len(content) - 1, 37):
        file.write_bytes(content[:length])
        assert RunFolder.open(run.path).last_round == 1
    file.write_bytes(content[:-1])
    assert RunFolder.open(run.path).last_round == 2


# -- damage


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(data=st.data())
def test_a_changed_byte_anywhere_is_noticed(tmp_path: Path, data: st.DataObject) -> None:
    original, copy = tmp_path / "original", tmp_path / "copy"
    if not original.exists():
        made_run(original, rounds=2)
    shutil.rmtree(copy, ignore_errors=True)
    shutil.copytree(next(original.iterdir()), copy)
    file = copy / data.draw(
        st.sampled_from(["plan.toml", "journal.jsonl", "checkpoint.npz", "summary.json"])
    )
    content = bytearray(file.read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= data.draw(st.integers(1, 255))
    file.write_bytes(bytes(content))
    with pytest.raises(StorageError, match=file.name.replace(".", r"\.")):
        RunFolder.open(copy).verify()


def test_a_changed_plan_is_noticed(tmp_path: Path) -> None:
    path = made_run(tmp_path, rounds=2)
    file = path / "plan.toml"
    file.write_text(file.read_text().replace("epsilon = 1.0", "epsilon = 0.1"))
    with pytest.raises(StorageError, match=r"plan\.toml is not the plan that ran"):
        RunFolder.open(path)
    file.write_text("[privacy\n")
    with pytest.raises(StorageError, match=r"plan\.toml is not the plan"):
        RunFolder.open(path)


def test_a_later_version_reads_old_runs_but_does_not_go_on_with_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new plan key changes the hash of every plan; what was written stays readable, and its own
    hash stays known.
    """
    path = made_run(tmp_path, rounds=2, finished=False)
    before = RunFolder.open(path).plan.hash
    monkeypatch.setattr(TrainingPlan, "canonical", property(lambda plan: b"with a key more"))
    run = RunFolder.open(path)
    assert run.plan.hash != run.plan_hash == before
    run.verify()
    assert run.read_checkpoint() is not None
    with pytest.raises(StorageError, match="which knows other plan keys"):
        RunFolder.open(path, resume=True)


def test_lines_that_the_checkpoint_knows_cannot_vanish(tmp_path: Path) -> None:
    path = made_run(tmp_path, rounds=4, finished=False)
    file = path / "journal.jsonl"
    file.write_bytes(b"".join(file.read_bytes().splitlines(keepends=True)[:-2]))
    with pytest.raises(StorageError, match="lacks lines that checkpoint"):
        RunFolder.open(path, resume=True)
    with pytest.raises(StorageError, match=r"journal\.jsonl lacks the lines"):
        RunFolder.open(path).verify()


def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path) -> None:
    one, two = made_run(tmp_path / "a", rounds=2), made_run(tmp_path / "b", rounds=3)
    shutil.copy(two / "checkpoint.npz", one / "checkpoint.npz")
    with pytest.raises(StorageError, match="belongs to another plan"):
        RunFolder.open(one).read_checkpoint()


def test_a_folder_that_is_no_run_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="is not a run folder"):
        RunFolder.open(tmp_path)
    (tmp_path / "journal.jsonl").write_bytes(b"")
    (tmp_path / "plan.toml").write_text(made_plan().to_toml())
    with pytest.raises(StorageError, match="holds no run"):
        RunFolder.open(tmp_path)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("metrics", {"accuracy": "<script>"}),
        ("round", 1.5),
        ("survivors", "north"),
        ("seconds", {"local": "long"}),
        ("nonfinite", True),
        ("surprise", 1),
    ],
)
def test_a_forged_record_with_a_valid_chain_but_wrong_types_is_refused(
    tmp_path: Path, field: str, value: object
) -> None:
    """The attacker wants the report to compute with, or show, something that is not what the field
    says.
    """
    plan = made_plan()
    with RunFolder.create(plan, made_account(plan), tmp_path) as run:
        from sumus.books.round import round_body

        run._chain = run._chain.appended("round", round_body(made_round(1)) | {field: value})
    with pytest.raises(StorageError, match=r"journal\.jsonl, line 2"):
        RunFolder.open(run.path).rounds()


def test_the_smallest_record_is_a_record(tmp_path: Path) -> None:
    plan = made_plan()
    with RunFolder.create(plan, made_account(plan), tmp_path) as run:
        run.append(RoundEntry(round=1, round_id="a", epsilon_spent=0.1, delta=1e-5))
    assert RunFolder.open(run.path).rounds()[0].survivors == ()


@settings(max_examples=300, deadline=None)
@given(value=st.floats(1e-12, 1e12))
def test_a_printed_bound_is_still_a_bound(value: float) -> None:
    assert value <= float(rounded_up(value)) <= 1.0011 * value


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.99941, "0.9995"),
        (1.0, "1"),
        (9.9991, "10"),
        (math.inf, "inf"),
        (0.0, "0"),
        (1.25, "1.25"),
    ],
)
def test_bounds_are_printed_with_four_digits(value: float, text: str) -> None:
    assert rounded_up(value) == text
