"""Two workers of `MultiWorkerMirroredStrategy`; prints what each has found, as JSON.

python -m tests.distribution.in_tensorflow_workers
"""

import contextlib
import functools
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.distribution.forked import free_port


def worker():
    import tensorflow as tf  # not in the process that starts the workers

    strategy = tf.distribute.MultiWorkerMirroredStrategy()  # before any other operation

    from keras_vit import finetune
    from tests.distribution import on_tensorflow_replicas as replicas
    from tests.distribution import training
    from tests.thorough import times

    options = {"clip_norm": 0.1, "learning_rate": 0.1, "accumulate": 2, "ema": 0.5}
    recipe = finetune.transfer_recipe
    losses_alone, alone, _ = replicas.trained(tf.distribute.get_strategy(), recipe, **options)
    losses, found, _ = replicas.trained(strategy, recipe, **options)
    model, one = replicas.compiled(strategy), replicas.compiled(tf.distribute.get_strategy())
    x, y = replicas.IMAGES, replicas.LABELS
    short = functools.partial(training.trained, epochs=2, steps_per_epoch=times(4, 10))
    with strategy.scope():
        streamed = short()
        with contextlib.suppress(training.StoppedError):
            short(Path(os.environ["RUN"]), stop_after=0)
        resumed = short(Path(os.environ["RUN"]))
    one_device = short()
    images, pictures = replicas.IMAGES[:9], replicas.PICTURES
    predictions = [
        [each.predict(images, batch_size=8, verbose=0), probabilities(each, pictures)]
        for each in (model, one)
    ]
    scores = [each.evaluate(x, y, batch_size=8, verbose=0) for each in (model, one)]
    report = {
        "replicas": strategy.num_replicas_in_sync,
        "loss": replicas.distance([losses], [losses_alone]),
        "state": replicas.distance(found, alone),
        "evaluate": replicas.distance([scores[0]], [scores[1]]),
        "streamed": training.distance(streamed.variables, one_device.variables),
        "resumed": training.distance(resumed.variables, streamed.variables),
        "predictions": training.distance(*predictions),
        "refused": replicas.message(lambda: model.fit(x[:7], y[:7], batch_size=7, verbose=0)),
    }
    print(json.dumps(report))


def probabilities(model, pictures):
    return [[share for _, share in sorted(row)] for row in model.classify(pictures)]


def main():
    with tempfile.TemporaryDirectory() as folder:
        start(folder)


def start(folder):
    places = [f"127.0.0.1:{free_port()}" for _ in range(2)]
    started = []
    for index in range(2):
        config = {"cluster": {"worker": places}, "task": {"type": "worker", "index": index}}
        command = [sys.executable, "-m", "tests.distribution.in_tensorflow_workers"]
        env = {**os.environ, "TF_CONFIG": json.dumps(config), "RUN": folder}
        started.append(subprocess.Popen(command, env=env, stdout=subprocess.PIPE, text=True))
    reports = [process.communicate()[0].splitlines()[-1:] for process in started]
    if any(process.returncode for process in started):
        sys.exit(f"A worker failed: {[process.returncode for process in started]}")
    json.dump([json.loads(line) for (line,) in reports], sys.stdout)


if __name__ == "__main__":
    if "TF_CONFIG" in os.environ:
        worker()
    else:
        main()
