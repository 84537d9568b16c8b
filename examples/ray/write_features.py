"""Features of the images of a folder, by Ray workers, in Parquet files.

    python examples/ray/write_features.py photos features --source vit_b16.augreg_i21k_224

Each image has one row: its path, its features, and the reason if it cannot be read. After a crash
the same command computes the images that are in no file yet. Run one command at a time for one
folder.

Ray starts on this machine, or uses the cluster that RAY_ADDRESS names; every machine then needs the
same paths. Images at addresses such as s3://bucket/a.jpg need only another list of paths.
"""

import argparse
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import ray

import keras_vit
from keras_vit.images import list_images

LARGEST_BATCH = 512  # images; a worker holds their pixels
BATCHES_PER_WORKER = 8


def claim(out: Path, preset: str) -> None:
    """Notes the preset of a new folder; refuses a folder with the features of another one."""
    note = out / "_preset.txt"  # readers of Parquet skip names that begin so
    if any(out.glob("*.parquet")) and not (note.exists() and note.read_text() == preset):
        sys.exit(f"{out}: expected a new folder, or one with features of {preset}.")
    out.mkdir(parents=True, exist_ok=True)
    note.write_text(preset)


def list_written(out: Path) -> set[str]:
    """Returns the images in the files; removes a file that has no end, as a crash leaves it."""
    written: set[str] = set()
    for file in out.glob("*.parquet"):
        try:
            written.update(pq.read_table(file, columns=["path"])["path"].to_pylist())
        except pa.ArrowInvalid:
            file.unlink()
    return written


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("images", type=Path, help="folder of images")
    parser.add_argument("out", type=Path, help="folder for the Parquet files")
    parser.add_argument("--source", default="vit_digits")
    parser.add_argument("--workers", type=int, default=1, help="processes that each load the model")
    parser.add_argument("--cpus", type=int, default=1, help="processors of a worker")
    parser.add_argument("--gpus", type=float, default=0, help="accelerators of a worker")
    arguments = parser.parse_args()
    claim(arguments.out, arguments.source)
    written = list_written(arguments.out)
    paths = list_images(arguments.images.absolute()).images
    if missing := [path for path in paths if path not in written]:
        share = -(-len(missing) // (BATCHES_PER_WORKER * arguments.workers))
        batch_size = min(LARGEST_BATCH, share)
        batches = -(-len(missing) // batch_size)
        rows = ray.data.from_items(
            [{"path": path} for path in missing], override_num_blocks=batches
        ).map_batches(
            keras_vit.ray.Embed,
            fn_constructor_args=[arguments.source],
            batch_size=batch_size,
            compute=ray.data.ActorPoolStrategy(size=min(arguments.workers, batches)),
            num_cpus=arguments.cpus,
            num_gpus=arguments.gpus or None,
        )
        rows.write_parquet(str(arguments.out))
    print(f"{len(paths)} images, {len(missing)} of them written now: {arguments.out}")


if __name__ == "__main__":
    main()
