"""Stores and keytabs that Spark sends along are found by their names, wherever the driver has them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pyspark import SparkFiles
from spark_sessions import spark

from engine.admin.cluster.client_properties import client_properties
from engine.spark.sent_files import properties_here

__all__ = ["spark"]

KERBEROS = "com.sun.security.auth.module.Krb5LoginModule"


def found(keytab: str, store: str) -> tuple[str, str]:
    """Return where this process finds a keytab and a trust store."""
    login = f'{KERBEROS} required useKeyTab=true keyTab="{keytab}" principal="alice@TEST";'
    entries = {
        "security.protocol": "SASL_SSL",
        "sasl.kerberos.service.name": "kafka",
        "sasl.jaas.config": login,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": store,
    }
    security = properties_here(client_properties(entries, "here")).security
    assert security.sasl is not None and security.tls is not None
    return dict(security.sasl.options)["keyTab"], dict(security.tls.entries)["ssl.truststore.location"]


@pytest.mark.parametrize("folder", ["", "/of/the/driver/"])
def test_by_their_names(spark: Any, folder: str, tmp_path: Path) -> None:
    for name in ("alice.keytab", "trust.pem"):
        (tmp_path / name).write_text("")
        spark.sparkContext.addFile(str(tmp_path / name))
    sent = (SparkFiles.get("alice.keytab"), SparkFiles.get("trust.pem"))
    assert found(f"{folder}alice.keytab", f"{folder}trust.pem") == sent
    assert found(f"{folder}other.keytab", f"{folder}other.pem") == (f"{folder}other.keytab", f"{folder}other.pem")
    here = (str(tmp_path / "alice.keytab"), str(tmp_path / "trust.pem"))
    assert found(*here) == here, "a file that is where the properties say is taken"
