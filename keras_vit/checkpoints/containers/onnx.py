"""ONNX: the arrays of an exported network, under the names that they had in torch.

An exporter keeps the names of biases, norms and tables. It transposes the weight of a product and
calls it `onnx::MatMul_123` or `val_28`; the bias that is added behind the product, or the name of
the node, tells which weight it is. Protobuf's encoding is read here, within the bounds of the file:
the package onnx would copy every array into memory, and reads data of any other file.
"""

import dataclasses
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

import ml_dtypes
import numpy as np

from keras_vit.checkpoints.containers.reading import FileReader, MappedFile
from keras_vit.errors import CheckpointError, shown
from keras_vit.support.files import open_plain
from keras_vit.support.limits import ARRAYS
from keras_vit.support.text import log

_FLOATS = {
    1: np.dtype("float32"),
    10: np.dtype("float16"),
    11: np.dtype("float64"),
    16: np.dtype(ml_dtypes.bfloat16),
}
"""Numbers that stand for a type in ONNX."""
_QUANTISED = {2, 3, *range(17, 24)}
"""Integers and floats of 8 bits or fewer."""
_NODES_PER_ARRAY = 10
"""Most nodes of a graph, for each array that a file may have."""
_UNNAMED = re.compile(r"onnx::\w+|val_\d+|\d+|/.*|embedding")
"""Names that exporters invent."""
_POSITIONS = {
    "patch_embeddings.projection.weight": ("position_embeddings", 3),
    "patch_embed.proj.weight": ("pos_embed", 3),
    "patch_embedding.weight": ("position_embedding.weight", 2),
    "conv1.weight": ("positional_embedding", 2),
}
"""Name of the projection of patches -> name and number of axes of the positions beside it."""
_SAME = ("Cast", "Identity", "Reshape", "Resize", "Transpose")
"""Operations on positions that are resized in the graph."""

_Message = Mapping[int, list[Any]]


@dataclasses.dataclass(frozen=True)
class _Tensor:
    """Numbers of a file: the mapped file, their place in it, type and shape."""

    file: MappedFile
    place: slice
    dtype: np.dtype
    shape: tuple[int, ...]


@dataclasses.dataclass(frozen=True)
class _Node:
    """An operation: its kind, the module of the network that it is in, inputs and outputs."""

    kind: str
    module: str
    inputs: list[str]
    outputs: list[str]
    numbers: Mapping[str, Any]


class OnnxReader(FileReader):
    """An open ONNX file.

    Args:
        path: path of the file, for messages, and beside which its external data lie.
        file: the open file; the reader closes it.
        beside: open files of external data, by their names.
    """

    format = "ONNX"

    def __init__(self, path: Path, file: IO[bytes], beside: Mapping[str, IO[bytes]]) -> None:
        super().__init__(path, file)
        self._mapped = MappedFile(file)
        self._beside = dict(beside)
        self._opened: dict[str, MappedFile] = {}
        self._parts: dict[str, list[_Tensor]] = {}
        self._axes: dict[str, tuple[int, ...] | None] = {}
        with self.damage():
            (graph,) = self._message(slice(0, self.size))[7]
            graph = self._message(graph)
            self._tensors = {n: t for n, t in map(self._tensor, graph.get(5, ())) if t is not None}
            if len(graph.get(1, ())) > _NODES_PER_ARRAY * ARRAYS.value:
                raise ValueError(f"its graph has {len(graph[1]):,} nodes")
            self._name_all([self._node(place) for place in graph.get(1, ())])
        if any(dtype == np.float16 for dtype in self.dtypes.values()):
            log.warning("%s: its weights were rounded to float16; they are widened.", path)

    def _message(self, place: slice) -> _Message:
        """Returns the fields of a message by number: integers, and the places of bytes."""
        fields: dict[int, list[Any]] = defaultdict(list)
        for number, value in self._fields(place):
            fields[number].append(value)
        return fields

    def _fields(self, place: slice) -> Iterator[tuple[int, int | slice]]:
        at = place.start
        while at < place.stop:
            key, at = self._varint(at)
            number, wire = key >> 3, key & 7
            if wire == 0:
                value, at = self._varint(at)
                yield number, value
                continue
            if wire == 2:
                size, at = self._varint(at)
            else:
                size = {1: 8, 5: 4}[wire]
            if at + size > place.stop:
                raise ValueError(f"a field of {size:,} bytes, {place.stop - at:,} are left")
            yield number, slice(at, at + size)
            at += size

    def _varint(self, at: int) -> tuple[int, int]:
        value = 0
        for shift in range(0, 70, 7):
            byte = self._mapped.bytes[at]
            at += 1
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                return value, at
        raise ValueError("a number of more than ten bytes")

    def _text(self, place: slice) -> str:
        return str(self._mapped.bytes[place], "utf-8")

    def _tensor(self, place: slice) -> tuple[str, _Tensor | None]:
        """Returns name and numbers of a tensor; None in place of numbers that are no floats."""
        fields = self._message(place)
        name = self._text(fields[8][0]) if fields[8] else ""
        self.at = name
        shape: list[int] = []
        for axis in fields[1]:
            if isinstance(axis, slice):  # several numbers in one field
                at = axis.start
                while at < axis.stop:
                    number, at = self._varint(at)
                    shape.append(number)
            else:
                shape.append(axis)
        kind = fields[2][-1] if fields[2] else 0
        if kind in _QUANTISED and len(shape) > 1:
            raise CheckpointError(
                f"{self.path}: array {shown(name)} is quantised to 8 bits or fewer, which changes "
                "the outputs. Load the file of the network before that, such as onnx/model.onnx."
            )
        if kind not in _FLOATS:
            return name, None
        file, data = self._mapped, (fields[9] or fields[4] or fields[10] or [slice(0, 0)])[0]
        if fields[13]:
            entries = [self._message(entry) for entry in fields[13]]
            words = {self._text(e[1][0]): self._text(e[2][0]) for e in entries}
            file, start = self._external(words["location"]), int(words.get("offset", 0))
            data = slice(start, start + int(words.get("length", len(file.bytes) - start)))
        tensor = _Tensor(file, data, _FLOATS[kind], tuple(shape))
        self._check(tensor)
        self.at = None
        return name, tensor

    def _check(self, tensor: _Tensor) -> None:
        place, needed = tensor.place, math.prod(tensor.shape) * tensor.dtype.itemsize
        if place.stop - place.start != needed or not 0 <= place.start <= place.stop <= len(
            tensor.file.bytes
        ):
            raise ValueError(
                f"its shape {tensor.shape} of {tensor.dtype} needs {needed} bytes, and its place "
                f"is {place.start} to {place.stop} of {len(tensor.file.bytes)}"
            )

    def _external(self, location: str) -> MappedFile:
        """Returns a file of external data, which must lie beside this one."""
        if location not in self._opened:
            if Path(location).name != location or "\\" in location or location.startswith("."):
                raise CheckpointError(
                    f"{self.path}: its numbers are in {shown(location)}; expected the plain name "
                    "of a file beside it."
                )
            try:
                file = self._beside.get(location) or open_plain(self.path.parent / location)
            except OSError as error:
                raise CheckpointError(
                    f"{self.path}: its numbers are in {shown(location)}, which cannot be opened "
                    f"beside it ({error.strerror}). Copy both files, or name their folder."
                ) from error
            self._beside[location] = file
            self._opened[location] = mapped = MappedFile(file)
            self.most += len(mapped.bytes)
        return self._opened[location]

    def _node(self, place: slice) -> _Node:
        fields = self._message(place)
        module = self._text(fields[3][0]).rpartition("/")[0] if fields[3] else ""
        # Sequential of torch repeats its name in front of its parts: /blocks/blocks.0/attn.
        parts = module.strip("/").split("/")
        pairs = zip(parts, [*parts[1:], ""], strict=True)
        module = ".".join(part for part, after in pairs if not after.startswith(f"{part}."))
        for entry in map(self._message, fields[9]):
            if self._text(entry[1][0]) == "pkg.torch.onnx.name_scopes":
                module = re.findall("'([^']*)'", self._text(entry[2][0]))[-2]
        numbers = {}
        for attribute in map(self._message, fields[5]):
            if value := attribute[3] or attribute[2]:
                number = value[0]
                if isinstance(number, slice):
                    number = float(np.frombuffer(self._mapped.bytes[number], "<f4")[0])
                numbers[self._text(attribute[1][0])] = number
        inputs, outputs = ([self._text(value) for value in fields[k]] for k in (1, 2))
        kind = self._text(fields[4][0]) if fields[4] else ""
        return _Node(kind, module, inputs, outputs, numbers)

    def _name_all(self, nodes: list[_Node]) -> None:
        """Finds names and axes of all arrays."""
        for node in nodes:  # one array for two equal parameters
            if node.kind == "Identity" and node.inputs[0] in self._tensors:
                self._tensors[node.outputs[0]] = self._tensors[node.inputs[0]]
        for name, tensor in self._tensors.items():
            if not _UNNAMED.fullmatch(name):
                self._add(name, [tensor])
        biases: dict[str, str] = {}
        for node in nodes:
            if node.kind == "Add":
                for value, other in (node.inputs, node.inputs[::-1]):
                    biases[value] = other if other.endswith("bias") else biases.get(value, "")
        for node in nodes:
            if node.kind in ("MatMul", "Gemm", "Conv") and len(node.inputs) > 1:
                self._add_weight(node, biases)
        self._add_positions(nodes)

    def _add_weight(self, node: _Node, biases: Mapping[str, str]) -> None:
        """Names the weight of a product by the bias behind it, or by the module of the node."""
        weight = node.inputs[1]
        tensor = self._tensors.get(weight)
        if tensor is None or weight in self.shapes:
            return
        bias = node.inputs[2] if len(node.inputs) > 2 else biases.get(node.outputs[0], "")
        known = self._tensors.get(bias)
        is_bias = known is not None and bias.endswith("bias") and len(known.shape) == 1
        name = re.sub("bias$", "weight", bias) if is_bias else f"{node.module}.weight"
        is_transposed = node.kind == "MatMul" or not (
            node.kind == "Conv" or node.numbers.get("transB")
        )
        scales = [node.numbers.get(word, 1) for word in ("alpha", "beta")]
        if name not in self.shapes and scales == [1, 1]:
            self._add(name, [tensor], (1, 0) if is_transposed else None)

    def _add_positions(self, nodes: list[_Node]) -> None:
        """Names the positions, which an exporter may have cut into class token and patches."""
        found = [(n, end) for n in self.shapes for end in _POSITIONS if f".{n}".endswith(f".{end}")]
        if len(found) != 1:
            return
        ((patches, end),) = found
        name, num_axes = _POSITIONS[end]
        name, width = patches.removesuffix(end) + name, self.shapes[patches][0]
        made = {node.outputs[0]: node for node in nodes if node.kind in (*_SAME, "Concat")}
        parts: dict[str, list[_Tensor]] = {}

        def parts_of(value: str) -> list[_Tensor]:
            if value not in parts:
                parts[value] = []  # also ends a circle
                if value in self._tensors and value not in self.shapes:
                    parts[value] = [self._tensors[value]]
                elif value in made:
                    node = made[value]
                    inputs = node.inputs if node.kind == "Concat" else node.inputs[:1]
                    parts[value] = [part for v in inputs for part in parts_of(v)][:3]
            return parts[value]

        for node in nodes if name not in self.shapes else ():
            for value in node.inputs if node.kind == "Add" else ():
                tensors = parts_of(value)
                shapes = [tensor.shape for tensor in tensors]
                if tensors and all(len(s) == 3 and s[::2] == (1, width) for s in shapes):
                    return self._add(name, tensors, num_axes=num_axes)

    def _add(
        self,
        name: str,
        tensors: list[_Tensor],
        axes: tuple[int, ...] | None = None,
        num_axes: int = 0,
    ) -> None:
        """Notes an array: tensors joined by rows, with another order or number of axes."""
        shape = tensors[0].shape
        if num_axes:
            rows = sum(tensor.shape[1] for tensor in tensors)
            shape = (1, rows, shape[2])[3 - num_axes :]
        elif axes:
            shape = tuple(shape[axis] for axis in axes)
        self.note(name, shape, tensors[0].dtype)
        self._parts[name], self._axes[name] = tensors, axes

    def read(self, name: str) -> np.ndarray:
        arrays = [
            np.ndarray(t.shape, t.dtype, t.file.read(t.place.start, t.place.stop))
            for t in self._parts[name]
        ]
        array = arrays[0] if len(arrays) == 1 else np.concatenate(arrays, axis=1)
        if (axes := self._axes[name]) is not None:
            return array.transpose(axes)
        return array.reshape(self.shapes[name])

    def close(self) -> None:
        for location in self._opened:
            self._beside[location].close()
        super().close()
