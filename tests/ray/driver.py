"""A run of `write_dataset` that kills a worker and then itself: python -m tests.ray.driver JSON."""

import json
import os
import signal
import sys
import threading
import time
from pathlib import Path

import psutil

from keras_vit.errors import KerasViTError
from keras_vit.ray import write_dataset


def kill_a_worker() -> None:
    """Ends a process of Ray that runs the model, without warning."""
    for child in psutil.Process().children(recursive=True):
        if "MapWorker" in " ".join(child.cmdline()):
            child.kill()
            return
    raise RuntimeError("No worker was found.")


def wait_for(out: Path, files: int) -> None:
    """Returns when the data set has a number of files."""
    while len(list(out.glob("*.parquet"))) < files:
        time.sleep(0.002)


def kill(out: Path, worker_at: int, driver_at: int) -> None:
    """Ends a worker and then this process at these numbers of files."""
    wait_for(out, worker_at)
    kill_a_worker()
    wait_for(out, driver_at)
    os.kill(os.getpid(), signal.SIGKILL)


def main(kill_at=None, **options) -> None:
    """Runs, with kills at two numbers of files."""
    if kill_at is not None:
        threading.Thread(target=kill, args=(Path(options["out"]), *kill_at), daemon=True).start()
    try:
        written = write_dataset(**options)
    except KerasViTError as error:
        sys.exit(str(error))
    print(json.dumps(written._asdict()))


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
