"""A Python that has what macOS has: programs started with ``as_on_macos`` find no call or file of Linux alone.

It is Linux underneath, so what macOS does differently with the same call stays unseen. The names come from the standard
library's type stubs, which say what each system has.
"""

from __future__ import annotations

import ast
import sys
from pathlib import Path

import mypy

_STUBS = Path(mypy.__file__).parent / "typeshed" / "stdlib"

# Those that others copy names from, or look at when they are loaded, come first.
_MODULES = {
    "posix": "os/__init__",
    "os": "os/__init__",
    "_socket": "_socket",
    "select": "select",
    "socket": "socket",
    "_signal": "signal",
    "signal": "signal",
    "fcntl": "fcntl",
    "resource": "resource",
    "time": "time",
    "mmap": "mmap",
    "errno": "errno",
    "termios": "termios",
}

_PRELUDE = """\
import importlib, sys

for module, names in {absent}.items():
    found = importlib.import_module(module)
    for name in names:
        if hasattr(found, name):
            delattr(found, name)
sys.platform = "darwin"

import os, resource

_getrlimit, _setrlimit = resource.getrlimit, resource.setrlimit


def getrlimit(kind):
    return (256, resource.RLIM_INFINITY) if kind == resource.RLIMIT_NOFILE else _getrlimit(kind)


def setrlimit(kind, limits):
    if kind == resource.RLIMIT_NOFILE:
        if limits[0] == resource.RLIM_INFINITY:
            raise ValueError("Invalid argument")
        limits = (limits[0], _getrlimit(kind)[1])
    _setrlimit(kind, limits)


resource.getrlimit, resource.setrlimit = getrlimit, setrlimit


def refuse(event, arguments):
    if event in ("open", "os.listdir", "os.scandir"):
        path = os.fspath(arguments[0]) if isinstance(arguments[0], (str, os.PathLike)) else ""
        if path == "/proc" or path.startswith(("/proc/", "/sys/")):
            raise FileNotFoundError(2, "No such file or directory", path)
    elif event == "ctypes.dlsym" and arguments[1] in ("prctl", "renameat2", "pidfd_open"):
        raise AttributeError(arguments[1])
    elif event == "socket.bind" and isinstance(arguments[1], tuple):
        if arguments[1][0].startswith("127.") and arguments[1][0] != "127.0.0.1":
            raise OSError(49, "Can't assign requested address")


sys.addaudithook(refuse)
"""


def as_on_macos(folder: Path) -> dict[str, str]:
    """Return what to add to a program's environment; ``folder`` gets the file that it names."""
    folder.mkdir(parents=True, exist_ok=True)
    absent = {module: sorted(only_on_linux(stub)) for module, stub in _MODULES.items()}
    (folder / "sitecustomize.py").write_text(_PRELUDE.format(absent=absent))
    # Only macOS's Python has this module; urllib imports it there.
    (folder / "_scproxy.py").write_text("def _get_proxy_settings():\n    return {}\n\n\n_get_proxies = dict\n")
    # It looks for what it was built with, by the platform's name.
    built = f"_sysconfigdata_{sys.abiflags}_{sys.platform}_{sys.implementation._multiarch}"
    return {"PYTHONPATH": str(folder), "_PYTHON_SYSCONFIGDATA_NAME": built}


def only_on_linux(stub: str) -> set[str]:
    """Return the names of a module of the standard library that Linux has and macOS lacks."""
    body = ast.parse((_STUBS / f"{stub}.pyi").read_text()).body
    return set(_names(body, "linux")) - set(_names(body, "darwin"))


def _names(body: list[ast.stmt], platform: str) -> list[str]:
    names: list[str] = []
    for statement in body:
        if isinstance(statement, ast.If):
            branch = statement.body if _holds(statement.test, platform) else statement.orelse
            names += _names(branch, platform)
        elif isinstance(statement, ast.FunctionDef | ast.ClassDef):
            names.append(statement.name)
        elif isinstance(statement, ast.AnnAssign):
            names.append(ast.unparse(statement.target))
        elif isinstance(statement, ast.Assign):
            names += [ast.unparse(target) for target in statement.targets]
        elif isinstance(statement, ast.ImportFrom):
            names += [alias.asname or alias.name for alias in statement.names]
    return names


def _holds(test: ast.expr, platform: str) -> bool:
    """Evaluate a condition of a stub, which compares only the platform and the version."""

    class System:
        version_info = sys.version_info

    System.platform = platform  # type: ignore[attr-defined]
    return bool(eval(ast.unparse(test), {"sys": System}))
