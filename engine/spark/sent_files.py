"""Files of a Kafka client that Spark sent to this process: ``--files``, ``spark.files`` and ``addFile``.

Each process has a folder of its own for them. There klamm looks, by its name, for a store or keytab that is not where
the properties say.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from engine.admin.cluster.client_properties import ClientProperties
from engine.kafka.client.security import Security

_KEYTAB = "keyTab"


def properties_here(properties: ClientProperties) -> ClientProperties:
    """Return a client's properties for this process."""
    return replace(properties, security=_security_here(properties.security))


def _security_here(security: Security) -> Security:
    tls, sasl = security.tls, security.sasl
    if tls is not None:
        entries = ((key, _here(value) if key.endswith(".location") else value) for key, value in tls.entries)
        tls = replace(tls, entries=tuple(entries))
    if sasl is not None:
        options = ((key, _here(value) if key == _KEYTAB else value) for key, value in sasl.options)
        sasl = replace(sasl, options=tuple(options))
    return replace(security, tls=tls, sasl=sasl)


def _here(path: str) -> str:
    wanted = Path(path.removeprefix("file:"))
    if wanted.exists():
        return path
    from pyspark import SparkFiles

    try:
        folder = Path(SparkFiles.getRootDirectory())
    except AssertionError:
        # This process is neither a worker nor the driver of a session.
        return path
    # The process that plans a stream gets a folder of its session, inside the folder of all files.
    places = (folder / wanted.name, folder.parent / wanted.name)
    return next((str(place) for place in places if place.exists()), path)
