"""Rules that join several keys of a plan; what one key must be stands in `sections`, what an
algorithm refuses in `algorithms`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sumus.errors import PlanError, dotted
from sumus.noise import LAWS
from sumus.plan.algorithms import RULES
from sumus.plan.sections import DataPlan
from sumus.plan.sizes import LINEAR_MODELS
from sumus.tasks import TASKS, Task

if TYPE_CHECKING:
    from sumus.plan.plan import TrainingPlan

__all__ = ["check_together"]

MOST_CENTRED_ROWS = 1 << 12  # a row of more would weigh nothing (`sumus.gradients.ONE`)


def check_together(plan: TrainingPlan) -> None:
    """Refuse keys that contradict each other, in one line that names one of them."""
    for check in (
        _check_alternatives,
        _check_refusals,
        _check_unit,
        _check_persons,
        _check_loss,
        _check_device,
        _check_local_parameters,
        _check_learning_rates,
        _check_schedules,
        _check_selection,
        _check_trust,
        _check_described,
    ):
        check(plan)
    _check_data(plan.data, plan.task, labelled=not plan.describes)


def _check_alternatives(plan: TrainingPlan) -> None:
    """Keys of which one at most can be set."""
    pairs = (
        ("federation.local_epochs", "local_steps"),
        ("training.batch_size", "sampling_rate"),
    )
    for key, other in pairs:
        section, _, name = key.partition(".")
        table = getattr(plan, section)
        if getattr(table, name) is not None and getattr(table, other) is not None:
            rule = f"cannot stand beside {other}"
            raise PlanError(key, getattr(table, name), rule, "Keep one of them.")


def _check_refusals(plan: TrainingPlan) -> None:
    """Keys that the algorithm cannot do with."""
    for key, refusal in plan.rules.refuses.items():
        section, _, name = key.partition(".")
        tables = (
            {f"silo.{title}": own for title, own in plan.silo.items()}
            if section == "silo"
            else {section: getattr(plan, section)}
        )
        for title, table in tables.items():
            value = getattr(table, name)
            if value != table.default_of(name) and value not in refusal.allowed:
                raise PlanError(f"{title}.{name}", value, refusal.rule, refusal.fix)


def _check_unit(plan: TrainingPlan) -> None:
    """What needs one record, or a whole silo, as the unit of privacy."""
    whole = plan.protects_silos
    if plan.rules.private and whole != (plan.rules.protects == "silo"):
        rule = 'must be "silo" exactly when training.algorithm is "silo"'
        raise PlanError("privacy.unit", plan.privacy.unit, rule, "Change one of the two.")
    if plan.noise.mechanism not in LAWS and not whole:
        rule = f'can be "{plan.noise.mechanism}" only for privacy.unit = "silo"'
        raise PlanError("noise.mechanism", plan.noise.mechanism, rule, 'Use "skellam".')
    if plan.evaluation.metrics == "secure" and whole:
        rule = (
            'must not be "secure" for privacy.unit = "silo" (the counts protect one test record, '
            "not a whole silo)"
        )
        raise PlanError("evaluation.metrics", "secure", rule, 'Use "none".')
    if plan.evaluation.metrics == "secure" and plan.privacy.calibrate_to == "local":
        rule = (
            'must not be "secure" beside privacy.calibrate_to = "local" (counts of test records '
            "need the noise of other silos)"
        )
        raise PlanError(
            "evaluation.metrics", "secure", rule, 'Use "none", or privacy.calibrate_to = "proved".'
        )


def _check_persons(plan: TrainingPlan) -> None:
    """What the rows of a person need, and where a column of persons has no place."""
    data, column = plan.data, plan.data.person_column
    if column is not None:
        _check_person_column(plan, column)
    if not plan.protects_persons:
        return
    if data.path is not None and column is None:
        rule = 'must say whose row it is for privacy.unit = "person"'
        raise PlanError("data.person_column", None, rule, "Name a column of the file.")
    if data.name is not None:
        rule = f'cannot be "person" for the named data set {data.name}, which has no persons'
        fix = 'Use a file with data.person_column, or privacy.unit = "record".'
        raise PlanError("privacy.unit", "person", rule, fix)
    if data.person_weighting == "sum" and data.records_per_person is None:
        rule = 'must be set for data.person_weighting = "sum" (a person counts with Σ rows / most)'
        fix = 'Give the most rows of a person that count, or use "mean".'
        raise PlanError("data.records_per_person", None, rule, fix)
    _check_silos_per_person(plan)


def _check_silos_per_person(plan: TrainingPlan) -> None:
    """Persons in several silos need the noise of the sum, and a proof."""
    silos, most = plan.federation.silos, plan.privacy.silos_per_person
    if most > 1 and plan.rules.private and plan.privacy.calibrate_to != "proved":
        rule = f'must be "proved" for privacy.silos_per_person = {most}'
        fix = "Leave it out: what one silo's noise hides, other silos of the person may show."
        raise PlanError("privacy.calibrate_to", plan.privacy.calibrate_to, rule, fix)
    if silos is not None and most > silos:
        rule = f"must not exceed federation.silos = {silos}"
        raise PlanError("privacy.silos_per_person", most, rule, f"Use at most {silos}.")


def _check_person_column(plan: TrainingPlan, column: str) -> None:
    """A column of persons protects rows of persons, and is neither public nor learned from."""
    data = plan.data
    if plan.protects_silos:
        rule = 'has no place beside privacy.unit = "silo" (a whole silo is protected, whoever is in it)'
        fix = 'Remove it, or use privacy.unit = "person" with another algorithm.'
        raise PlanError("data.person_column", column, rule, fix)
    for key, name in data.named((*plan.task.label_keys, "silo_column")).items():
        if name == column:
            raise PlanError(
                "data.person_column", column, f"must differ from data.{key}", "Name two columns."
            )
    named = {
        f"data.{key}": getattr(data, key) for key in ("columns", "bounds", "categories", "texts")
    }
    for where, names in (named | {"describe.columns": plan.describe.columns}).items():
        if column in (names or ()):
            rule = f"must not be named in {where} (who somebody is stays with the silo)"
            raise PlanError("data.person_column", column, rule, f"Remove it from {where}.")


def _check_loss(plan: TrainingPlan) -> None:
    """A loss of one's own: only where each record's gradient is clipped, whatever it is."""
    name, field = plan.training.loss, "training.loss"
    if name is None:
        return
    if field not in plan.rules.keys:
        known = " or ".join(rules.name for rules in RULES.values() if field in rules.keys)
        rule = f"needs clipped gradients, and {plan.training.algorithm} has none of single records"
        raise PlanError(field, name, rule, f"Use {known}, or leave it out.")
    if plan.training.local_parameters is not None:
        rule = "cannot stand beside training.local_parameters (a silo fits them by the task's loss)"
        raise PlanError(field, name, rule, "Keep one of them.")
    if plan.training.class_weights is not None:
        rule = "cannot stand beside training.class_weights (they weigh the task's loss)"
        raise PlanError(field, name, rule, "Weigh records in the loss.")


def _check_device(plan: TrainingPlan) -> None:
    """Another device than the processor: only where what it returns is clipped record by record."""
    device, field = plan.training.device, "training.device"
    if device != "cpu" and field not in plan.rules.keys:
        known = " or ".join(rules.name for rules in RULES.values() if field in rules.keys)
        rule = f'must be "cpu" for {plan.training.algorithm} (its loops are the processor\'s)'
        raise PlanError(field, device, rule, f"Leave it out, or use {known}.")


def _check_local_parameters(plan: TrainingPlan) -> None:
    """Parameters that stay with silos: only where what they do to the others is proved."""
    names, training = plan.training.local_parameters, plan.training
    if names is None:
        return
    field = "training.local_parameters"
    if field not in plan.rules.keys:
        known = " and ".join(rules.name for rules in RULES.values() if field in rules.keys)
        rule = f"is proved for {known}, not for {training.algorithm}"
        raise PlanError(field, names, rule, "Remove it, or use one of them.")
    if plan.rules.bounded_records and (
        names != "intercept"
        or training.model not in LINEAR_MODELS
        or plan.task.name not in ("classification", "regression")
    ):
        rule = (
            f'must be "intercept" of a linear model for {training.algorithm} in '
            "classification or regression"
        )
        raise PlanError(field, names, rule, 'Use "intercept", or dp-sgd.')
    single = plan.task.name == "regression" and plan.data.label_columns is None
    if plan.rules.sums == "moments" and not single:
        rule = (
            "is proved for regression under normal-equations (moments of one number about a "
            "silo's own mean)"
        )
        raise PlanError(field, names, rule, 'Remove it, or use "convex-pass".')
    if plan.rules.sums == "moments" and plan.rows_per_person > MOST_CENTRED_ROWS:
        rule = (
            f"must be at most {MOST_CENTRED_ROWS} beside training.local_parameters under "
            "normal-equations (weights of rows are multiples of one over that)"
        )
        raise PlanError("data.records_per_person", plan.rows_per_person, rule, "Lower it.")
    if not plan.rules.bounded_records and plan.noise.rounding not in ("auto", "record"):
        rule = "must be auto or record beside training.local_parameters (they are rounded too)"
        raise PlanError("noise.rounding", plan.noise.rounding, rule, "Leave it out.")


def _check_learning_rates(plan: TrainingPlan) -> None:
    """A schedule has one rate for every step, and the same steps in all silos."""
    rates, steps = plan.training.learning_rates, plan.federation.local_steps
    if rates is None:
        return
    if any(own.local_steps for own in plan.silo.values()):
        rule = (
            "cannot stand beside a silo's own local_steps (weights of the steps are common to all "
            "silos)"
        )
        fix = "Keep one of them."
    elif not rates:
        rule, fix = "must hold one rate per local step", "Add rates, or use learning_rate."
    elif plan.training.local_momentum:
        rule, fix = "cannot stand beside local_momentum", "Keep one."
    elif steps not in (None, len(rates)):
        rule, fix = f"must hold one rate per local step ({steps})", "Add or remove rates."
    else:
        return
    raise PlanError("training.learning_rates", rates or [], rule, fix)


def _check_schedules(plan: TrainingPlan) -> None:
    """What changes from round to round: only where every round is accounted for by itself."""
    ratios, rounds = plan.noise.schedule, plan.federation.rounds
    if ratios is not None:
        if "noise.schedule" not in plan.rules.keys:
            rule, fix = f"is not accounted for under {plan.rules.name}", "Leave it out."
        elif plan.noise.mechanism not in LAWS:
            rule, fix = f"cannot stand beside {plan.noise.mechanism}", 'Use "skellam".'
        elif len(ratios) != rounds:
            rule, fix = f"must hold one ratio for each of {rounds} rounds", "Add or remove ratios."
        else:
            rule = ""
        if rule:
            raise PlanError("noise.schedule", list(ratios), rule, fix)
    if plan.training.server_optimizer == "adam-bc" and plan.rules.sums != "updates":
        rule = f"must know the noise of an update, which {plan.rules.name} does not sum"
        raise PlanError("training.server_optimizer", "adam-bc", rule, 'Use "sgd".')
    if plan.training.server_optimizer == "adam-bc" and plan.training.preconditioner != "none":
        rule = "must know the noise of every number, which a preconditioner makes unequal"
        raise PlanError("training.server_optimizer", "adam-bc", rule, 'Use "sgd" or "adam".')
    if plan.training.rate_schedule != "constant" and "noise.schedule" not in plan.rules.keys:
        rule = f"must be constant under {plan.rules.name}"
        raise PlanError(
            "training.rate_schedule", plan.training.rate_schedule, rule, "Leave it out."
        )


def _check_selection(plan: TrainingPlan) -> None:
    """Which silos a round invites."""
    federation = plan.federation
    needed = {
        "fixed": ("selected", "Give the number of silos per round."),
        "poisson": ("selection_rate", "Give a probability."),
    }
    name, fix = needed.get(federation.selection, (None, ""))
    if name is not None and getattr(federation, name) is None:
        rule = f'must be set for selection = "{federation.selection}"'
        raise PlanError(f"federation.{name}", None, rule, fix)
    silos, selected = federation.silos, federation.selected
    if silos is not None and selected is not None and selected > silos:
        raise PlanError(
            "federation.selected", selected, f"must not exceed silos = {silos}", "Lower it."
        )


def _check_trust(plan: TrainingPlan) -> None:
    """Enough silos are left whose noise counts, and enough for the secure sum."""
    federation = plan.federation
    silos = federation.silos if federation.selection == "all" else federation.selected
    if silos is None:
        return
    if silos - federation.dropouts - plan.colluding < 1:
        # the larger of the two is the one that is out of proportion
        trusted = {"dropouts": federation.dropouts, "colluding": plan.colluding}
        name, other = (
            ("colluding", "dropouts")
            if plan.colluding > federation.dropouts
            else ("dropouts", "colluding")
        )
        most = silos - 1 - trusted[other]
        fix = (
            f"Use at most {most}."
            if most >= 0
            else f"Lower federation.{other} = {trusted[other]} too."
        )
        rule = (
            f"must leave at least one of {silos} silos whose noise counts (dropouts + colluding < "
            "silos)"
        )
        raise PlanError(f"federation.{name}", trusted[name], rule, fix)
    if plan.aggregation.protocol == "secagg" and silos <= 2 * federation.dropouts + plan.colluding:
        rule = (
            f"must leave silos > 2·dropouts + colluding ({silos} silos, federation.colluding = "
            f"{plan.colluding}) for the secure sum"
        )
        most = (silos - plan.colluding - 1) // 2  # at least 0: one silo is left whose noise counts
        raise PlanError(
            "federation.dropouts",
            federation.dropouts,
            rule,
            f"Use at most {most}, or lower federation.colluding.",
        )


def _check_described(plan: TrainingPlan) -> None:
    """Every described column once, and numbers among them."""
    columns, numbers = plan.describe.columns, plan.describe.numbers
    for name in ("test_fraction", "validation_fraction"):
        if plan.describes and getattr(plan.data, name):
            rule = "must be 0 for describe (every record is counted)"
            raise PlanError(f"data.{name}", getattr(plan.data, name), rule, "Set it to 0.")
    for name, given in (("columns", columns), ("numbers", numbers)):
        if given is not None and (
            len(set(given)) < len(given) or (name == "columns" and not given)
        ):
            rule = "must name at least one column and none of them twice"
            raise PlanError(f"describe.{name}", list(given), rule, "Name each once.")
    stray = [name for name in numbers or () if columns is not None and name not in columns]
    if stray:
        rule = f"must be among describe.columns, {stray[0]!r} is not"
        raise PlanError("describe.numbers", list(numbers or ()), rule, "Add it there.")
    if columns is not None and plan.data.silo_column in columns:
        rule = "must not name the silo column: how many records a silo has is never told"
        raise PlanError("describe.columns", plan.data.silo_column, rule, "Remove it.")


def _check_data(data: DataPlan, task: Task, *, labelled: bool = True) -> None:
    """Rules that join several keys of the data section.

    Args:
        labelled: labels are needed.
    """
    keys = (*(task.label_keys if labelled else ()), "silo_column")
    sources = [name for name in ("name", "path", "objects") if getattr(data, name) is not None]
    if len(sources) > 1:
        field, rule = f"data.{sources[1]}", f"cannot stand beside data.{sources[0]}"
        raise PlanError(field, getattr(data, sources[1]), rule, "Keep one of them.")
    if data.counts == "bounded" and data.records_per_silo is None:
        rule = "needs the bounds in data.records_per_silo"
        raise PlanError(
            "data.counts", "bounded", rule, "Add one bound per silo, or remove the key."
        )
    if data.path is not None:
        _check_columns_of_file(data, task, labelled=labelled)
    if data.columns is not None and (
        not data.columns or len(set(data.columns)) < len(data.columns)
    ):
        fix = "Leave the key out to use all columns, or name each once."
        raise PlanError(
            "data.columns",
            list(data.columns),
            "must name at least one column and none of them twice",
            fix,
        )
    _check_texts(data, keys)
    labels_are_names = task.label_declaration == "categories"
    for name in data.named(keys if labels_are_names else keys[-1:]).values():
        if name is not None and name in (data.bounds or {}):
            rule = (
                "must not bound the column of silos or labels: their values are names, not numbers"
            )
            listed = dotted("data.categories", name)
            raise PlanError(
                dotted("data.bounds", name),
                list((data.bounds or {})[name]),
                rule,
                f"Remove it, or use {listed}."
                if name == data.silo_column
                else f"Remove it, use {listed}, or learn the number: training.task = "
                '"regression" (--task regression).',
            )


def _check_texts(data: DataPlan, keys: tuple[str, ...]) -> None:
    """A column of free text is a feature, and has neither bounds nor a list."""
    named = {
        **{f"data.{key}": {name} for key, name in data.named(keys).items() if name is not None},
        "data.bounds": data.bounds or {},
        "data.categories": data.categories or {},
    }
    for name, kind in (data.texts or {}).items():
        for where, columns in named.items():
            if name in columns:
                rule = f"must not name a column of {where}"
                raise PlanError(dotted("data.texts", name), kind, rule, "Keep one of them.")
        if data.columns is not None and name not in data.columns:
            rule = "must be a feature column"
            raise PlanError(dotted("data.texts", name), kind, rule, "Add it to data.columns.")


def _check_columns_of_file(data: DataPlan, task: Task, *, labelled: bool) -> None:
    """A file's columns of silos and labels: all that the task reads, and none that it does not,
    which would become a feature.
    """
    keys = (*(task.label_keys if labelled else ()), "silo_column")
    missing = [key for key in keys if getattr(data, key) is None]
    if missing:
        rule = (
            "must be set when data.path is"
            if task is TASKS["classification"]
            else f"must be set when data.path is (training.task = {task.name})"
        )
        raise PlanError(f"data.{missing[0]}", None, rule, "Name a column of the file.")
    several = data.label_columns
    if several is not None and (len(several) < 2 or len(set(several)) < len(several)):
        rule = "must name two columns or more and none of them twice"
        fix = "Name others, or use data.label_column."
        raise PlanError("data.label_columns", list(several), rule, fix)
    known = {key for other in TASKS.values() for key in other.label_keys} | {"label_columns"}
    others = known - {*task.label_keys}
    for key in sorted(others):
        if labelled and getattr(data, key) is not None:
            raise PlanError(
                f"data.{key}",
                getattr(data, key),
                f"is not what training.task = {task.name} learns from",
                "Remove it, or name another task.",
            )
