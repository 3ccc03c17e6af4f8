"""Record the run of this machine that the book shows: all backends, one after the other.

    python scripts/record_measurements.py [--name NAME] [--out FOLDER]

On a CPU it takes about a minute, on one GPU less than eight. The file names the processor or GPU and the versions, no host
and no path.
"""

import argparse
import re
import sys
from pathlib import Path

from hwdesign.measure.backends import available
from hwdesign.measure.collectives import measure_collectives
from hwdesign.measure.pipeline import measure_pipeline
from hwdesign.measure.runs import save_run
from hwdesign.measure.suite import run_suite

DATA = Path(__file__).parents[1] / "hwdesign" / "measure" / "data"
LIMIT = {"cuda": 300.0, "cpu": 24.0}  # of the first backend [s]; where torch is timed, NumPy gets the quick list


def say(text):
    """One line of progress."""
    print(text, file=sys.stderr, flush=True)


def slug(device):
    """A device's name as part of a file name."""
    return re.sub(r"[^a-z0-9]+", "_", re.sub(r"\((r|tm)\)", "", device.lower())).strip("_")


def main():
    """Measure, write the file, say where it is."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--name", help="of the file: run_NAME.json; by default from the device")
    parser.add_argument("--out", type=Path, default=DATA, help="folder")
    chosen = parser.parse_args()
    backends = available()
    gpu = backends.get("torch-cuda")
    names = ["torch-cuda"] if gpu else list(backends)
    taken = []
    for name in names:
        say(f"== {name} on {backends[name].device}")
        first = name == names[0]
        found = run_suite(name, quick=not first, limit=LIMIT[backends[name].kind] if first else None, progress=say)
        taken += found
        for m in found:
            say(str(m))
    if not gpu:
        say("== collectives, 2 processes")
        taken += measure_collectives(2)
        say("== a pipeline of 2 threads")
        taken += measure_pipeline(2, rounds=9)
    device = backends[names[0]].device
    name = chosen.name or f"{'gpu' if gpu else 'cpu'}_{slug(device)}"
    path = chosen.out / f"run_{name}.json"
    save_run(path, taken, machine=device)
    say(f"wrote {path}")


if __name__ == "__main__":
    main()
