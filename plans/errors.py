"""Why there is no plan: a wrong option, a damaged plan file, or an aim that no plan can meet."""

from __future__ import annotations

from engine.common.errors import OperationError


class PlanError(OperationError):
    """Base of all errors of the planner; ``hint`` says what to do next."""


class BadOption(PlanError):
    """An option or its value is wrong, or names what the cluster does not have."""


class BadPlanFile(PlanError):
    """Not a plan file. The text begins with the place in the document, such as ``partitions[3].replicas``."""


class Infeasible(PlanError):
    """No plan can meet the aim on this cluster."""
