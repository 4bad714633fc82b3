"""Reassignments: generate, execute, verify, cancel, with throttles that come off again."""
