"""How the dashboard words the planner's advice: options are fields of the plan's form, commands are keys. Pure.

The planner does not know the dashboard, and words its texts for the command line.
"""

from __future__ import annotations

import re

_SPELLED = tuple(
    (re.compile(pattern), words)
    for pattern, words in (
        (r", or from a snapshot taken with --sizes", ""),
        (r", or a longer --time-limit,", ""),
        (r"a higher --time-limit", "a higher Time limit"),
        (r"klamm topics list", "screen Topics (3)"),
        (r"klamm reassign list", "screen Reassignments (6)"),
        (r"write klamm plan factor 3", "write 3 in Replicas"),
        (r"write it with klamm plan … --out FILE", "make it with N and save it with w"),
        (r"klamm reassign execute takes it", "N makes a plan of klamm"),
        (r"rebalance --aim …", "a rebalance plan with Level what"),
        (r"with --keep-dead", "with keep in Dead brokers"),
        (r"remove --pin", "take them out of Stay as they are"),
        (r"the file of --capacity", "the file in Capacities"),
        (r"remove --aim (\w+)", r"take \1 out of Level what"),
        (r"--aim (\w+)", r"\1 in Level what"),
        (r"--minimise (\w+)", r"\1 in Fewest"),
        (r"with --tolerance (\d[\w.]*)", r"with \1 in Tolerance"),
        (r"--tolerance", "Tolerance"),
        (r"--max-bytes", "Bytes at most"),
        (r"--capacity", "Capacities"),
        (r"--throttle", "Throttle"),
    )
)


def planner_words(text: str) -> str:
    """Return the planner's text in the words of the dashboard's forms and keys."""
    for pattern, words in _SPELLED:
        text = pattern.sub(words, text)
    return text
