"""Every event of the catalogue is emitted by the code that does the thing, in the test that stands
here beside it.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from sumus.engines import Relay
from sumus.events import EVENTS

TESTS = Path(__file__).parents[1]
SOURCE = TESTS.parent / "src" / "sumus"
_TRAIL = (
    "parties/test_trails.py::test_a_silos_trail_names_every_release_and_what_was_found_at_the_start"
)
_START = (
    "engines/test_joining.py::"
    "test_a_second_start_ends_at_once_and_serving_is_said_when_the_port_is_open"
)
_JOB = "parties/test_trails.py::test_a_server_logs_its_job_and_a_silo_that_refuses"
_VAULT = (
    "parties/test_vault.py::"
    "test_a_folder_is_served_by_one_process_that_cannot_be_read_by_its_own_user"
)
_TRAIN = (
    "cli/test_train_command.py::test_a_private_run_shows_how_much_of_its_bound_each_round_spends"
)
_SILO = "engines/test_joining.py::test_a_silo_logs_when_it_is_let_in_and_when_its_engine_dies"
_ALERT = "alerting/test_every_alert.py::test_it_is_silent_fires_once_and_ends"
SEEN = {
    "alert.cleared": _ALERT,
    "alert.raised": _ALERT,
    "backup.made": "care/test_trail_of_backups.py::test_a_backup_and_a_restore_are_in_the_trail",
    "backup.restored": "care/test_trail_of_backups.py::test_a_backup_and_a_restore_are_in_the_trail",
    "build.changed": _TRAIL,
    "certificates.changed": _START,
    "control.refused": "engines/test_nvflare_control.py::test_a_payload_that_is_no_request_is_refused",
    "event.withheld": "events/test_files.py::test_a_process_logs_and_prints_into_one_file",
    "gate.refused": "engines/test_nvflare_gate.py::test_a_silo_hears_the_server_and_no_other_silo",
    "hook.failed": (
        "alerting/test_hook.py::test_one_that_hangs_is_ended_with_everything_it_started"
    ),
    "identity.changed": _TRAIL,
    "job.ended": _JOB,
    "job.started": _JOB,
    "ledger.begun": (
        "parties/test_trails.py::"
        "test_a_ledger_that_is_begun_anew_is_told_and_its_releases_are_not_missed"
    ),
    "library.said": "events/test_lines.py::test_a_process_that_chooses_a_file_logs_into_it",
    "limit.changed": _TRAIL,
    "log.lost": (
        "events/test_files.py::test_a_full_disk_raises_nothing_and_the_lost_lines_are_counted"
    ),
    "output": "events/test_files.py::test_a_process_logs_and_prints_into_one_file",
    "plan.approved": _TRAIL,
    "plan.withdrawn": (
        "parties/test_trails.py::test_plans_that_come_and_go_are_noticed_whoever_moves_the_files"
    ),
    "policy.changed": _TRAIL,
    "process.failed": "cli/test_train_command.py::test_bad_places_and_numbers_are_one_line",
    "process.restarted": _SILO,
    "queue.set_aside": (
        "engines/test_queue_running.py::"
        "test_what_silos_have_not_approved_is_set_aside_and_the_next_one_runs"
    ),
    "refusal": _TRAIL,
    "relay.unanswered": "events/test_every_event.py::test_a_relay_says_that_its_vault_is_away",
    "release": _TRAIL,
    "roster.changed": _START,
    "round.committed": _JOB,
    "run.delivered": "parties/test_delivery.py::test_it_is_in_the_logs_and_the_silos_audit_trail",
    "run.received": "parties/test_delivery.py::test_it_is_in_the_logs_and_the_silos_audit_trail",
    "server.serving": _START,
    "server.started": _START,
    "server.stopped": _START,
    "silo.connected": _SILO,
    "silo.refused": _JOB,
    "sum.opened": (
        "parties/test_trails.py::"
        "test_a_servers_trail_names_every_sum_and_the_journal_remembers_the_trail"
    ),
    "trail.gap": "events/test_trail.py::test_a_trail_that_lost_lines_says_so_for_ever",
    "training.ended": _TRAIN,
    "training.started": _TRAIN,
    "vault.retired": ("parties/test_trails.py::test_a_retired_vault_says_so_and_is_still_audited"),
    "vault.started": _VAULT,
    "vault.stopped": _VAULT,
}


def test_every_event_has_a_test() -> None:
    assert set(SEEN) == set(EVENTS)


@pytest.mark.parametrize("name", sorted(SEEN))
def test_the_test_looks_for_the_event(name: str) -> None:
    file, _, wanted = SEEN[name].partition("::")
    tree = ast.parse((TESTS / file).read_text())
    (found,) = [
        node for node in tree.body if isinstance(node, ast.FunctionDef) and node.name == wanted
    ]
    words = [node.value for node in ast.walk(found) if isinstance(node, ast.Constant)]
    assert any(isinstance(word, str) and name in word for word in words)


@pytest.mark.deep
def test_nobody_logs_but_through_events() -> None:
    """A line of free text would go past the kinds."""
    allowed = {"events/declaring.py", "events/writing.py", "events/piping.py"}
    talking = []
    for path in sorted(SOURCE.rglob("*.py")):
        calls = [
            node
            for node in ast.walk(ast.parse(path.read_text()))
            if isinstance(node, ast.Attribute)
            and node.attr in {"debug", "info", "warning", "error", "exception", "critical"}
            and isinstance(node.value, ast.Call | ast.Name)
            and "logg" in ast.unparse(node.value).lower()
        ]
        if calls and path.relative_to(SOURCE).as_posix() not in allowed:
            talking.append(path.name)
    assert talking == []


def test_a_relay_says_that_its_vault_is_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert Relay(str(tmp_path / "nothing")).handle(b"hello") is None
    assert caplog.messages == ["relay.unanswered cause=FileNotFoundError"]
