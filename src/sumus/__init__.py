"""Sumus: cross-silo federated learning with record-level differential privacy and real secure aggregation."""

from __future__ import annotations

from sumus.plan import TrainingPlan

__version__ = "0.1.0"
__all__ = ["TrainingPlan", "__version__"]
