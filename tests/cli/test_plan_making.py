"""``klamm plan STRATEGY`` as a user types it: the file, the JSON, the view, the codes."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest
from klamm_program import Ran, in_process
from plan_files import SOLVER_MODULES, hide_solver
from plan_scenarios import scenario
from small_clusters import cluster

from engine.admin.reassignment.journal import open_journal
from engine.common.snapshot_json import snapshot_to_json
from plans.plan_file import decode_plan, encode_plan

RACKS = {1: "a", 2: "b", 3: "c", 4: "a"}


class Klamm:
    """Runs the program in this process."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture

    def __call__(self, *words: str) -> Ran:
        return in_process(*words, capture=self._capture)


@pytest.fixture
def klamm(capsys: pytest.CaptureFixture[str]) -> Klamm:
    return Klamm(capsys)


@pytest.fixture
def snapshot(tmp_path: Path) -> str:
    path = tmp_path / "snapshot.json"
    small = cluster(RACKS, {"t": [(1, 2, 3), (1, 2, 3), (1, 3, 2), (4, 2, 3)]}, {"t": [10, 20, 30, 40]})
    path.write_text(snapshot_to_json(small), encoding="utf-8")
    return str(path)


def test_out_and_json_are_the_same_object(klamm: Klamm, snapshot: str, tmp_path: Path) -> None:
    out = tmp_path / "plan.json"
    ran = klamm("plan", "rebalance", "--snapshot", snapshot, "--out", str(out), "-o", "json")
    assert ran.code == 0
    assert ran.json == json.loads(out.read_text("utf-8"))
    plan = decode_plan(out.read_text("utf-8"))
    assert encode_plan(plan) == out.read_text("utf-8")
    assert plan.klamm.score.is_optimal
    assert f"wrote {out}\n" in ran.err
    assert "planned in" in ran.err


def test_a_plan_that_was_written_comes_with_what_to_do_next(klamm: Klamm, snapshot: str, tmp_path: Path) -> None:
    out = tmp_path / "my plan.json"
    words = ("--snapshot", snapshot, "--out", str(out))
    ran = klamm("plan", "decommission", "4", *words)
    assert f"next: klamm plan check '{out}', then: klamm plan apply '{out}'" in ran.err
    assert "next:" not in ran.out
    empty = klamm("plan", "racks", *words)
    assert (empty.code, "next:" in empty.err) == (0, False), "there is nothing to carry out"
    assert "next:" not in klamm("plan", "decommission", "4", *words, "--quiet").err


def test_a_person_sees_what_changes_without_a_copy(klamm: Klamm, tmp_path: Path) -> None:
    """Broker 1 leads twelve partitions; four go to each of the others, and each keeps its replicas."""
    path = tmp_path / "led.json"
    path.write_text(snapshot_to_json(cluster({1: "a", 2: "b", 3: "c"}, {"t": [(1, 2, 3)] * 18})), encoding="utf-8")
    words = ("plan", "leaders", "--snapshot", str(path))
    plan = klamm(*words, "-o", "json").json
    targets = {(partition["topic"], partition["partition"]): partition["replicas"] for partition in plan["partitions"]}
    assert len(targets) == 12
    output = klamm(*words, "-o", "table").out
    head, _, listed = output.partition("Changed without a copy: 10 of 12 partitions")
    assert "moves" not in head.partition("What each broker carries")[2], "nothing is copied"
    rows = [line.split() for line in listed.splitlines() if line.startswith("t ")]
    assert len(rows) == 10
    assert all(row[2] == "1,2,3" and [int(b) for b in row[3].split(",")] == targets["t", int(row[1])] for row in rows)
    whole = [row.split() for row in klamm(*words, "--topic", "t", "-o", "plain").out.splitlines()]
    assert len(whole) == 12, "in a pipe all are listed"


def test_copies_and_changes_without_a_copy_stand_apart(klamm: Klamm, snapshot: str) -> None:
    words = ("plan", "decommission", "4", "--aim", "replicas,leaders", "--snapshot", snapshot)
    plan = klamm(*words, "-o", "json").json
    before = {move["partition"]: move["replicas"] for move in plan["klamm"]["rollback"]}
    reordered = [o["partition"] for o in plan["partitions"] if sorted(o["replicas"]) == sorted(before[o["partition"]])]
    assert 0 < len(reordered) < len(plan["partitions"])
    copies, title, listed = klamm(*words, "-o", "table").out.partition("Changed without a copy")
    assert title
    assert [int(line.split()[1]) for line in listed.splitlines() if line.startswith("t ")] == reordered
    assert ["t", "3", "4,2,3"] in [line.split()[:3] for line in copies.partition("The moves")[2].splitlines()]


def test_a_person_sees_which_replicas_are_dropped(klamm: Klamm, snapshot: str) -> None:
    output = klamm("plan", "factor", "2", "--snapshot", snapshot, "-o", "table").out
    listed = output.partition("Changed without a copy: 4 partitions")[2].splitlines()
    rows = [line.split() for line in listed if line.startswith("t ")]
    assert [(len(row[2].split(",")), len(row[3].split(","))) for row in rows] == [(3, 2)] * 4


@pytest.mark.parametrize(
    ("words", "what", "advice"),
    [
        (("apply", "absent"), "absent", "make a plan first: klamm plan rebalance --out absent"),
        (("diff", "absent", "absent"), "absent", "make a plan first: klamm plan rebalance --out absent"),
        (("rebalance", "--capacity", "absent"), "absent", "[brokers]"),
        (("check", "{plan}", "--policy", "absent"), "absent", "[limits]"),
    ],
)
def test_a_file_that_is_missing_comes_with_what_to_put_there(
    klamm: Klamm, snapshot: str, tmp_path: Path, words: tuple[str, ...], what: str, advice: str
) -> None:
    plan = tmp_path / "plan.json"
    where = () if words[0] == "diff" else ("--snapshot", snapshot)
    assert klamm("plan", "decommission", "4", "--snapshot", snapshot, "--out", str(plan)).code == 0
    ran = klamm("plan", *(word.format(plan=plan) for word in words), *where)
    assert (ran.code, ran.err.splitlines()[0]) == (2, f"error: no such file or directory: {what}")
    assert ran.err.splitlines()[1].startswith("hint: ") and advice in ran.err


def test_a_person_sees_the_sentence_the_card_the_brokers_and_the_moves(klamm: Klamm, snapshot: str) -> None:
    words = ("--aim", "replicas,leaders", "--explain", "t-0", "--throttle", "1k", "-o", "table")
    ran = klamm("plan", "decommission", "4", "--snapshot", snapshot, *words)
    assert ran.code == 0
    for text in (
        "no plan needs fewer bytes",
        "What each broker carries",
        "rack violations",
        "t-0: 1, 2, 3 becomes",
        "The moves",
    ):
        assert text in ran.out, text


def test_plain_has_a_row_for_each_partition(klamm: Klamm, snapshot: str) -> None:
    ran = klamm("plan", "decommission", "4", "--snapshot", snapshot)
    assert [row[:3] + row[4:] for row in ran.rows] == [["t", "3", "4,2,3", "1", "40"]]


def test_nothing_to_do_is_a_plan_too(klamm: Klamm, snapshot: str) -> None:
    ran = klamm("plan", "racks", "--snapshot", snapshot, "-o", "json")
    assert (ran.code, ran.json["partitions"]) == (0, [])


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (("decommission", "9"), 2, "no broker 9"),
        (("decommission", "x"), 2, "decommission: needs broker ids such as 1,2,3, not 'x'"),
        (("replace", "1"), 2, "replace must be OLD=NEW"),
        (("rebalance", "--aim", "disk"), 2, "--aim takes replicas, leaders, bytes"),
        (("rebalance", "--minimise", "time"), 2, "--minimise takes moves, bytes"),
        (("rebalance", "--max-bytes", "much"), 2, "--max-bytes: not a size"),
        (("rebalance", "--time-limit", "soon"), 2, "--time-limit: not a duration"),
        (("rebalance", "--time-limit", "0"), 2, "--time-limit must be a time above 0"),
        (("rebalance", "--time-limit", "1m"), 0, "planned in"),
        (("rebalance", "--capacity", "absent.toml"), 2, "absent.toml"),
        (("factor", "5"), 1, "5 replicas are wanted, but only 4 brokers"),
        (("decommission", "1,4"), 1, "only 2 brokers may hold it"),
        (("decommission", "4"), 0, "planned in"),
    ],
)
def test_codes(klamm: Klamm, snapshot: str, words: tuple[str, ...], code: int, message: str) -> None:
    ran = klamm("plan", *words, "--snapshot", snapshot)
    assert ran.code == code, ran.err
    assert message in ran.err


def test_an_aim_that_cannot_be_met_is_json_too(klamm: Klamm, snapshot: str) -> None:
    ran = klamm("plan", "factor", "5", "--snapshot", snapshot, "-o", "json")
    assert (ran.code, ran.error["kind"]) == (1, "infeasible")
    assert "add 1 more" in ran.error["hint"]


def test_a_capacity_that_cannot_be_met_says_what_is_missing(klamm: Klamm, snapshot: str, tmp_path: Path) -> None:
    """The replicas of partitions 0 to 2, 60 bytes, are on brokers 1, 2 and 3 in three racks; partition 3 has 40."""
    file = tmp_path / "capacity.toml"
    file.write_text("[brokers]\n2 = 100\n")
    words = ("plan", "decommission", "4", "--snapshot", snapshot, "--capacity", str(file), "-o", "json")
    assert klamm(*words).code == 0
    file.write_text("[brokers]\n1 = 99\n")
    ran = klamm(*words)
    assert (ran.code, ran.error["message"]) == (1, "broker 1 would hold 100 bytes, 1 above its capacity")
    assert ran.error["hint"] == "add a broker in rack a with room for 10 bytes, or raise the capacities"
    file.write_text("[brokers]\n1 = 100\n")
    assert klamm(*words).code == 0


def test_without_the_solver_a_plan_comes_with_how_to_get_a_smaller_one(
    klamm: Klamm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This is an installation without the extra: its library is missing."""
    for name in [module for module in sys.modules if module.startswith("highspy") or module in SOLVER_MODULES]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "highspy", None)
    path = tmp_path / "s4.json"
    path.write_text(snapshot_to_json(scenario("s4_add3")), encoding="utf-8")
    ran = klamm("plan", "rebalance", "--snapshot", str(path), "-o", "json")
    assert (ran.code, ran.json["klamm"]["score"]["solver"]) == (0, "heuristic"), ran.err
    assert "note: the solver is not installed" in ran.err
    assert "pip install 'klamm[plan]'" in ran.err


def test_a_scenario_from_its_snapshot(klamm: Klamm, tmp_path: Path) -> None:
    path = tmp_path / "s4.json"
    path.write_text(snapshot_to_json(scenario("s4_remove1")), encoding="utf-8")
    ran = klamm("plan", "decommission", "1012", "--snapshot", str(path), "-o", "json")
    assert ran.json["klamm"]["score"]["moves"] == 96


def test_a_person_sees_heat_before_and_after_and_the_ten_largest_moves(klamm: Klamm, tmp_path: Path) -> None:
    path = tmp_path / "s4.json"
    path.write_text(snapshot_to_json(scenario("s4_remove1")), encoding="utf-8")
    words = ("plan", "decommission", "1012", "--snapshot", str(path))
    plan = klamm(*words, "-o", "json").json
    output = klamm(*words, "-o", "table").out
    assert output.startswith("96 moves, 233 GB, 30 leader changes: no plan needs fewer bytes.\n")
    carries, _, largest = output.partition("What each broker carries")[2].partition("The largest moves")
    rows = {line.split()[0]: line for line in carries.splitlines() if line.strip()[:1].isdigit()}
    assert set(rows) == {str(broker["broker"]) for broker in plan["klamm"]["score"]["brokers"]}
    # Replicas, leaders and size, before and after. A larger value has more of the sign beside it.
    assert rows["1009"].count("--") + rows["1009"].count("++") == 6, rows["1009"]
    assert "110 --" in rows["1009"] and "142 ++" in rows["1009"], rows["1009"]
    targets = {(partition["topic"], partition["partition"]): partition["replicas"] for partition in plan["partitions"]}
    listed = [line.split() for line in largest.splitlines() if line.startswith("t0")]
    assert len(listed) == 10
    assert all(targets[cells[0], int(cells[1])] == [int(b) for b in cells[3].split(",")] for cells in listed)
    sizes = [float(cells[5]) for cells in listed]
    assert sizes == sorted(sizes, reverse=True) and sizes[0] == 21.1


def test_progress_is_shown_while_the_solver_works(
    klamm: Klamm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Without a pace every step is shown, even on a fast machine.
    monkeypatch.setattr("cli.framework.progress._LOG_PACE_S", 0.0)
    path = tmp_path / "s4.json"
    path.write_text(snapshot_to_json(scenario("s4_add3")), encoding="utf-8")
    words = ("plan", "rebalance", "--aim", "replicas,leaders", "--minimise", "moves", "--snapshot", str(path))
    ran = klamm(*words, "-o", "plain")
    assert ran.code == 0, ran.err
    progress = [line for line in ran.err.splitlines() if line.startswith("planning: ")]
    assert progress and all(line.endswith(" s") for line in progress), ran.err
    quiet = klamm(*words, "-o", "plain", "--quiet")
    assert (quiet.code, quiet.err) == (0, "")


def test_a_plan_that_a_cap_ends_tells_what_the_whole_aim_takes(klamm: Klamm, snapshot: str) -> None:
    words = ("plan", "rebalance", "--aim", "replicas", "--minimise", "moves", "--max-moves", "0")
    score = klamm(*words, "--snapshot", snapshot, "-o", "json").json["klamm"]["score"]
    assert (score["moves"], score["remaining_moves"], score["lower_bound"]["moves"]) == (0, 1, 1)
    output = klamm(*words, "--snapshot", snapshot, "-o", "table").out
    assert "no plan is needed" not in output
    assert "as much as the cap allows; 1 move is left. The whole aim takes at least 1 move." in " ".join(output.split())


def test_a_plan_that_is_not_proven_comes_with_the_bound_and_the_gap(
    klamm: Klamm, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without the solver the plan is larger than necessary."""
    hide_solver(monkeypatch)
    path = tmp_path / "s10.json"
    path.write_text(snapshot_to_json(scenario("s10_cc_exp_small")), encoding="utf-8")
    words = ("plan", "racks", "--aim", "replicas,leaders", "--minimise", "moves", "--snapshot", str(path))
    score = klamm(*words, "-o", "json").json["klamm"]["score"]
    moves, least = score["moves"], score["lower_bound"]["moves"]
    # The minimum is 1,281.
    assert 1000 < least <= 1281 < moves
    assert score["gap"] == pytest.approx((moves - least) / least, abs=1e-6)
    assert not score["is_optimal"]
    output = klamm(*words, "-o", "table").out
    sentence = " ".join(output.split())
    assert sentence.startswith(f"{moves:,} moves, ")
    assert f": at least {least:,} moves are needed, a gap of {100 * score['gap']:.1f} %." in sentence
    assert "no plan needs fewer" not in output


def test_in_a_pipe_the_sentence_and_the_explanation_are_said_beside_the_data(klamm: Klamm, snapshot: str) -> None:
    ran = klamm("plan", "decommission", "4", "--snapshot", snapshot, "--explain", "t-0", "-o", "csv")
    assert "no plan needs fewer bytes" in ran.err
    assert "\nt-0 stays on" in ran.err
    assert "fewer" not in ran.out
    nothing = klamm("plan", "racks", "--snapshot", snapshot)
    assert (nothing.out, "Nothing has to be done: no plan is needed." in nothing.err) == ("", True)
    assert klamm("plan", "racks", "--snapshot", snapshot, "--quiet").err == ""


@pytest.mark.parametrize(
    ("end", "expected", "hint"),
    [
        ("stopped", "has begun and is not done", "klamm plan resume "),
        ("done", "was carried out, and has its journal", "together with plan.json.journal"),
    ],
)
def test_a_plan_that_has_begun_is_not_overwritten(
    klamm: Klamm, snapshot: str, tmp_path: Path, end: str, expected: str, hint: str
) -> None:
    out = tmp_path / "plan.json"
    out.write_text("the only copy")
    journal = open_journal(tmp_path / "plan.json.journal", "sha256:of-the-only-copy")
    for event in ("begun", "wave", end):
        journal.write(event)
    journal.close()
    ran = klamm("plan", "decommission", "4", "--snapshot", snapshot, "--out", str(out))
    assert (ran.code, ran.out, out.read_text()) == (2, "", "the only copy"), ran.err
    assert expected in ran.err
    assert hint in ran.err
    assert "planned" not in ran.err


def test_a_folder_that_is_missing_is_told_before_the_plan_is_made(klamm: Klamm, snapshot: str, tmp_path: Path) -> None:
    ran = klamm("plan", "decommission", "4", "--snapshot", snapshot, "--out", str(tmp_path / "absent" / "plan.json"))
    assert (ran.code, f"--out: no such folder: {tmp_path / 'absent'}" in ran.err) == (2, True), ran.err
    assert "planned" not in ran.err
