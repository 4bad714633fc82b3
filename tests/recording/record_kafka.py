"""Record ``fixtures/`` anew from a real Apache Kafka 3.9.1 in ZooKeeper mode; needs ``mvn`` for its jars, and Java.

    python tests/recording/record_kafka.py NAME… [--out FOLDER] [--scenes FOLDER]

A name is that of a folder of ``fixtures``. ``--out`` writes below another folder than ``fixtures``. Several fixtures
are cut from the same scenes; ``--scenes`` keeps these, and takes those that it holds already. All scenes take a
quarter of an hour. Brokers are at loopback addresses of their own, whatever the recordings say, so tests and other
recordings may run meanwhile.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from tests.support.paths import FOLDERS  # noqa: E402

sys.path[:0] = FOLDERS

from from_scenes import MAKERS, load_scenes  # noqa: E402
from main_scenes import play_main  # noqa: E402
from record_config import record_config  # noqa: E402
from record_first_answers import record_first_answers, record_frames_of_answers  # noqa: E402
from record_groups import record_groups  # noqa: E402
from record_kafka_tools import record_kafka_tools  # noqa: E402
from record_metrics import record_metrics  # noqa: E402
from record_records import record_disk, record_records  # noqa: E402
from record_transactions import record_transactions  # noqa: E402
from recorded_kafka import RecordedCluster  # noqa: E402
from small_scenes import IBP_2_6, SECURE, play_ibp_2_6, play_legacy_bad, play_secure  # noqa: E402

PLAYS: dict[str, tuple[Callable[[RecordedCluster], None], dict[str, str]]] = {
    "main": (play_main, {}),
    "ibp-2.6": (play_ibp_2_6, IBP_2_6),
    "legacy-bad": (play_legacy_bad, {}),
    "secure": (play_secure, SECURE),
}
RECORDERS: dict[str, Callable[[Path, Path], None]] = {
    "config": record_config,
    "disk": record_disk,
    "first-answers": record_first_answers,
    "groups": record_groups,
    "frames": record_frames_of_answers,
    "kafka-tools": record_kafka_tools,
    "metrics": record_metrics,
    "records": record_records,
    "transactions": record_transactions,
}


def play_scenes(folder: Path) -> None:
    """Play the scenes of every cluster that the folder has none of."""
    for name, (play, settings) in PLAYS.items():
        if not (folder / name / "whole").exists():
            with tempfile.TemporaryDirectory() as work, RecordedCluster(Path(work), name, folder, settings) as cluster:
                play(cluster)
            (folder / name / "whole").touch()


def main() -> None:
    """Record what is named."""
    parser = argparse.ArgumentParser(description="Record fixtures anew from Apache Kafka 3.9.1.")
    names = sorted({*RECORDERS, *MAKERS})
    parser.add_argument("names", nargs="+", metavar="NAME", choices=names, help=" ".join(names))
    parser.add_argument("--out", type=Path, default=ROOT / "fixtures", help="write below this folder")
    parser.add_argument("--scenes", type=Path, help="keep what clusters did here, and take what is here")
    asked = parser.parse_args()
    for name in asked.names:
        out = asked.out / name
        out.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory() as work:
            if name in RECORDERS:
                RECORDERS[name](out, Path(work))
            if name in MAKERS:
                scenes = asked.scenes or Path(work) / "scenes"
                play_scenes(scenes)
                MAKERS[name](load_scenes(scenes), out)
        print(f"recorded {out}")


if __name__ == "__main__":
    main()
