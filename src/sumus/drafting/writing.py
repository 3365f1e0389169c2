"""A draft as a commented plan: a reason beside every value, a line for every column.

Names of columns come from a file of somebody's, so a comment holds them escaped: none can end its
line.
"""

from __future__ import annotations

import json
import shlex
import textwrap
from collections.abc import Iterable
from typing import Any

from sumus.drafting.choices import Choice
from sumus.drafting.composing import Draft, Used
from sumus.errors import DataError, dotted
from sumus.files import toml_value
from sumus.plan import TrainingPlan
from sumus.tasks import TASKS

__all__ = ["plan_text", "read_off", "shown"]

_WIDTH = 100
_BESIDE = 32  # where a comment beside a value begins
_ORDER = ("privacy", "federation", "training", "noise", "aggregation", "evaluation")


def shown(name: str) -> str:
    """A name from somebody's file, fit for a line of a terminal or of a comment."""
    return name if name.isprintable() else json.dumps(name)


def plan_text(draft: Draft, plan_name: str) -> str:
    """The plan as TOML with comments.

    Guarantee: parses to the plan of the draft; no line of it holds a count of records, and values
        only of columns that were declared.

    Args:
        plan_name: of the file that it goes to, for the commands in its comments.
    """
    lines = _head(draft, plan_name)
    for section in _ORDER:
        chosen = [choice for choice in draft.choices if choice.section == section]
        if section == "training":
            chosen = [_task(draft), *chosen]
        if chosen:
            lines += ["", f"[{section}]", *_lines_of(chosen)]
    lines += ["", *_data(draft, plan_name)]
    text = "\n".join(lines) + "\n"
    if TrainingPlan.from_toml(text).hash != draft.plan.hash:
        raise DataError(
            "the plan for this table cannot be written: a name in it does not survive. Rename the "
            "columns that hold unusual characters."
        )
    return text


def read_off(draft: Draft) -> list[tuple[str, str]]:
    """What training reads off the records and takes as public, and what avoids it."""
    data, task = draft.plan.data, TASKS[draft.plan.training.task]
    lists = data.categories or {}
    lines = []
    if data.silo_column not in lists:
        key = dotted("data.categories", data.silo_column or "")
        lines.append(("names of the silos", f"list them as {key}"))
    if task.label_declaration == "categories" and data.label_column not in lists:
        label = shown(data.label_column or "")
        key = dotted("data.categories", data.label_column or "")
        lines.append((f"the classes of {label}", f"list them as {key}"))
    what = "persons" if draft.plan.protects_persons else "records"
    lines.append(
        (
            f"how many training {what} each silo has",
            "state bounds as data.records_per_silo, one for each silo",
        )
    )
    table = draft.looked_at.table
    if any(
        each.bounds is None
        and each.categories is None
        and not table.declares(table.columns[each.finding.name])
        for each in draft.used
    ):
        lines.append(
            (
                "which of the other columns hold numbers and which text",
                "give their bounds or categories",
            )
        )
    return lines


def _head(draft: Draft, plan_name: str) -> list[str]:
    table, plan = shown(draft.looked_at.table.path.name), shlex.quote(shown(plan_name))
    steps = [f"sumus plan {plan}", "what it guarantees and what it costs"]
    commands = [steps]
    if draft.unbounded:
        commands.append([f"sumus describe {plan} --fill", "learns the bounds that are missing"])
    commands.append([f"sumus train {plan}", "trains, writes the report, enters the ledger"])
    width = max(len(command) for command, _ in commands)
    return [
        *_comment(f"A plan for {table}, drafted by `sumus new`: every value with its reason."),
        "#",
        *(f"#   {command.ljust(width)}   {what}" for command, what in commands),
        "#",
        *_comment(
            "What whoever reads this file learns of the records: the names of the columns, what "
            "kind each of them is, and the order of magnitude of their number, from which δ, "
            "algorithm and rounds follow. No count of records stands in it"
            + (
                ", and values only of the columns that were declared to be public: "
                f"{', '.join(map(shown, draft.listed))}."
                if draft.listed
                else ", and no value that was read off them."
            )
        ),
        *_comment("What training reads off the records and takes as public, and what avoids it:"),
        *(
            line
            for fact, fix in read_off(draft)
            for line in _comment(f"{fact}: {fix}", first="  - ", rest="    ")
        ),
    ]


def _task(draft: Draft) -> Choice:
    task, data = draft.plan.training.task, draft.plan.data
    label = shown(data.label_column or "")
    why = {
        "classification": f"{label} holds names of classes",
        "regression": f"{label} is a number",
        "counts": f"{label} says how often something happened",
        "survival": "how long until an event",
    }[task]
    return Choice("training.task", task, why)


def _lines_of(choices: Iterable[Choice]) -> list[str]:
    lines = []
    for choice in choices:
        lines += _beside(f"{choice.name} = {toml_value(choice.value)}", choice.reason)
    return lines


def _data(draft: Draft, plan_name: str) -> list[str]:
    data = draft.plan.data
    lines = ["[data]", *_beside(f"path = {toml_value(data.path)}", "starts at this plan's folder")]
    if data.encoding is not None:
        lines += _beside(f"encoding = {toml_value(data.encoding)}", "how its text is written")
    roles = {
        "silo_column": "whose record it is",
        "label_column": "what is learned",
        "time_column": "how long somebody was followed",
        "event_column": "whether it happened then",
        "person_column": "whose row it is; never a feature",
    }
    for key, why in roles.items():
        if getattr(data, key) is not None:
            lines += _beside(f"{key} = {toml_value(getattr(data, key))}", why)
    if data.person_column is not None:
        lines += [
            "# raise privacy.silos_per_person where one person may have rows in several silos"
        ]
    if data.intervals is not None:
        lines += _beside(f"intervals = {toml_value(list(data.intervals))}", "public cut points")
    if data.decimal_comma is not None:
        lines += _beside(
            f"decimal_comma = {toml_value(list(data.decimal_comma))}", "48,5 is a number there"
        )
    lines += ["columns = [  # what the model sees; nothing else does", *map(_column, draft.used)]
    lines += ["]"]
    if draft.left_out:
        lines += ["# Left out:"]
        for each in draft.left_out:
            lines += _comment(
                f"{shown(each.name)} ({each.kind}): {each.left_out}", first="  - ", rest="    "
            )
    for part in (_bounds(draft, plan_name), _categories(draft)):
        lines += ["", *part] if len(part) > 1 else []
    return lines


def _column(used: Used) -> str:
    return "\n".join(
        _beside(f"  {toml_value(used.finding.name)},", f"{used.finding.kind}: {used.how}")
    )


def _bounds(draft: Draft, plan_name: str) -> list[str]:
    lines = [_header("bounds", "a value beyond counts as the nearest bound", draft)]
    lines += [
        f"{dotted(name)} = {toml_value(list(ends))}"
        for name, ends in (draft.plan.data.bounds or {}).items()
    ]
    if draft.unbounded:
        names = ", ".join(map(shown, draft.unbounded))
        lines += _comment(f"Not known: {names}. Write what is public knowledge, or learn them with")
        lines += [f"#   sumus describe {shlex.quote(shown(plan_name))} --fill"]
        lines += _comment(
            "which counts all records once, in one secure sum with noise, and enters its ε (a "
            "quarter of the one above, on top of it) into the ledger. Smallest and largest values "
            "of the table were not looked at: they would tell about single people."
        )
    return lines


def _categories(draft: Draft) -> list[str]:
    lines = [_header("categories", "whatever else a column holds counts as one more", draft)]
    lines += [
        f"{dotted(name)} = {toml_value(list(values))}"
        for name, values in (draft.plan.data.categories or {}).items()
    ]
    if draft.unlisted:
        names = ", ".join(map(shown, draft.unlisted))
        lines += _comment(
            f"Not known: {names}. A list makes them narrower and better to read: write what is "
            "public knowledge here, or in a file for `sumus new --schema`; where all values may be "
            "public, `sumus new --list COLUMN` reads them off the table."
        )
    return lines


def _header(key: str, meaning: str, draft: Draft) -> str:
    """The line of a table; one without entries stays a comment, as it would be a value of the plan."""
    line = f"[data.{key}]  # public: {meaning}"
    return line if getattr(draft.plan.data, key) else f"# {line}"


def _beside(entry: str, reason: str) -> list[str]:
    """A value with its reason on the same line, or above it where that is too long."""
    line = f"{entry.ljust(_BESIDE)}  # {reason}"
    if len(line) <= _WIDTH or len(entry) > _WIDTH:
        return [line]
    indent = entry[: len(entry) - len(entry.lstrip())]
    return [*(f"{indent}{each}" for each in _comment(reason)), entry]


def _comment(text: str, first: str = "", rest: str = "") -> list[str]:
    wrapped: list[str] = textwrap.wrap(
        text,
        width=_WIDTH - 2,
        initial_indent=first,
        subsequent_indent=rest,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [f"# {line}" for line in wrapped]


def as_json(draft: Draft) -> dict[str, Any]:
    """The draft as plain values: kinds and choices, no count of records."""
    return {
        "columns": {
            each.finding.name: {
                "kind": each.finding.kind,
                "bounds": None if each.bounds is None else list(each.bounds),
                "categories": None if each.categories is None else list(each.categories),
            }
            for each in draft.used
        },
        "left_out": {
            each.name: {"kind": each.kind, "why": each.left_out} for each in draft.left_out
        },
        "choices": {
            each.key: {"value": each.value, "reason": each.reason} for each in draft.choices
        },
        "unbounded": list(draft.unbounded),
        "unlisted": list(draft.unlisted),
        "read_off": [{"fact": fact, "avoid": fix} for fact, fix in read_off(draft)],
        "account": draft.account.as_json(),
    }
