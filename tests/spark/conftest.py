"""What the tests of Spark share: one session, and commands against the running cluster."""

from __future__ import annotations

from klamm_program import commands, program
from spark_sessions import spark

__all__ = ["commands", "program", "spark"]
