"""The effect of lower precision on the logits of the goldens and on the accuracy of vit_digits.

    KERAS_BACKEND=torch python -m benchmarks.precision torch.json     # likewise for each backend
    python -m benchmarks.precision --table torch.json jax.json tensorflow.json

By dtype policy or quantisation mode: the largest error of a logit, relative to the largest, over
goldens of each family; and how many of the 360 test digits of `weights/train_digits.py` the
preset vit_digits tells right. What a backend cannot run is named, and the rest goes on.
"""

import argparse
import json
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

WAYS = ("float32", "mixed_bfloat16", "bfloat16", "mixed_float16", "float16", "int8", "int4")
FAMILIES = {
    "token": ("vit_token_published", "vit_rep"),
    "gap": ("vit_gap",),
    "map": ("bv_map",),
    "hybrid": ("hybrid_r26", "hybrid_r_ti"),
}
"""Goldens whose reference outputs the errors are measured against."""


def measure() -> dict[str, Any]:
    """Returns the figures of this process's backend, by precision."""
    import keras

    warnings.filterwarnings("ignore", message="Layer .* does not have a `quantize")
    return {"backend": keras.backend.backend(), "rows": {way: _row(way) for way in WAYS}}


def _row(way: str) -> dict[str, Any]:
    try:
        errors = {
            family: max(_error(name, way) for name in FAMILIES[family]) for family in FAMILIES
        }
        return {**errors, "digits": _digits_right(way)}
    except Exception as error:  # an error of a backend becomes a row of the table
        return {"fails": f"{type(error).__name__}: {error}".splitlines()[0][:120]}


def _error(name: str, way: str) -> float:
    from tests import golden

    expected = golden.expected(name)
    model = _computing(way, lambda dtype: golden.load_case(name, dtype=dtype))
    logits = model.predict(expected["image"], verbose=0).astype("float32")
    return golden.relative_error(logits, expected["logits"])


def _digits_right(way: str) -> int:
    from keras_vit import VisionTransformer
    from weights.train_digits import digits

    _, images, _, classes = digits()
    model = _computing(way, lambda dtype: VisionTransformer.from_preset("vit_digits", dtype=dtype))
    logits = model.predict(model.preprocessor(images), batch_size=120, verbose=0)
    return int((logits.argmax(axis=1) == classes).sum())


def _computing(way: str, load: Callable[[str], Any]) -> Any:
    """The model that `load` returns for a dtype policy, or for float32, which is then quantised."""
    if not way.startswith("int"):
        return load(way)
    model = load("float32")
    model.quantize(way)
    return model


def table(results: list[dict[str, Any]]) -> str:
    """Returns a Markdown table of several backends' figures."""
    columns = (*FAMILIES, "digits")
    lines = [
        f"| | backend | {' | '.join(columns)} |",
        f"|---|---|{'---|' * len(columns)}",
    ]
    for way in WAYS:
        for result in results:
            row = result["rows"][way]
            figures = [f"{row[family]:.0e}" for family in FAMILIES if family in row]
            told = [*figures, f"{row['digits']} / 360"] if figures else [row["fails"]]
            lines.append(f"| {way} | {result['backend']} | {' | '.join(told)} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("files", nargs="+", type=Path, help="JSON to write, or to make a table of")
    parser.add_argument("--table", action="store_true", help="read the files, print a table")
    arguments = parser.parse_args()
    if arguments.table:
        print(table([json.loads(file.read_text()) for file in arguments.files]))
        return
    result = measure()
    arguments.files[0].write_text(json.dumps(result, indent=2) + "\n")
    print(table([result]))


if __name__ == "__main__":
    main()
