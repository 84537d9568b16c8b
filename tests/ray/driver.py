"""A run of `write_dataset` that kills a worker and then itself: python -m tests.ray.driver JSON."""

import json
import os
import signal
import sys

import psutil

from keras_vit.errors import KerasViTError
from keras_vit.ray import write_dataset


def kill_a_worker() -> int:
    """Ends a process of Ray that runs the model, without warning; returns its number."""
    for child in psutil.Process().children(recursive=True):
        if "Writer" in " ".join(child.cmdline()):
            child.kill()
            return child.pid
    raise RuntimeError("No worker was found.")


def main(kill_worker_at=None, die_at=None, **options) -> None:
    """Runs with a kill at these numbers of finished images."""
    killed = []

    def progress(done, total):
        if kill_worker_at is not None and done >= kill_worker_at and not killed:
            killed.append(kill_a_worker())
        if die_at is not None and killed and done >= die_at:
            os.kill(os.getpid(), signal.SIGKILL)

    try:
        written = write_dataset(progress=progress, **options)
    except KerasViTError as error:
        sys.exit(str(error))
    print(json.dumps(written._asdict()))


if __name__ == "__main__":
    main(**json.loads(sys.argv[1]))
