"""A consortium of hospitals with one table: train a proved-private model straight from a CSV file.

    python examples/hospitals.py

The records are synthetic. Bounds and categories in the plan are public knowledge (an age is between
0 and 110), never read off the data.
"""

from __future__ import annotations

import tempfile
from pathlib import Path

import sumus
from sumus.data import write_patients
from sumus.runs import RunOptions

PLAN = """
[privacy]
epsilon = 1.0
delta = 1e-5
[federation]
rounds = 10
local_steps = 200            # bins of a noiseless pass
dropouts = 1                 # one hospital may vanish in any round
[training]
algorithm = "convex-pass"
model = "logistic"
learning_rate = 1.0
[noise]
removable = true             # take the noise back that no drop-out turned out to need
[data]
path = "{path}"
silo_column = "hospital"
label_column = "readmitted"
[data.bounds]
age = [0, 110]
stay_days = [0, 60]
blood_pressure = [60, 240]
creatinine = [0, 10]
earlier_visits = [0, 20]
[data.categories]
sex = ["female", "male"]
ward = ["cardiology", "general", "oncology", "surgery"]
smoker = ["no", "yes"]
readmitted = ["no", "yes"]
"""


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        table = Path(folder) / "patients.csv"
        write_patients(table)
        plan = sumus.TrainingPlan.from_toml(PLAN.format(path=table))
        print(sumus.account(plan))
        run = sumus.train(
            plan, options=RunOptions(root=Path("runs"), name="hospitals", compare=True)
        )
    for line in run.assumptions:
        print("assumed:", line)
    print(f"accuracy {run.accuracy:.1%} with the guarantee above")
    print(
        f"without privacy {run.baselines['non_private']:.1%}, each hospital alone "
        f"{run.baselines['alone_mean']:.1%}"
    )
    print(f"everything is in {run.path}")


if __name__ == "__main__":
    main()
