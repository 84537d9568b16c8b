"""Reads inputs in a process with limits, and says of each how it went: one JSON line each.

    python -m weights.fuzz.child READER FOLDER_OF_GOOD

On standard input come the folders of changed inputs, one a line.
"""

import hashlib
import json
import resource
import sys
import warnings
from pathlib import Path
from typing import Any

from weights.fuzz import answers

GIBIBYTE = 2**30
READING = ("refused", "right", "different", "crashed")


def get_answer(reader: str, folder: Path, good: Any = None) -> Any:
    """Everything that reading tells: numbers by their checksum, and what the files state."""
    if reader in answers.READERS:
        return answers.get_answer(reader, folder, good)
    if reader == "images":
        from keras_vit import Preprocessor

        preprocess = Preprocessor((16, 16))
        return {p.name: _digest(preprocess(p)) for p in sorted(folder.iterdir())}
    from keras_vit.checkpoints.opening import open_source
    from keras_vit.checkpoints.reading import open_checkpoint
    from keras_vit.errors import CheckpointError
    from keras_vit.presets.source import Source
    from weights.fuzz.seeds import given

    path = folder / "x.npz" if (folder / "x.npz").exists() else folder
    with open_source(Source.parse(path)) as opened:
        about = open_checkpoint(opened, given(reader)).info
        if about.undetermined:  # loading asks for it
            raise CheckpointError(f"{path}: does not tell {about.undetermined}.")
        names = [name for name in opened.reader.shapes if name not in about.ignored]
        numbers = {name: _digest(opened.reader.read(name)) for name in names}
        preset = opened.preset.to_dict() if opened.preset else None
    config = about.config.to_dict()
    outputs = (about.task, about.classifier_activation, about.rescale)
    facts = (config, outputs, about.class_names, about.protocol, about.undetermined, preset)
    return {"numbers": numbers, "told": repr(facts), "family": about.family}


def _digest(array: Any) -> str:
    return f"{array.dtype}{array.shape}{hashlib.sha1(array.tobytes()).hexdigest()}"


def outcome(reader: str, folder: Path, good: Any) -> tuple[str, str]:
    """How reading went, and why."""
    from keras_vit import KerasViTError

    try:
        actual = get_answer(reader, folder, good)
    except KerasViTError as error:
        message, cause = str(error), error.__cause__
        if isinstance(cause, MemoryError):
            return "crashed", f"out of memory: {message[:300]}"
        if str(folder) not in message and folder.name not in message:
            return "crashed", f"the message names no file: {message[:300]}"
        if len(message) > 20_000 or not message.replace("\n", "").replace("\t", "").isprintable():
            return "crashed", f"a message of {len(message)} characters: {message[:300]!r}"
        return "refused", message[:200]
    except BaseException as error:
        return "crashed", f"{type(error).__name__}: {str(error)[:300]}"
    return ("right", "") if actual == good else ("different", _difference(actual, good))


def _difference(found: Any, good: Any) -> str:
    for key in good:
        if found.get(key) != good[key]:
            return f"{key}: {str(found.get(key))[:150]} instead of {str(good[key])[:150]}"
    return "more than was there"


def main() -> None:
    reader, good_folder = sys.argv[1], Path(sys.argv[2])
    warnings.simplefilter("ignore")
    good = get_answer(reader, good_folder)
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    idle = pages * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (idle + GIBIBYTE,) * 2)
    print("ready", flush=True)
    for line in sys.stdin:
        print(json.dumps(outcome(reader, Path(line.rstrip("\n")), good)), flush=True)


if __name__ == "__main__":
    main()
