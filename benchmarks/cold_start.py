"""How long it takes until something is seen: the first round of `sumus train`, an account, `--help`.

    python benchmarks/cold_start.py [--repeats 5] [--quick]

Every figure is of processes of their own, the least of several. `cold` has an empty cache of
compiled loops, `warm` the one that a run before it left; byte code is there in both, as an install
leaves it. Seconds are processor time (all that the process has used when the line of the first
round appears), which a busy machine disturbs less than the clock; the clock is printed too.
`import torch` alone, measured in between, is the least that a first round can take. The share of
compilation is what numba's own events say, in a cold run that is traced and not timed.
"""

from __future__ import annotations

import argparse
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from pathlib import Path

from rows import Row, at_most, last_line

ROOT = Path(__file__).parent.parent
PLANS = (ROOT / "plans", ROOT / "src" / "sumus" / "plan" / "plans")
TRAIN = ("-m", "sumus", "train", "--no-report", "--no-ledger")
TRACED = """
import sys, time
from numba.core import event

class Compiling(event.Listener):
    depth, begin, seconds = 0, 0.0, {}
    def on_start(self, told):
        if self.depth == 0:
            self.begin = time.process_time()
        self.depth += 1
    def on_end(self, told):
        self.depth -= 1
        if self.depth == 0:
            name = told.data["dispatcher"].py_func.__name__
            self.seconds[name] = self.seconds.get(name, 0.0) + time.process_time() - self.begin

compiling = Compiling()
event.register("numba:compile", compiling)
from sumus.cli import main
sys.argv = ["sumus", *sys.argv[1:]]
try:
    main()
finally:
    print("COMPILED", *(f"{name}={spent:.3f}" for name, spent in compiling.seconds.items()))
"""


def environment(scratch: Path, cache: Path) -> dict[str, str]:
    """One thread, byte code kept in a folder of ours, compiled loops in another, nothing of the
    user's state.
    """
    kept = {key: value for key, value in os.environ.items() if key != "PYTHONDONTWRITEBYTECODE"}
    return kept | {
        "OMP_NUM_THREADS": "1",
        "PYTHONPATH": str(ROOT / "src"),
        "PYTHONPYCACHEPREFIX": str(scratch / "bytecode"),
        "NUMBA_CACHE_DIR": str(cache),
        "XDG_STATE_HOME": str(scratch / "state"),
    }


def processor_seconds(process: int) -> float:
    """What a running process has used so far, all its threads."""
    fields = Path(f"/proc/{process}/stat").read_text(encoding="ascii").rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def first_round(scratch: Path, cache: Path) -> tuple[float, float]:
    """Processor and wall seconds until the first round's line is printed."""
    command = [sys.executable, "-u", *TRAIN, "--out", str(scratch / "runs")]
    begin = time.perf_counter()
    with subprocess.Popen(
        command, env=environment(scratch, cache), stdout=subprocess.PIPE, text=True, cwd=scratch
    ) as process:
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("round   1"):
                took = processor_seconds(process.pid), time.perf_counter() - begin
                process.stdout.read()
                return took
    raise SystemExit(f"error: `sumus train` ended with {process.returncode} before a first round")


def whole(arguments: Iterable[str], scratch: Path) -> tuple[float, float]:
    """Processor and wall seconds of a process from beginning to end."""
    before, begin = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run(
        [sys.executable, *arguments],
        env=environment(scratch, scratch / "warm"),
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=scratch,
    )
    wall, after = time.perf_counter() - begin, resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, wall


def compiled_seconds(scratch: Path) -> dict[str, float]:
    """Seconds that a cold run spends on compiling, by outermost loop."""
    with tempfile.TemporaryDirectory(dir=scratch) as cache:
        printed = subprocess.run(
            [sys.executable, "-c", TRACED, *TRAIN[2:], "--out", str(scratch / "runs")],
            env=environment(scratch, Path(cache)),
            check=True,
            capture_output=True,
            text=True,
            cwd=scratch,
        ).stdout
    told = next(line for line in printed.splitlines() if line.startswith("COMPILED"))
    return {name: float(spent) for name, spent in (part.split("=") for part in told.split()[1:])}


def accountable(scratch: Path) -> list[Path]:
    """Shipped plans whose data is here; the others are named, not measured."""
    plans = []
    for plan in sorted(path for folder in PLANS for path in folder.glob("*.toml")):
        try:
            whole(("-m", "sumus", "account", str(plan)), scratch)
            plans.append(plan)
        except subprocess.CalledProcessError as failed:
            reason = failed.stderr.decode().strip().splitlines()[-1]
            print(f"not measured: account {plan.name}: {reason}")
    return plans


def least(times: list[tuple[float, float]]) -> tuple[float, float]:
    """Least processor and least wall seconds."""
    return min(cpu for cpu, _ in times), min(wall for _, wall in times)


def first_round_rows(scratch: Path, repeats: int) -> list[Row]:
    """Cold, warm and the floor in turn, so that a busy minute disturbs all of them."""
    times: dict[str, list[tuple[float, float]]] = {"cold": [], "warm": [], "import torch": []}
    first_round(scratch, scratch / "warm")  # byte code and the warm cache
    for _ in range(repeats):
        with tempfile.TemporaryDirectory(dir=scratch) as cache:
            times["cold"].append(first_round(scratch, Path(cache)))
        times["warm"].append(first_round(scratch, scratch / "warm"))
        times["import torch"].append(whole(("-c", "import torch"), scratch))
    compiling = compiled_seconds(scratch)
    spent = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in compiling.items())
    (cold, cold_wall), (warm, warm_wall) = least(times["cold"]), least(times["warm"])
    floor, _ = least(times["import torch"])
    share = sum(compiling.values()) / cold
    print(f"first round, cold   {cold:6.2f} s   on the clock {cold_wall:6.2f} s")
    print(f"first round, warm   {warm:6.2f} s   on the clock {warm_wall:6.2f} s")
    print(f"import torch alone  {floor:6.2f} s")
    print(f"compiling           {100 * share:5.0f} %   {spent}")
    torch = f"{floor:.2f} s: `import torch` alone"
    return [
        at_most(
            "first round of digits, nothing compiled",
            cold,
            4.0,
            "s",
            floor=torch,
            where=f"compiling {100 * share:.0f} % ({spent})",
        ),
        at_most(
            "first round of digits, loops compiled before",
            warm,
            2.0,
            "s",
            floor=torch,
            where=f"`import torch` {100 * floor / warm:.0f} %",
        ),
        at_most(
            "first round of digits, warm, over `import torch`", warm / floor, 2.0, "`import torch`"
        ),
    ]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="two repeats")
    options = parser.parse_args()
    repeats = 2 if options.quick else options.repeats
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder)
        rows = first_round_rows(scratch, repeats)
        slowest, at = 0.0, ""
        for plan in accountable(scratch):
            work = ("-m", "sumus", "account", str(plan))
            cpu, wall = least([whole(work, scratch) for _ in range(repeats)])
            print(f"account {plan.name:32s} {cpu:6.3f} s   on the clock {wall:6.3f} s")
            slowest, at = max((slowest, at), (cpu, plan.name))
        rows.append(at_most("slowest account of a shipped plan", slowest, 0.8, "s", where=at))
        cpu, wall = least([whole(("-m", "sumus", "--help"), scratch) for _ in range(2 * repeats)])
        print(f"--help {'':33s} {cpu:6.3f} s   on the clock {wall:6.3f} s")
        rows.append(at_most("`sumus --help`", cpu, 0.2, "s"))
    print(last_line(rows, benchmark="cold_start", load=os.getloadavg()[0]))


if __name__ == "__main__":
    main()
