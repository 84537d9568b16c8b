"""Time to load a good preset and to inspect good files, beside another tree of keras_vit.

    KERAS_BACKEND=torch python -m tests.fuzz.load_time OTHER_TREE

The other tree writes the files, so that both can read them; an old tree writes no checksum. Each
round starts a process of either tree, in alternating order. A process measures its processor time;
the table has the least of all rounds.
"""

import argparse
import datetime
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[2]
MAKE = """
import sys
import keras, keras_vit
from keras_vit import checkpoints
keras.utils.set_random_seed(0)
model, folder = keras_vit.vit_ti16(), sys.argv[1]
model.save_to_preset(f"{folder}/preset")
checkpoints.save(model, f"{folder}/google.npz", "google")
for dialect in ("timm", "transformers", "keras_hub"):
    checkpoints.save(model, f"{folder}/{dialect}", dialect, lossy=True)
"""
MEASURE = """
import json, logging, sys, time, warnings
warnings.simplefilter("ignore"), logging.disable()
import keras_vit
from keras_vit import VisionTransformer, checkpoints
assert keras_vit.__file__.startswith(sys.argv[2]), keras_vit.__file__
def least(action, count):
    found = []
    for _ in range(count):
        start = time.process_time()
        action()
        found.append(time.process_time() - start)
    return min(found)
folder, told = sys.argv[1], {}
told["load preset"] = least(lambda: VisionTransformer.from_preset(f"{folder}/preset"), 4)
for name in ("google.npz", "timm", "transformers", "keras_hub"):
    told[f"load {name}"] = least(lambda: checkpoints.load(f"{folder}/{name}"), 2)
for name in ("preset", "google.npz", "timm", "transformers", "keras_hub"):
    told[f"inspect {name}"] = least(lambda: checkpoints.inspect(f"{folder}/{name}"), 15)
print(json.dumps(told))
"""


def run(tree: Path, program: str, *arguments: str) -> str:
    """What a program prints with keras_vit of a tree."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments],
        env={**os.environ, "PYTHONPATH": str(tree)},
        cwd=tree,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return done.stdout


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.load_time")
    parser.add_argument("tree", type=Path, help="another working tree of keras_vit")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()
    trees = {"before": arguments.tree.resolve(), "now": ROOT}
    found: dict[str, dict[str, float]] = {name: {} for name in trees}
    with tempfile.TemporaryDirectory() as folder:
        run(trees["before"], MAKE, folder)
        for k in range(arguments.rounds):
            for name in list(trees)[:: 1 if k % 2 else -1]:
                told = json.loads(run(trees[name], MEASURE, folder, str(trees[name])))
                for what, seconds in told.items():
                    found[name][what] = min(seconds, found[name].get(what, seconds))
    backend = os.environ.get("KERAS_BACKEND", "tensorflow")
    print(f"{datetime.datetime.now(datetime.UTC).date()}, {backend}, {arguments.rounds} rounds\n")
    print("| what | before, ms | now, ms | ratio |\n|---|---:|---:|---:|")
    for what, before in found["before"].items():
        now = found["now"][what]
        print(f"| {what} | {1e3 * before:.1f} | {1e3 * now:.1f} | {now / before:.2f} |")


if __name__ == "__main__":
    main()
