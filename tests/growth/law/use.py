"""A plan names the law, its noise is calibrated to ε, and the account is proved."""

from dataclasses import replace

from sumus import TrainingPlan, account
from sumus.plan import DEFAULT_PLAN

plan = TrainingPlan.load(DEFAULT_PLAN)
promise = account(replace(plan, noise=replace(plan.noise, mechanism="centred-binomial")))
assert promise.proved
assert 0.0 < promise.epsilon < 10.0
