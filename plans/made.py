"""A plan as the planner returns it, with what its readers need in addition to the file."""

from __future__ import annotations

from dataclasses import dataclass

from plans.plan_file import PlanFile
from plans.problem import Problem


@dataclass(frozen=True, slots=True)
class MadePlan:
    """A plan, the problem it solves, the replicas of every partition after it, and notes for a person."""

    plan: PlanFile
    problem: Problem
    after: tuple[tuple[int, ...], ...]
    notes: tuple[str, ...]
