"""The reassignment planner: pure functions from a cluster snapshot to a plan and its report."""
