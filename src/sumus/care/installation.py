"""Is this installation of Sumus well: Python, packages, compiled loops, random bits, samplers."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from importlib import metadata

from sumus import __version__
from sumus.audit import audit_noise, usual_laws
from sumus.care.finding import Finding, fail, looked, ok, warn
from sumus.files import build_of, compiled

__all__ = ["examine_installation", "unfit"]

FALSE_ALARM = 1e-9
"""Probability that the self-test of the samplers fails on a machine that is well."""
_DRAWS = 200_000
_RANDOM_BYTES = 4096
_MOST_OFF = 800
"""Of 32,768 fair bits the ones are further from half with probability below 2·exp(-2·800²/32768) <
1e-16 (Hoeffding)."""
_NOT_FOR_RUNNING = ("dev", "docs")
_NEEDED = {"torch": "train"}
"""What a silo cannot train without, and the extra that brings it."""


def examine_installation() -> list[Finding]:
    """Look at what every party needs."""
    looks = {
        "python": _python,
        "packages": _packages,
        "compiled loops": _loops,
        "random bits": _random_bits,
        "sampler": _sampler,
    }
    return [looked(check, look) for check, look in looks.items()]


def _python() -> Finding:
    needed = metadata.metadata("sumus")["Requires-Python"] or ""
    version = ".".join(map(str, sys.version_info[:3]))
    if unfit(version, needed):
        return fail(
            "python",
            f"Python {version} is not {needed}.",
            "Install Sumus with a Python that is.",
        )
    return ok("python", f"Python {version}, Sumus {build_of()}")


def _packages() -> Finding:
    try:
        declared = metadata.requires("sumus") or []
        release = metadata.version("sumus")
    except metadata.PackageNotFoundError:
        return warn(
            "packages",
            "Sumus runs from its sources, which declare no packages.",
            "Install it: pip install .",
        )
    wrong = list(_unfitting(declared))
    if wrong:
        return fail(
            "packages",
            f"{', '.join(wrong)}.",
            "Install again: pip install --upgrade sumus, with the extras that you use.",
        )
    if release != __version__:
        return warn(
            "packages",
            f"the files are of release {__version__}, the installation of {release}.",
            "Install again: pip install --force-reinstall sumus",
        )
    missing = [name for name in _NEEDED if _installed(name) is None]
    if missing:
        return warn(
            "packages",
            f"{missing[0]} is not installed: this machine can be a server and no silo.",
            f"Install it: pip install 'sumus[{_NEEDED[missing[0]]}]'",
        )
    return ok(
        "packages", f"{len(declared)} declared, all that are installed are within their ranges"
    )


def _unfitting(declared: list[str]) -> Iterator[str]:
    """Packages that are installed in a version that Sumus is not for, or that it lacks."""
    for requirement in declared:
        stated, _, condition = requirement.partition(";")
        parts = re.match(r"\s*([A-Za-z0-9._-]+)(?:\[[^]]*\])?\s*\(?([^)]*)\)?", stated)
        extra = re.search(r"extra\s*==\s*['\"]([^'\"]+)['\"]", condition)
        if parts is None or parts[1] == "sumus" or (extra and extra[1] in _NOT_FOR_RUNNING):
            continue
        name, ranges = parts[1], parts[2].strip()
        version = _installed(name)
        if version is None and extra is None:
            yield f"{name} is missing"
        elif version is not None and unfit(version, ranges):
            yield f"{name} {version} is not {ranges}"


def _installed(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def unfit(version: str, ranges: str) -> bool:
    """Whether a version is outside of ranges such as ">=2.0,<3"; a range that is not understood
    excludes nothing.
    """
    have = _numbers(version)
    for each in ranges.split(","):
        parts = re.fullmatch(r"\s*(>=|<=|==|<|>)\s*([0-9][0-9.]*)\s*", each)
        if parts is None:
            continue
        limit = _numbers(parts[2])
        fits = {
            ">=": have >= limit,
            "<=": have <= limit,
            "==": have == limit,
            "<": have < limit,
            ">": have > limit,
        }[parts[1]]
        if not fits:
            return True
    return False


def _numbers(version: str) -> tuple[int, ...]:
    """The numbers of a release, without zeros at the end: 2.0 is 2."""
    begin = re.match(r"\d+(\.\d+)*", version)
    numbers = [int(part) for part in (begin[0] if begin else "0").split(".")]
    while numbers and numbers[-1] == 0:
        numbers.pop()
    return tuple(numbers)


def _one_more(number: int) -> int:
    return number + 1


def _loops() -> Finding:
    place = compiled(_one_more).stats.cache_path
    if place is None:
        return warn(
            "compiled loops",
            "no place to keep machine code: every process compiles its loops again.",
            "Set NUMBA_CACHE_DIR to a folder that this user can write.",
        )
    return ok("compiled loops", f"kept in {place}")


def _random_bits() -> Finding:
    try:
        drawn = os.getrandom(_RANDOM_BYTES, os.GRND_NONBLOCK)
    except BlockingIOError:
        return fail(
            "random bits",
            "the kernel has not gathered enough entropy yet.",
            "Wait, or give the machine a source of it (a virtual one: virtio-rng).",
        )
    ones = int.from_bytes(drawn, "little").bit_count()
    if abs(ones - 4 * len(drawn)) > _MOST_OFF or drawn == os.getrandom(_RANDOM_BYTES):
        return fail(
            "random bits",
            f"{ones} of {8 * len(drawn)} bits of the kernel are ones.",
            "Trust nothing on this machine: repair its kernel first.",
        )
    return ok("random bits", "the kernel's generator is seeded")


def _sampler() -> Finding:
    audit = audit_noise(usual_laws(), draws=_DRAWS)
    level = FALSE_ALARM / len(audit.checks)
    wrong = [check for check in audit.checks if check.p_value < level]
    if wrong:
        first = wrong[0]
        return fail(
            "sampler",
            f"draws of {first.law} are not of their law ({first.check}: {first.detail}).",
            "Release nothing from this machine; see `sumus audit noise`, and install again.",
        )
    return ok(
        "sampler",
        f"{audit.draws:,} draws of {len(usual_laws())} laws against their probabilities, "
        f"{len(audit.checks)} tests",
    )
