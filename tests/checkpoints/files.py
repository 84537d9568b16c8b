"""Small checkpoints from a few words: copied, written with names and shapes, and refused."""

import filecmp
import json
import shutil
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from safetensors.numpy import save_file

import keras_vit
from keras_vit import checkpoints
from keras_vit.errors import CheckpointError
from tests.checkpoints.headers import write_sparse
from tests.plain import stored

DATA = Path(__file__).parents[1] / "data"


def find(name: str) -> Path:
    """A file or folder of one of the reference data's folders."""
    folders = ("golden", "families", "naflex", "formats")
    return next(DATA / folder / name for folder in folders if (DATA / folder / name).exists())


def copy(name: str, folder: Path) -> Path:
    """Copies a file or folder of the reference data into a folder."""
    source, target = find(name), folder / Path(name).name
    return shutil.copytree(source, target) if source.is_dir() else shutil.copy(source, target)


def arrays_of(name: str) -> dict[str, np.ndarray]:
    """The arrays of a file, or of a folder, of the reference data."""
    path = find(name)
    return stored(path / "model.safetensors" if path.is_dir() else path)


def write_arrays(path: Path, *parts: tuple[str, dict]) -> Path:
    """Writes a safetensors file; each part is a prefix, and arrays or shapes by name."""
    content = {}
    for prefix, part in parts:
        for name, value in part.items():
            content[prefix + name] = np.ones(value, "float32") if type(value) is tuple else value
    save_file(content, path)
    return path


def write_shapes(path: Path, shapes: dict[str, tuple[int, ...]], config: Any = None) -> Path:
    """Writes a sparse file of float32 arrays, and a config.json."""
    write_sparse(path, {name: ("F32", shape) for name, shape in shapes.items()})
    if config is not None:
        (path.parent / "config.json").write_text(json.dumps(config))
    return path


def timm_shapes(positions: int, registers: int = 0, patch: int = 4) -> dict[str, tuple[int, ...]]:
    """A model of timm: a class token, registers, a number of positions and one block."""
    layers = {"norm1": (8,), "attn.qkv": (24, 8), "attn.proj": (8, 8)}
    layers |= {"norm2": (8,), "mlp.fc1": (16, 8), "mlp.fc2": (8, 16)}
    layers = {f"blocks.0.{name}": shape for name, shape in layers.items()}
    layers |= {"norm": (8,), "patch_embed.proj": (8, 3, patch, patch)}
    shapes = {"cls_token": (1, 1, 8), "pos_embed": (1, positions, 8)}
    shapes |= {"reg_token": (1, registers, 8)} if registers else {}
    for name, shape in layers.items():
        shapes |= {f"{name}.weight": shape, f"{name}.bias": shape[:1]}
    return shapes


def refused(source, *words, error=CheckpointError, ask=keras_vit.info, most=2500, **fields) -> str:
    """The message of a refusal, which has all the words, names the source, and is short."""
    with pytest.raises(error) as caught:
        ask(source, **fields)
    message = str(caught.value)
    text = message.replace(f"{source}: ", "")
    assert [word for word in words if word not in text] == [], message
    assert len(message) < most, message
    if error is CheckpointError:
        assert str(source) in message
    return message


def assert_comes_back(source: Path, folder: Path, model: Any) -> None:
    """`save` and `convert` write one file, with the bits that were read; both libraries are alike.

    Arrays that the class does not read are left out, or have other values; the last norm of timm
    may have another name.
    """
    info, file = keras_vit.info(source), "model.safetensors"
    checkpoints.save(model, folder / "saved", info.family)
    keras_vit.convert(source, folder / "x", info.family)
    assert filecmp.cmp(folder / "saved" / file, folder / "x" / file, shallow=False)
    theirs, ours = (
        Counter(array.tobytes() for name, array in stored(path / file).items() if name not in left)
        for path, left in ((source, info.ignored), (folder / "x", ()))
    )
    again = keras_vit.info(folder / "x")
    assert not theirs - ours
    assert ours.total() == theirs.total() + sum(name in info.ignored for name in again.shapes)
    assert again.config == info.config
    # `verify` compares one vector for each image, of images of one size.
    if model.config.pool.kind != "unpooled" and not model.config.stem.is_packed:
        assert keras_vit.verify(folder / "x").passed
