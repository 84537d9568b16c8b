"""Writes the names of the ImageNet classes that keras_vit ships.

    python -m weights.make_labels            # needs timm, which has the lists

A line per class, in the order of the heads: ILSVRC 2012 for ImageNet-1k, and that of
Google's checkpoints for ImageNet-21k, which is the order of the WordNet identifiers
(google-research/big_transfer issue 7). Identifiers and names are WordNet 3.0's.
"""

from importlib.metadata import distribution
from pathlib import Path

LABELS = Path(__file__).parents[1] / "keras_vit" / "images" / "class_names"
ORDERS = {
    "imagenet1k": "imagenet_synsets.txt",
    "imagenet21k": "imagenet21k_goog_synsets.txt",
}


def main() -> None:
    """Joins timm's lists of identifiers with its list of names."""
    # Located, not imported: that would take torchvision.
    lists = Path(str(distribution("timm").locate_file("timm/data/_info")))
    lemmas = (lists / "imagenet_synset_to_lemma.txt").read_text(encoding="utf-8")
    name_source = dict(line.split("\t") for line in lemmas.splitlines())
    for word, order in ORDERS.items():
        identifiers = (lists / order).read_text(encoding="utf-8").split()
        names = "".join(f"{name_source[identifier]}\n" for identifier in identifiers)
        (LABELS / f"{word}.txt").write_text(names, encoding="utf-8")
        print(f"{word}.txt: {len(identifiers)} names")


if __name__ == "__main__":
    main()
