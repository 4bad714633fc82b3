"""A real KDC of MIT Kerberos, with a realm of its own: principals, keytabs, tickets."""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from patience import within
from required_tools import require

PORT = 21388
REALM = "KLAMM.TEST"


class Kdc:
    """The running KDC. ``environment`` makes a process use its realm."""

    def __init__(self, folder: Path, host: str) -> None:
        self.folder, self.host = folder, host
        self.krb5_conf = folder / "krb5.conf"
        self.environment = {"KRB5_CONFIG": str(self.krb5_conf), "KRB5_KDC_PROFILE": str(folder / "kdc.conf")}

    def keytab(self, *principals: str) -> Path:
        """Make principals, and return a keytab with their keys."""
        path = self.folder / f"{principals[0].replace('/', '-')}.keytab"
        for principal in principals:
            self.admin(f"addprinc -randkey {principal}")
            self.admin(f"ktadd -k {path} {principal}")
        return path

    def ticket(self, principal: str, keytab: Path, lifetime: str = "1h") -> Path:
        """Return a ticket cache of the principal, as ``kinit`` leaves it."""
        cache = self.folder / f"{principal}.cache"
        self.run("kinit", "-l", lifetime, "-c", f"FILE:{cache}", "-k", "-t", str(keytab), principal)
        return cache

    def admin(self, query: str) -> None:
        self.run("kadmin.local", "-r", REALM, "-q", query)

    def run(self, *words: str) -> str:
        done = subprocess.run(
            words, env=os.environ | self.environment, capture_output=True, text=True, timeout=60, check=False
        )
        assert done.returncode == 0, (words, done.stdout, done.stderr)
        return done.stdout

    def write(self, port: int = PORT, name: str = "krb5.conf", **more: str) -> Path:
        """Write the configuration of clients and of the KDC at a port; return the path of the clients'."""
        libdefaults = {
            "default_realm": REALM,
            "dns_lookup_kdc": "false",
            "dns_lookup_realm": "false",
            "dns_canonicalize_hostname": "false",
            "rdns": "false",
            "udp_preference_limit": "1",
            **more,
        }
        lines = "".join(f"  {key} = {value}\n" for key, value in libdefaults.items())
        realm = f"  {REALM} = {{\n    kdc = {self.host}:{port}\n  }}\n"
        path = self.folder / name
        path.write_text(f"[libdefaults]\n{lines}[realms]\n{realm}")
        (self.folder / "kdc.conf").write_text(
            f"[kdcdefaults]\n  kdc_listen = {self.host}:{port}\n  kdc_tcp_listen = {self.host}:{port}\n"
            f"[realms]\n  {REALM} = {{\n    database_name = {self.folder}/principal\n"
            f"    key_stash_file = {self.folder}/stash\n    acl_file = {self.folder}/kadm5.acl\n  }}\n"
        )
        return path

    @contextmanager
    def serving(self, port: int = PORT, **environment: str) -> Iterator[None]:
        """Run the KDC as it is configured now, and end it at the end."""
        with (self.folder / f"kdc-{port}.log").open("wb") as log:
            own = os.environ | self.environment | environment
            process = subprocess.Popen(["krb5kdc", "-n", "-r", REALM], env=own, stdout=log, stderr=log)
            try:
                is_in_time = within(30)
                while not _is_listening(self.host, port):
                    assert process.poll() is None, Path(log.name).read_text()
                    assert is_in_time(), "the KDC does not listen"
                    time.sleep(0.02)
                yield
            finally:
                process.terminate()
                process.wait()


@contextmanager
def kdc(folder: Path, host: str) -> Iterator[Kdc]:
    """Start a KDC and end it at the end; skip where Kerberos is missing."""
    require("kerberos")
    running_kdc = Kdc(folder, host)
    running_kdc.write()
    running_kdc.run("kdb5_util", "create", "-s", "-r", REALM, "-P", "master-Secr3t")
    with running_kdc.serving():
        yield running_kdc


def _is_listening(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=5).close()
    except OSError:
        return False
    return True


def keytab_module(keytab: Path, principal: str, **more: str) -> str:
    """Return Java's login module for a keytab."""
    options = {"useKeyTab": "true", "storeKey": "true", "keyTab": str(keytab), "principal": principal, **more}
    return _module(options)


def ticket_module(cache: Path, **more: str) -> str:
    """Return Java's login module for a ticket cache."""
    return _module({"useTicketCache": "true", "ticketCache": str(cache), **more})


def _module(options: Mapping[str, str]) -> str:
    said = " ".join(f'{name}="{value}"' for name, value in options.items())
    return f"com.sun.security.auth.module.Krb5LoginModule required {said};"
