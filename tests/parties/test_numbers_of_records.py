"""Nobody sees across machines how many records a silo has: none, one, as many as its bound, or one
more.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from oracles.secagg_federation import read
from sumus.data import load_silo
from sumus.errors import PlanError
from sumus.parties import agree_on
from sumus.plan import TrainingPlan
from sumus.secagg import Welcome
from support.local_federation import LocalFederation

BOUND = 30
PLAN = """
[privacy]
epsilon = 2.0
delta = 1e-4
[federation]
silos = 3
rounds = 2
local_steps = 4
[training]
algorithm = "convex-pass"
learning_rate = 0.5
[data]
path = "PATH"
silo_column = "clinic"
label_column = "ill"
columns = ["age"]
test_fraction = TESTS
records_per_silo = [30, 30, 30]
[data.bounds]
age = [0, 100]
[data.categories]
clinic = ["A", "B", "C"]
ill = ["0", "1"]
[evaluation]
metrics = "METRICS"
noise_multiplier = 60.0
"""


def write(path: Path, of_a: int) -> None:
    """A table in which silo A has so many records."""
    rows = [f"{clinic},{index % 90},{index % 3 % 2}" for clinic in "BC" for index in range(20)]
    rows += [f"A,{index},{index % 2}" for index in range(of_a)]
    path.write_text("clinic,age,ill\n" + "".join(f"{row}\n" for row in rows))
    os.utime(path, ns=(of_a, of_a))


@pytest.mark.parametrize("metrics", ["none", "secure"])
@pytest.mark.parametrize(
    "pair", [(1, 0), (BOUND + 1, BOUND), (BOUND + 25, 0)], ids=["the last one", "one beyond", "all"]
)
def test_neighbours_give_the_same_greeting_and_take_part_in_every_round(
    pair: tuple[int, int], metrics: str, tmp_path: Path
) -> None:
    table = tmp_path / "own.csv"
    tests = "0.0" if metrics == "none" else "0.5"
    plan = agree_on(
        TrainingPlan.from_toml(
            PLAN.replace("PATH", str(table)).replace("METRICS", metrics).replace("TESTS", tests)
        )
    ).plan
    seen = []
    for of_a in pair:
        write(table, of_a)
        if metrics == "none":
            assert len(load_silo(plan, "A").silos[0].train) == min(of_a, BOUND)
        federation = LocalFederation(tmp_path / str(of_a), plan)
        body = federation.parties[0].handle(federation.greeting())
        welcome = read(body, Welcome)
        server = federation.server()
        server.greet()
        rounds = [
            (record.survivors, record.dropped, record.bytes_up)
            for record in server.train(federation.run_folder())
        ]
        refusals = federation.folder("A") / "refusals.log"
        seen.append(
            (
                len(body),
                welcome.sender,
                welcome.simulation,
                server.refusals,
                refusals.exists(),
                rounds,
            )
        )
        federation.close()
    assert seen[0] == seen[1]
    assert [survivors for survivors, _, _ in seen[0][-1]] == [("A", "B", "C")] * 2


def test_a_count_that_was_read_off_the_data_is_no_bound_across_machines() -> None:
    plan = TrainingPlan.from_toml(PLAN.replace("METRICS", "none").replace("TESTS", "0.2")).replace(
        "data", counts="public"
    )
    with pytest.raises(PlanError, match=r'data\.counts must be "bounded" across machines'):
        agree_on(plan)
