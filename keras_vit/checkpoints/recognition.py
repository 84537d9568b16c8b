"""Recognises the dialect and the prefix of a file from the names of its arrays."""

import collections
import dataclasses
import functools
import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from keras_vit.checkpoints import inference
from keras_vit.checkpoints.dialects import DIALECTS, Statement, dialects_named
from keras_vit.checkpoints.dialects.base import Dialect, StoredAs
from keras_vit.checkpoints.dialects.json_fields import Json
from keras_vit.checkpoints.dialects.transformers.processor import RELEASE
from keras_vit.checkpoints.opening import OpenSource
from keras_vit.checkpoints.translate import Shape
from keras_vit.config.weights import axes, lexicon, templates
from keras_vit.errors import CheckpointError, listed, shown

Bindings = dict[str, str]


@dataclasses.dataclass(frozen=True)
class Recognition:
    """The interpretation of a file's names and shapes in one dialect.

    Args:
        dialect: the dialect.
        prefix: prefix of the dialect's names in the file.
        fields: fields of `ViTConfig` that names and shapes imply (`inference.fields_from`).
        bindings: path template of the lexicon -> the values of its placeholders in the file.
        ignored: names of arrays that are no weights of the model, and the reason for each.
        names: names that the dialect explains, without those that are ignored.
    """

    dialect: Dialect
    prefix: str
    fields: dict[str, Any]
    bindings: dict[str, list[Bindings]]
    ignored: dict[str, str]
    names: frozenset[str]

    @property
    def claimed(self) -> int:
        """Number of names that the dialect explains."""
        return len(self.names)


@dataclasses.dataclass(frozen=True)
class Template:
    """One name template of one dialect.

    Args:
        dialect: index of the dialect among the candidates.
        path: path of the weight in the lexicon.
        stored: name and axes of the array.
        match: function that returns the placeholder values of a name, or None if the name does
            not match.
    """

    dialect: int
    path: str
    stored: StoredAs
    match: Callable[[str], Bindings | None]


@dataclasses.dataclass(frozen=True)
class Claim:
    """One name of a file, a template that matches it, and the prefix in front."""

    name: str
    template: Template
    prefix: str
    binding: Bindings


def recognise_dialect(files: OpenSource, name: str | None = None) -> Recognition:
    """Returns the dialect of a file, which the arrays decide; the JSON narrows the choice.

    The dialects are tried in three groups: the class that the JSON names, the family that it
    names, and the libraries about which it states nothing. The last group reads a folder whose
    JSON belongs to another file of the same repository.

    Args:
        files: the open source.
        name: name of the dialect to read the file as; None for any.

    Raises:
        CheckpointError: the JSON names a family that keras_vit does not read, or the arrays
            do not belong to a Vision Transformer.
    """
    shapes = files.reader.shapes
    dialects = dialects_named(name) if name else tuple(DIALECTS.values())
    answers = {dialect: dialect.is_named_by(files.json) for dialect in dialects}
    named = [dialect for dialect in dialects if answers[dialect]]
    exact = [d for d in named if d.identity is not None and d.identity.names_class(files.json)]
    silent = [dialect for dialect in dialects if answers[dialect] is None]
    others = [dialect for dialect in silent if name or not dialect.only_named]
    if not named and len(silent) < len(dialects):
        others = [dialect for dialect in others if dialect.has_json_of_its_own(files.json)]
    for group, are_named in ((exact, True), (named, True), (others, False)):
        recognition = recognise(shapes, group, are_named=are_named) if group else None
        if recognition is not None:
            return recognition
    for dialect in named:
        read_statement(files, dialect)  # refuses a part that keras_vit lacks by its name
    raise CheckpointError(_describe(files, dialects, tuple(named or others or dialects)))


def find_tower_json(files: Json, dialects: Sequence[Dialect]) -> Json:
    """Returns the JSON files with that of the vision tower in place of a whole model's config.json.

    transformers nests the tower's own object in that of LLaVA, PaliGemma or Depth Anything, as
    `vision_config` or `backbone_config`; `model_type` of the object names its family. The release,
    and the width of a projection of the whole model, stand at the top. Files that name a family
    and no backbone, and files without such an object, are returned as they are.

    Args:
        files: the JSON objects, by file name.
        dialects: the dialects that may be named.
    """
    config = files.get("config.json")
    if not isinstance(config, Mapping):
        return files
    backbone = config.get("backbone_config")  # takes the place of a named family's own encoder
    if not isinstance(backbone, Mapping) and any(d.is_named_by(files) for d in dialects):
        return files
    of_whole = {key: config[key] for key in (RELEASE, "projection_dim") if key in config}
    for part in itertools.islice(_parts_with_a_type(config, _DEEPEST_TOWER), _MOST_PARTS):
        inner = {**files, "config.json": {**part, **of_whole}}
        if any(dialect.is_named_by(inner) for dialect in dialects):
            return inner
    return files


_DEEPEST_TOWER = 4
"""Most objects around that of a tower; ColPali has two."""
_MOST_PARTS = 50
"""Most parts of a whole model that are looked at; Gemma 3 has two."""


def _parts_with_a_type(content: Json, levels: int) -> Iterator[Json]:
    """Yields the objects in an object that have a `model_type`, down to a number of levels."""
    for value in content.values():
        if isinstance(value, Mapping):
            if "model_type" in value:
                yield value
            if levels > 1:
                yield from _parts_with_a_type(value, levels - 1)


def read_statement(
    files: OpenSource, dialect: Dialect, arrays: Mapping[str, Any] = MappingProxyType({})
) -> Statement:
    """Returns the facts that the JSON files state in the words of a dialect.

    Args:
        files: the open source.
        dialect: the dialect.
        arrays: fields that the arrays show, for what the files leave out.

    Raises:
        CheckpointError: a value is invalid, or names a part that keras_vit lacks.
    """
    try:
        return dialect.read_json(files.json, arrays)
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        where = files.reader.path
        reason = str(error).removesuffix(".")
        raise CheckpointError(f"{where}: a JSON file beside the weights: {reason}.") from error


def _describe(files: OpenSource, dialects: Sequence[Dialect], tried: tuple[Dialect, ...]) -> str:
    """Returns the refusal of a file: its family and its names, and the nearest of the families.

    Args:
        files: the open source.
        dialects: the families that the JSON may name.
        tried: the families whose names were looked up.
    """
    shapes = files.reader.shapes
    found: dict[tuple[Dialect, str], dict[str, str]] = collections.defaultdict(dict)
    for claim in _claims(shapes, tried):
        dialect = tried[claim.template.dialect]
        if claim.prefix in dialect.prefixes:
            found[dialect, claim.prefix][claim.name] = claim.template.path
    families = listed([dialect.name for dialect in tried], 3)
    reason = _foreign_family(files.json, dialects) or (
        f"no Vision Transformer in any of the families {families}"
    )
    lines = [f"{files.reader.path}: {reason}."]
    nearest = sorted(found.items(), key=lambda item: (-len(item[1]), len(item[0][1])))[:3]
    for (dialect, prefix), paths in nearest:
        lacking = [
            stored[0].name
            for path in _CORE
            if (stored := dialect.all_names(path)) and path not in paths.values()
        ]
        where = f" below {shown(prefix, 40)}" if prefix else ""
        lacks = f", lacks {listed(lacking, 2)}" if lacking else ""
        lines.append(f"{dialect.name}: {len(paths):,} of {len(shapes):,} names{where}{lacks}.")
    some = listed((shown(name, 60, quoted=False) for name in shapes), 4)
    lines.append(f"Arrays of the file: {some}.")
    if nearest:
        lines.append("read={'family': ...} reads it as one of them, and names each difference.")
    return "\n  ".join(lines)


def _foreign_family(files: Json, dialects: Sequence[Dialect]) -> str:
    """Returns the family that the JSON names and keras_vit does not read, in words, or ""."""
    if any(dialect.is_named_by(files) for dialect in dialects):
        return ""
    identities = [dialect.identity for dialect in dialects if dialect.identity]
    for where in identities:
        if (value := where.value(files)) is not None:
            expected = dict.fromkeys(i.expected for i in identities if i.key == where.key)
            classes = files["config.json"].get("architectures")
            model = f"; the model is a {listed(classes, 2)}" if isinstance(classes, list) else ""
            return (
                f"config.json has {where.key}={shown(value)}, expected {listed(expected, 8)}{model}"
            )
    return ""


_CORE = (
    "patch_embedding/kernel",
    "position_embedding/embedding",
    "block_{l}/attention/{qkv}/kernel",
    "block_{l}/mlp/dense_0/kernel",
)
"""The weights that a message names where a file lacks them."""


def recognise(
    shapes: Mapping[str, Shape], dialects: Sequence[Dialect], *, are_named: bool = False
) -> Recognition | None:
    """Returns the dialect and prefix with the most matching names; None for a file without a ViT.

    The classes of a family that the JSON names differ in the parts that they leave out. Of their
    dialects, the one with the fewest unexplained arrays is chosen, then the one that reads most.

    Two dialects may match equally many names, for example in a file without position
    embeddings. The dialect whose conventions agree with the arrays is then chosen; of several, the
    one that ignores the most of the other arrays. All dialects look up a name together.
    """
    own: dict[tuple[int, str], list[Claim]] = collections.defaultdict(list)
    for claim in _claims(shapes, tuple(dialects)):
        template = claim.template
        for prefix in dialects[template.dialect].prefixes:
            if claim.prefix == prefix or template.stored.outside:
                own[template.dialect, prefix].append(claim)
    counts = {key: len({claim.name for claim in claims}) for key, claims in own.items()}
    most = max(counts.values(), default=0)
    tied = sorted(key for key, count in counts.items() if are_named or count == most)
    if not tied:
        return None
    candidates = [
        _read(shapes, dialects[number], prefix, own[number, prefix]) for number, prefix in tied
    ]
    best = max(
        candidates,
        key=lambda r: (
            are_named and (r.claimed + len(r.ignored), r.claimed),
            all(r.fields.get(k, value) == value for k, value in r.dialect.conventions.items()),
            len(r.ignored),
            -len(r.prefix),
        ),
    )
    # Where the sides of a patch are one axis of a matrix, the JSON tells them.
    has_patches = "patch_size" in best.fields or "patch_embedding/kernel" in best.bindings
    has_patches = has_patches and best.fields["num_layers"] > 0
    return best if has_patches else None


def _read(
    shapes: Mapping[str, Shape], dialect: Dialect, prefix: str, claims: Sequence[Claim]
) -> Recognition:
    """Returns the interpretation of the arrays in one dialect with one prefix."""
    ignored = _ignored(shapes, dialect)
    votes: dict[str, collections.Counter[int]] = collections.defaultdict(collections.Counter)
    bindings: dict[str, list[Bindings]] = collections.defaultdict(list)
    fields: dict[str, Any] = {}
    read: set[str] = set(ignored)
    for claim in claims:
        if claim.name in read:
            continue
        read.add(claim.name)
        path = claim.template.path
        bindings[path].append(claim.binding)
        fields |= claim.template.stored.implies
        for symbol, size in _sizes(claim.template, shapes[claim.name]).items():
            # The root's width is no other layer's; nor need the pooling's MLP have the blocks'.
            local = path.startswith(f"{_LOCAL.get(symbol, symbol)}/")
            votes[f"{_LOCAL[symbol]} {symbol}" if local else symbol][size] += 1
    fields = {**inference.fields_from(votes, bindings), **fields}
    names = frozenset(read.difference(ignored))
    return Recognition(dialect, prefix, fields, dict(bindings), ignored, names)


def _ignored(shapes: Mapping[str, Shape], dialect: Dialect) -> dict[str, str]:
    """Returns the names of arrays that are no weights, and the reason for each."""
    ignored = {name: "an array without numbers" for name, shape in shapes.items() if 0 in shape}
    for pattern, reason in dialect.ignored.items():
        match = re.compile(pattern).fullmatch
        ignored |= {name: reason for name in shapes if match(name)}
    return ignored


def _sizes(template: Template, shape: Shape) -> dict[str, int]:
    accepted = (template.stored.axes or _AXES[template.path], *template.stored.also)
    return next(filter(None, (axes.solve(a, shape) for a in accepted)), {})


_LOCAL = {"w": "root", "f": "pool"}
"""Axis -> the part of the model in which it has a size of its own."""

_AXES = {word.path: word.axes for word in lexicon.LEXICON}

Index = dict[str, list[Template]]


def _claims(names: Iterable[str], dialects: tuple[Dialect, ...]) -> Iterator[Claim]:
    """Yields every match of a name and a template, in the order of the names."""
    index, prefixes = _index(dialects)
    for name in names:
        skeleton = re.sub(r"\d+", "#", name)
        for prefix in prefixes:
            # A prefix has no digits, so it has the same length in name and skeleton.
            rest = skeleton[len(prefix) :]
            if rest not in index or not name.startswith(prefix):
                continue
            for template in index[rest]:
                binding = template.match(name[len(prefix) :])
                if binding is not None and not (template.stored.outside and prefix):
                    yield Claim(name, template, prefix, binding)


@functools.cache
def _skeletons(template: str) -> tuple[str, ...]:
    """Returns the names that a template can make, each number as `#`."""
    names = templates.examples(template)
    return tuple(dict.fromkeys(re.sub(r"\d+", "#", name) for name in names))


@functools.lru_cache(maxsize=32)
def _index(dialects: tuple[Dialect, ...]) -> tuple[Index, tuple[str, ...]]:
    """Returns templates by the skeletons of their names (`#` is a number), and all prefixes."""
    index: Index = {}
    for number, dialect in enumerate(dialects):
        for word in lexicon.LEXICON:
            for stored in dialect.all_names(word.path):
                template = Template(number, word.path, stored, templates.matcher(stored.name))
                for skeleton in _skeletons(stored.name):
                    index.setdefault(skeleton, []).append(template)
    prefixes = {prefix for dialect in dialects for prefix in dialect.prefixes} | {""}
    return index, tuple(sorted(prefixes))
