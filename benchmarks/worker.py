"""The process of one peer: builds the peer, reports it, and runs a turn for every line it reads."""

import json
import sys
import time
from pathlib import Path
from typing import Any


def main() -> None:
    """Reads a number of steps per line; answers `{"seconds", "cpu", "peak_mb"}` or `{"error"}`."""
    answers, sys.stdout = sys.stdout, sys.stderr  # libraries may print to standard output

    def answer(**values: Any) -> None:
        answers.write(json.dumps(values) + "\n")
        answers.flush()

    from benchmarks.peers import PEERS, Job
    from benchmarks.sizes import size_named

    asked = json.loads(sys.argv[1])
    size = size_named(asked["model"], asked["image_size"])
    try:
        step = PEERS[asked["peer"]].make(Job(asked["task"], size, asked["batch"], asked["dtype"]))
        answer(ready=True)
        for steps in map(int, sys.stdin):
            start, cpu = time.perf_counter(), time.process_time()
            step(steps)
            seconds, cpu = time.perf_counter() - start, time.process_time() - cpu
            answer(seconds=seconds, cpu=cpu, peak_mb=peak_mb())
    except Exception as error:  # one peer that fails leaves the others running
        answer(error=f"{type(error).__name__}: {error}".splitlines()[0][:300])


def peak_mb() -> float:
    """Returns the most memory of the GPU that the process has used, or else of its resident set."""
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if torch is not None and torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return float(torch.cuda.max_memory_allocated() / 2**20)
    if jax is not None and jax.default_backend() == "gpu":
        return float(jax.local_devices()[0].memory_stats()["peak_bytes_in_use"] / 2**20)
    status = Path("/proc/self/status").read_text()  # `ru_maxrss` begins at the parent's peak
    return int(status.partition("VmHWM:")[2].split()[0]) / 2**10


if __name__ == "__main__":
    main()
