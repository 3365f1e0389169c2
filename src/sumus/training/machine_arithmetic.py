"""What a silo's floats depend on besides plan, records and model: the processor, the threads of
torch and of numpy, the versions of what computes and the settings that choose its kernels.

A round that is repeated has the same noise again. On other arithmetic its gradients differ in their
last bits, so the difference of two releases would be those bits without any noise. Hence a run goes
on only on the arithmetic that it began with.
"""

from __future__ import annotations

import functools
import hashlib
import os
import platform
from collections.abc import Mapping
from importlib.metadata import version
from pathlib import Path

import torch

from sumus import __version__
from sumus.errors import GuaranteeError
from sumus.gradients import device_facts, require_device
from sumus.plan import TrainingPlan

__all__ = ["arithmetic", "require_device_of", "require_same"]

_PROCESSOR = Path("/proc/cpuinfo")
# lines by which kernels and block sizes are chosen; clock rates and the like change from second to
# second
_DECIDING = (
    "vendor_id", "cpu family", "model", "model name", "cache size", "flags",
    "CPU implementer", "CPU architecture", "CPU variant", "CPU part", "Features",
)  # fmt: skip
_SETTINGS = (  # by which kernels, their instructions and their threads are chosen
    "MKL_CBWR", "MKL_ENABLE_INSTRUCTIONS", "ATEN_CPU_CAPABILITY", "DNNL_MAX_CPU_ISA", "ONEDNN_MAX_CPU_ISA",
    "OPENBLAS_NUM_THREADS", "OPENBLAS_CORETYPE", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES", "NUMBA_OPT",
    "OMP_NUM_THREADS", "GOTO_NUM_THREADS", "OPENBLAS_DEFAULT_NUM_THREADS", "MKL_NUM_THREADS",
)  # fmt: skip


def arithmetic(device: str = "cpu") -> dict[str, str]:
    """Everything that decides on the last bits of a sum of floats, by name; the processor as a hash
    of what it can do.

    Args:
        device: `training.device` of the plan.
    """
    return {
        "processor": _processor(),
        # numpy's matrix products, of which a tangent pass is made, have as many threads
        "processors": str(_processors()),
        "device": device_facts(device),
        "torch threads": str(torch.get_num_threads()),
        "oneDNN": "on" if torch.backends.mkldnn.enabled else "off",
        **_packages(),
        "sumus": __version__,
        **{name: os.environ.get(name, "not set") for name in _SETTINGS},
    }


def require_device_of(plan: TrainingPlan) -> None:
    """Refuse a plan whose gradients are computed by what this machine does not have."""
    require_device(plan.training.device)


def require_same(begun: Mapping[str, str], run: Path, device: str = "cpu") -> None:
    """Refuse to go on with a run whose floats would not be repeated.

    Args:
        begun: what the run began with.
        run: its folder, for the message.
        device: `training.device` of its plan.
    """
    now = arithmetic(device)
    changed = [name for name in now if begun.get(name) != now[name]]
    if changed:
        name = changed[0]
        was = f"{name} {begun.get(name, 'not noted')}, here it is {now[name]}"
        rule = "a repeated round would have the same noise on other floats"
        raise GuaranteeError(
            f"{run} began with {was}: {rule}. Resume it where it began, or start a new run."
        )


def _processors() -> int:
    """How many this process may run on."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@functools.cache  # of a process: its packages are loaded once
def _packages() -> dict[str, str]:
    return {name: version(name) for name in ("torch", "numpy", "numba", "llvmlite")}


def _processor() -> str:
    try:
        lines = _PROCESSOR.read_text().splitlines()
    except OSError:
        lines = [platform.processor()]
    kinds = sorted({line for line in lines if line.partition(":")[0].strip() in _DECIDING}) or lines
    capability = torch.backends.cpu.get_cpu_capability()
    return hashlib.sha256("\n".join([platform.machine(), capability, *kinds]).encode()).hexdigest()[
        :12
    ]
