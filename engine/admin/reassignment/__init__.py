"""Reassignments: generate, execute, verify, cancel, with throttles that are removed again."""
