"""The process of one peer: builds the peer, reports it, and runs a turn for every line it reads."""

import json
import resource
import sys
import time
from typing import Any


def main() -> None:
    """Reads lines `{"steps": n}`; answers `{"seconds", "cpu", "peak_mb"}`, or `{"error": text}`."""
    answers, sys.stdout = sys.stdout, sys.stderr  # libraries may print to standard output

    def answer(value: dict[str, Any]) -> None:
        answers.write(json.dumps(value) + "\n")
        answers.flush()

    from benchmarks.peers import PEERS, Job
    from benchmarks.sizes import size_named

    request = json.loads(sys.argv[1])
    job = Job(
        request["task"],
        size_named(request["model"], request["image_size"]),
        request["batch"],
        request["dtype"],
    )
    try:
        step = PEERS[request["peer"]].make(job)
        answer({"ready": True})
        for line in sys.stdin:
            steps = json.loads(line)["steps"]
            start, cpu = time.perf_counter(), time.process_time()
            step(steps)
            answer({
                "seconds": time.perf_counter() - start,
                "cpu": time.process_time() - cpu,
                "peak_mb": peak_mb(),
            })  # fmt: skip
    except Exception as error:  # one peer that fails leaves the others running
        answer({"error": f"{type(error).__name__}: {error}".splitlines()[0][:300]})


def peak_mb() -> float:
    """Returns the most memory of the GPU that the process has used, or else of its resident set."""
    torch, jax = sys.modules.get("torch"), sys.modules.get("jax")
    if torch is not None and torch.cuda.is_available() and torch.cuda.max_memory_allocated():
        return torch.cuda.max_memory_allocated() / 2**20
    if jax is not None and jax.default_backend() == "gpu":
        return jax.local_devices()[0].memory_stats()["peak_bytes_in_use"] / 2**20
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


if __name__ == "__main__":
    main()
