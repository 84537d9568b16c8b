"""The 19 tasks of VTAB-1k by their names in TensorFlow Datasets.

python examples/paper/vtab_tasks.py

Splits and labels are those of google-research/task_adaptation, which made the benchmark.
"""

import numpy as np

# Where the 200 images for a choice lie: a split, and from which per cent of it on; test images.
OWN, CUT, SIXTY = ("validation", 0, "test"), ("train", 90, "test"), ("train", 60, "train[80%:]")
CLEVR, NORB = ("train", 90, "validation"), ("test", 0, "test[50%:]")
SPRITES = ("train", 80, "train[90%:]")


def above(edges, value):
    """The number of the last edge below a value."""
    return np.flatnonzero(np.array(edges) < value).max()


def nearest_object(record):
    """CLEVR: the distance of the nearest object, in six ranges."""
    return above(
        [0, 8, 8.5, 9, 9.5, 10, 100], min(np.array(record["objects"]["pixel_coords"])[:, 2])
    )


def nearest_car(record):
    """KITTI: the nearest car, van or truck is up to 8 m away, up to 20 m, farther, or not there."""
    kinds, places = np.array(record["objects"]["type"]), np.array(record["objects"]["location"])
    return above([-100, 8, 20, 999], min([1000, *places[kinds < 3, 2]]))


TASKS = {  # task: data set, splits, label, classes of a label that is computed
    "Caltech101": ("caltech101", CUT), "CIFAR-100": ("cifar100", CUT), "DTD": ("dtd", OWN),
    "Flowers102": ("oxford_flowers102", OWN), "Pets": ("oxford_iiit_pet", CUT),
    "Sun397": ("sun397/tfds", OWN), "SVHN": ("svhn_cropped", CUT),
    "Camelyon": ("patch_camelyon", OWN), "EuroSAT": ("eurosat/rgb", SIXTY),
    "Resisc45": ("resisc45", SIXTY),
    "Retinopathy": ("diabetic_retinopathy_detection/btgraham-300", OWN),
    "Clevr-Count": ("clevr", CLEVR, lambda r: len(r["objects"]["size"]) - 3, 8),
    "Clevr-Dist": ("clevr", CLEVR, nearest_object, 6),
    "DMLab": ("dmlab", OWN), "KITTI-Dist": ("kitti", OWN, nearest_car, 4),
    "dSpr-Loc": ("dsprites", SPRITES, lambda r: r["label_x_position"] * 16 // 32, 16),
    "dSpr-Ori": ("dsprites", SPRITES, lambda r: r["label_orientation"] * 16 // 40, 16),
    "sNORB-Azim": ("smallnorb", NORB, "label_azimuth"),
    "sNORB-Elev": ("smallnorb", NORB, "label_elevation"),
}  # fmt: skip
# The pixels of dSprites are 0 and 1, not 0 and 255.
PROTOCOLS = {"dsprites": {"name": "paper", "mean": 0.5 / 255, "std": 0.5 / 255}}

if __name__ == "__main__":
    for task, (name, *_) in TASKS.items():
        print(f"{task:12} tfds build {name}")
