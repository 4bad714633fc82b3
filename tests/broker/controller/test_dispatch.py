"""Every event and instruction has a row in a table, so that a new one is not forgotten."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from engine.broker.controller import events
from engine.broker.controller import instructions as do
from engine.broker.controller.context import ControllerEpoch
from engine.broker.controller.core import ControllerCore
from engine.broker.controller.dispatch import on, table
from engine.broker.controller.options import ControllerOptions
from engine.broker.controller.zk_instructions import ZkInstructions

OF_THE_LOOP = {
    do.SendRequests,
    do.GiveWay,
    do.Continue,
    do.ConnectBrokers,
    do.DisconnectBrokers,
    do.Answer,
    do.ScheduleLeaderRebalance,
    do.ScheduleTopicDeletion,
}
"""Instructions that the loop carries out itself."""


def concrete(module: Any, base: type) -> set[type]:
    """Return the concrete classes of a module: those below ``base`` that have no subclasses."""
    classes = {
        member
        for _, member in inspect.getmembers(module, inspect.isclass)
        if issubclass(member, base) and member is not base
    }
    return {member for member in classes if not member.__subclasses__()}


def test_every_event_is_handled() -> None:
    assert set(ControllerCore(ControllerOptions(0))._table) == concrete(events, events.ControllerEvent)


def test_every_instruction_is_carried_out() -> None:
    options = ControllerOptions(0)
    zk = ZkInstructions(_Zk(), options, ControllerEpoch(1, 1), lambda: False)  # type: ignore[arg-type]
    all_of_them = concrete(do, do.Instruction)
    watches = {kind for kind in all_of_them if issubclass(kind, do.WatchInstruction)}
    assert set(zk._table) == all_of_them - watches - OF_THE_LOOP


def test_a_class_has_one_row() -> None:
    with pytest.raises(ValueError, match="two rows"):
        table(on(int, abs), on(int, hash))


class _Zk:
    """Represents a client whose methods are looked up and never called."""

    def __getattr__(self, name: str) -> Any:
        return None
