"""A synthetic hospital table for examples and tests. No row describes a person: all of them are
drawn from the formulas below.
"""

from __future__ import annotations

import csv
from pathlib import Path

import numpy as np

from sumus.randomness import RandomSource

__all__ = ["HOSPITALS", "write_patients"]

HOSPITALS = ("Bergen", "Graz", "Leuven", "Oulu", "Padova", "Toledo")
_WARDS = ("cardiology", "general", "oncology", "surgery")
_HEADER = (
    "hospital",
    "age",
    "sex",
    "ward",
    "stay_days",
    "blood_pressure",
    "creatinine",
    "earlier_visits",
    "smoker",
    "readmitted",
)


def write_patients(path: Path, *, records: int = 6000, seed: int = 0) -> Path:
    """Write a synthetic `patients.csv`: one row per invented stay, with hospitals that differ in
    size and in age of patients.

    The chance of readmission follows a logistic curve of age, length of stay, creatinine, earlier
    visits, ward and smoking, so that a linear model can learn it: to about 83 %, where always
    answering "no" gives 64 %. One value in fifty of three columns is missing.

    Args:
        path: file to write.
        records: rows.
        seed: public seed; the same seed writes the same file.
    """
    source = RandomSource.simulation(seed, "synthetic patients")
    hospital = np.searchsorted(
        np.cumsum((0.30, 0.22, 0.18, 0.14, 0.10)), source.uniforms(records), side="right"
    )
    age = np.clip(np.rint(58 + 3 * (hospital - 2) + 17 * source.normals(records)), 18, 99)
    female, smoker = source.coins(0.5, records), source.coins(0.25, records)
    ward = source.below(len(_WARDS), records)
    stay = np.ceil(-5.0 * np.log1p(-source.uniforms(records))) + 1
    pressure = np.rint(118 + 0.3 * (age - 50) + 14 * source.normals(records))
    creatinine = np.round(np.exp(-0.1 + 0.35 * source.normals(records) + 0.004 * (age - 60)), 2)
    visits = np.floor(-1.5 * np.log1p(-source.uniforms(records)))
    ward_effect = np.array((0.6, -0.7, 1.1, -0.5))[ward]
    score = (
        -0.95
        + 0.045 * (age - 60)
        + 0.12 * (stay - 6)
        + 1.2 * (creatinine - 1)
        + 0.7 * (visits - 1)
        + ward_effect
        + 0.6 * smoker
    )
    readmitted = source.uniforms(records) < 1.0 / (1.0 + np.exp(-1.3 * score))
    missing = source.uniforms(records * 3).reshape(3, records) < 0.02
    with path.open("w", encoding="utf-8", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        out.writerow(_HEADER)
        for row in range(records):
            out.writerow(
                (
                    HOSPITALS[hospital[row]],
                    int(age[row]),
                    "female" if female[row] else "male",
                    _WARDS[ward[row]],
                    int(stay[row]),
                    "" if missing[0, row] else int(pressure[row]),
                    "" if missing[1, row] else f"{creatinine[row]:.2f}",
                    int(visits[row]),
                    "" if missing[2, row] else ("yes" if smoker[row] else "no"),
                    "yes" if readmitted[row] else "no",
                )
            )
    return path
