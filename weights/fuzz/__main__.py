"""Runs campaigns and prints their table: python -m weights.fuzz --count 1000 --seed 1."""

import argparse
import datetime
import sys
import time
from pathlib import Path

from weights.fuzz.campaign import OUTCOMES, run
from weights.fuzz.seeds import READERS


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m weights.fuzz", description=__doc__)
    parser.add_argument("--readers", nargs="+", choices=READERS, default=READERS)
    parser.add_argument("--count", type=int, default=10_000, help="inputs per reader")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="number of the first input")
    parser.add_argument("--keep", type=Path, default=Path("fuzz-faults"))
    arguments = parser.parse_args()
    today = datetime.datetime.now(datetime.UTC).date()
    print(f"{today}, seed {arguments.seed}\n")
    print(f"| reader | {' | '.join(OUTCOMES)} | minutes |")
    print(f"|---|{'---:|' * (len(OUTCOMES) + 1)}")
    faulty = False
    for reader in arguments.readers:
        start = time.monotonic()
        counts, faults = run(
            reader, arguments.count, arguments.seed, arguments.keep, arguments.first
        )
        minutes = (time.monotonic() - start) / 60
        cells = " | ".join(f"{counts[outcome]:,}" for outcome in OUTCOMES)
        print(f"| {reader} | {cells} | {minutes:.1f} |", flush=True)
        for fault in faults:
            print(f"{reader} {fault.number}: {fault.outcome}: {fault.reason}", file=sys.stderr)
        faulty |= bool(faults)
    return int(faulty)


if __name__ == "__main__":
    sys.exit(main())
