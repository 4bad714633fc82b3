"""Reduces lines of Kafka's logs to their shape: what they say, without the names and numbers.

``N`` is a number, ``<tp>`` a partition, ``<t>`` a topic, ``<id>`` a topic id, ``…`` more of the same.
"""

from __future__ import annotations

import re
from collections.abc import Collection

_TIME = re.compile(r"^\[\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3}\] ")
_ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+:\d+")
_TOPIC_ID = re.compile(r"\b[A-Za-z0-9_-]{22}\b")
_NUMBER = re.compile(r"-?\b\d+(?=ms\b|\b)")
_MORE = (
    (re.compile(r"\bN(?:, ?N)+"), "N…"),
    (re.compile(r"<tp>(?:, ?<tp>)+"), "<tp>…"),
    (re.compile(r"<t>(?:, ?<t>)+"), "<t>…"),
    (re.compile(r"(BrokerState\(brokerId=N, brokerEpoch=N\))(?:, \1)+"), r"\1…"),
)
_LOGGER = re.compile(r" \(([\w.$<>]+)\)$")
_PREFIX = re.compile(r"^\w+ (\[[^\]]*\]:? )?")
_INNERMOST = re.compile(r"\([^()\[\]]*\)|\[[^()\[\]]*\]")
_LISTS = re.compile(r"(?:N|<tp>|<t>|@)(?:…|, ?(?:N|<tp>|<t>|@))*")


def shape(line: str, topics: Collection[str]) -> str:
    """Return a line's shape; ``topics`` are the names that may occur in it."""
    text = _ADDRESS.sub("<host:port>", _TIME.sub("", line.rstrip("\n")))
    for topic in sorted(topics, key=len, reverse=True):
        text = re.sub(rf"\b{re.escape(topic)}-\d+\b", "<tp>", text)
        text = re.sub(rf"\b{re.escape(topic)}\b", "<t>", text)
    text = _NUMBER.sub("N", _TOPIC_ID.sub("<id>", text))
    for pattern, replacement in _MORE:
        text = pattern.sub(replacement, text)
    return text


def skeleton(shape_text: str) -> str:
    """Return the words of a shape outside brackets, its level, its speaker and its logger.

    Brackets hold data in Scala's notation, which the recorded shapes abbreviate.
    """
    logger = _LOGGER.search(shape_text)
    body = shape_text if logger is None else shape_text[: logger.start()]
    prefix = _PREFIX.match(body)
    head = "" if prefix is None else prefix[0]
    rest = body[len(head) :]
    while (reduced := _INNERMOST.sub("@", rest)) != rest:
        rest = reduced
    # It is abbreviated inside brackets: the rest is data.
    rest = re.sub(r"\b\w*[(\[].*", "@", rest)
    rest = re.sub(r"\b(?:Hash)?(?:Set|Map|List|Buffer)@|\bArrayBuffer@|\bSome@|\bNone\b", "@", rest)
    # A list may be empty.
    words = " ".join(_LISTS.sub("", rest).replace("@", "").split())
    return f"{head}{words} ({'' if logger is None else logger[1]})"
