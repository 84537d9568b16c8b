"""Our weights, each stated once: path, axes, and when a model has it.

A path is where the weight lives in a `VisionTransformer`; a placeholder in braces
stands for every value that the configuration gives it. Axes are named so that a
dialect can say how its own differ.
"""

import dataclasses
import itertools
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from keras_vit.checkpoints.axes import shape_of
from keras_vit.config import ViTConfig

AXIS_NAMES = {
    "p": "patch rows",
    "q": "patch columns",
    "c": "channels into the patches",
    "m": "hidden_size",
    "n": "positions",
    "h": "num_heads",
    "d": "head_dim",
    "f": "mlp_dim",
    "r": "representation_size",
    "e": "features into the head",
    "k": "num_classes",
    "y": "kernel rows",
    "x": "kernel columns",
    "i": "image channels",
    "a": "channels in",
    "w": "channels",
    "v": "channels out",
    "o": "channels out",
}


@dataclasses.dataclass(frozen=True)
class Word:
    """One kind of weight.

    Args:
        path: template of its place in a model.
        axes: of the array.
        held_by: which models have it: the name of a field or property of `ViTConfig` that
            is truthy for them, or a condition. `""` stands for every model.
    """

    path: str
    axes: str
    held_by: str | Callable[[ViTConfig], bool] = ""

    def is_held_by(self, config: ViTConfig) -> bool:
        """Whether a model has this weight."""
        if callable(self.held_by):
            return self.held_by(config)
        return not self.held_by or bool(getattr(config, self.held_by))


@dataclasses.dataclass(frozen=True)
class Weight:
    """One weight of one model: a word with its placeholders filled and its axes sized."""

    word: Word
    binding: dict[str, str]
    sizes: dict[str, int]

    @property
    def path(self) -> str:
        return filled(self.word.path, self.binding)

    @property
    def shape(self) -> tuple[int, ...]:
        return shape_of(self.word.axes, self.sizes)


def _learned(config: ViTConfig) -> bool:
    return config.position == "learned"


def _map(config: ViTConfig) -> bool:
    return config.classifier == "map"


_UNIT = "stage{s}_unit{u}"

LEXICON: tuple[Word, ...] = (
    # stem of a hybrid
    Word("root/conv/kernel", "y x i w", "resnet"),
    Word("root/norm/gamma", "w", "resnet"),
    Word("root/norm/beta", "w", "resnet"),
    Word(_UNIT + "/conv_proj/kernel", "y x a o", "resnet"),
    Word(_UNIT + "/norm_proj/gamma", "o", "resnet"),
    Word(_UNIT + "/norm_proj/beta", "o", "resnet"),
    Word(_UNIT + "/conv1/kernel", "y x a w", "resnet"),
    Word(_UNIT + "/norm1/gamma", "w", "resnet"),
    Word(_UNIT + "/norm1/beta", "w", "resnet"),
    Word(_UNIT + "/conv2/kernel", "y x w v", "resnet"),
    Word(_UNIT + "/norm2/gamma", "w", "resnet"),
    Word(_UNIT + "/norm2/beta", "w", "resnet"),
    Word(_UNIT + "/conv3/kernel", "y x w o", "resnet"),
    Word(_UNIT + "/norm3/gamma", "o", "resnet"),
    Word(_UNIT + "/norm3/beta", "o", "resnet"),
    # Eq. 1
    Word("patch_embedding/kernel", "p q c m"),
    Word("patch_embedding/bias", "m"),
    Word("class_token/token", "1 1 m", "has_class_token"),
    Word("position_embedding/embedding", "1 n m", _learned),
    # Eqs. 2 and 3
    Word("block_{l}/attention_norm/gamma", "m"),
    Word("block_{l}/attention_norm/beta", "m"),
    Word("block_{l}/attention/{qkv}/kernel", "m h d"),
    Word("block_{l}/attention/{qkv}/bias", "h d", "qkv_bias"),
    Word("block_{l}/attention/out/kernel", "h d m"),
    Word("block_{l}/attention/out/bias", "m"),
    Word("block_{l}/mlp_norm/gamma", "m"),
    Word("block_{l}/mlp_norm/beta", "m"),
    Word("block_{l}/mlp/dense_0/kernel", "m f"),
    Word("block_{l}/mlp/dense_0/bias", "f"),
    Word("block_{l}/mlp/dense_1/kernel", "f m"),
    Word("block_{l}/mlp/dense_1/bias", "m"),
    # Eq. 4
    Word("encoder_norm/gamma", "m"),
    Word("encoder_norm/beta", "m"),
    Word("pool/probe", "1 1 m", _map),
    Word("pool/attention/query/kernel", "m h d", _map),
    Word("pool/attention/query/bias", "h d", _map),
    Word("pool/attention/{kv}/kernel", "m h d", _map),
    Word("pool/attention/{kv}/bias", "h d", _map),
    Word("pool/attention/out/kernel", "h d m", _map),
    Word("pool/attention/out/bias", "m", _map),
    Word("pool/norm/gamma", "m", _map),
    Word("pool/norm/beta", "m", _map),
    Word("pool/mlp/dense_0/kernel", "m f", _map),
    Word("pool/mlp/dense_0/bias", "f", _map),
    Word("pool/mlp/dense_1/kernel", "f m", _map),
    Word("pool/mlp/dense_1/bias", "m", _map),
    # the head
    Word("pre_logits/kernel", "m r", "representation_size"),
    Word("pre_logits/bias", "r", "representation_size"),
    Word("head/kernel", "e k", "num_classes"),
    Word("head/bias", "k", "num_classes"),
)

_NUMBER = r"0|[1-9]\d{0,8}"


@dataclasses.dataclass(frozen=True)
class Placeholder:
    """What a placeholder stands for.

    Args:
        pattern: regular expression of its values.
        values: those that a model has, in order; None where they depend on another
            placeholder.
    """

    pattern: str
    values: Callable[[ViTConfig], list[str]] | None = None


PLACEHOLDERS = {
    "l": Placeholder(_NUMBER, lambda config: [str(i) for i in range(config.num_layers)]),
    "s": Placeholder(_NUMBER),
    "u": Placeholder(_NUMBER),
    "qkv": Placeholder("query|key|value", lambda config: ["query", "key", "value"]),
    "kv": Placeholder("key|value", lambda config: ["key", "value"]),
}


@dataclasses.dataclass(frozen=True)
class Spelling:
    """Another way to write the value of a placeholder in a name.

    Args:
        of: the placeholder.
        pattern: regular expression of what is written.
        write, read: from our value to theirs, and back.
    """

    of: str
    pattern: str
    write: Callable[[str], str]
    read: Callable[[str], str]


SPELLINGS = {
    "s-1": Spelling("s", _NUMBER, lambda v: str(int(v) - 1), lambda t: str(int(t) + 1)),
    "u-1": Spelling("u", _NUMBER, lambda v: str(int(v) - 1), lambda t: str(int(t) + 1)),
    "_l": Spelling(
        "l", r"(?:_[1-9]\d{0,8})?", lambda v: "" if v == "0" else f"_{v}", lambda t: t[1:] or "0"
    ),
}
"""Stages and units counted from zero; Keras's suffix, which the first of a kind goes without."""


def placeholders(template: str) -> list[str]:
    """Returns the names in braces, in order."""
    names = re.findall(r"{([\w-]+)}", template)
    return [SPELLINGS[name].of if name in SPELLINGS else name for name in names]


def filled(template: str, binding: Mapping[str, str]) -> str:
    """Returns the template with the placeholders of the binding filled, others left standing."""

    def value(match: re.Match[str]) -> str:
        name = match[1]
        spelling = SPELLINGS.get(name)
        known = spelling.of if spelling else name
        if known not in binding:
            return match[0]
        return spelling.write(binding[known]) if spelling else binding[known]

    return re.sub(r"{([\w-]+)}", value, template)


def matcher(template: str) -> Callable[[str], dict[str, str] | None]:
    """Returns a function from a name to the placeholder values that make it, or None."""
    parts = re.split(r"{([\w-]+)}", template)
    names = parts[1::2]
    patterns = [SPELLINGS[n].pattern if n in SPELLINGS else PLACEHOLDERS[n].pattern for n in names]
    expression = re.escape(parts[0])
    for pattern, literal in zip(patterns, parts[2::2], strict=True):
        expression += f"({pattern}){re.escape(literal)}"
    compiled = re.compile(expression)

    def match(name: str) -> dict[str, str] | None:
        found = compiled.fullmatch(name)
        if found is None:
            return None
        return {
            (SPELLINGS[n].of if n in SPELLINGS else n): (
                SPELLINGS[n].read(text) if n in SPELLINGS else text
            )
            for n, text in zip(names, found.groups(), strict=True)
        }

    return match


def examples(template: str) -> Iterator[str]:
    """Yields names of a template, among them one of every form: with each word of a choice,
    and with and without what may be absent."""
    values = {"l": ("0", "1"), "s": ("1",), "u": ("1",)}
    names = list(dict.fromkeys(placeholders(template)))
    choices = [values.get(name) or PLACEHOLDERS[name].pattern.split("|") for name in names]
    for chosen in itertools.product(*choices):
        yield filled(template, dict(zip(names, chosen, strict=True)))


def values_of(placeholder: str, config: ViTConfig) -> list[str]:
    """Returns the values of a placeholder that does not depend on another."""
    values = PLACEHOLDERS[placeholder].values
    if values is None:
        raise KeyError(placeholder)
    return values(config)


def weights(config: ViTConfig) -> Iterator[Weight]:
    """Yields every weight of the model that a configuration describes."""
    sizes = _sizes(config)
    for word in LEXICON:
        if not word.is_held_by(config):
            continue
        if word.path.startswith("root"):
            width = config.resnet.width  # type: ignore[union-attr]
            yield Weight(word, {}, {"y": 7, "x": 7, "i": config.channels, "w": width})
        elif word.path.startswith(_UNIT):
            yield from _unit_weights(word, config)
        else:
            names = placeholders(word.path)
            for values in itertools.product(*(values_of(name, config) for name in names)):
                yield Weight(word, dict(zip(names, values, strict=True)), sizes)


def _sizes(config: ViTConfig) -> dict[str, int]:
    return {
        "p": config.patch_size[0],
        "q": config.patch_size[1],
        "c": config.resnet.out_channels if config.resnet else config.channels,
        "m": config.hidden_size,
        "n": config.num_positions,
        "h": config.num_heads,
        "d": config.hidden_size // config.num_heads,
        "f": config.mlp_dim,
        "r": config.representation_size or 0,
        "e": config.representation_size or config.hidden_size,
        "k": config.num_classes,
    }


def _unit_weights(word: Word, config: ViTConfig) -> Iterator[Weight]:
    channels = config.resnet.width  # type: ignore[union-attr]
    for s, units in enumerate(config.resnet.num_layers, start=1):  # type: ignore[union-attr]
        width = config.resnet.width * 2 ** (s - 1)  # type: ignore[union-attr]
        for u in range(1, units + 1):
            kernel = 3 if "/conv2/" in word.path else 1
            sizes = {
                "y": kernel,
                "x": kernel,
                "a": channels,
                "w": width,
                "v": width,
                "o": 4 * width,
            }
            channels = 4 * width
            if u == 1 or "_proj/" not in word.path:  # only a stage's first unit projects
                yield Weight(word, {"s": str(s), "u": str(u)}, sizes)


@dataclasses.dataclass(frozen=True)
class Sign:
    """What a model is by the presence of a weight in its file.

    Args:
        path: of the weight, or the start of several.
        present: the fields of `ViTConfig` of a file that has it.
        absent: those of a file that has not.
    """

    path: str
    present: Mapping[str, Any]
    absent: Mapping[str, Any] = dataclasses.field(default_factory=dict)


SIGNS: tuple[Sign, ...] = (
    Sign(
        "class_token/token",
        {"classifier": "token", "class_token": True},
        {"classifier": "gap", "class_token": None},
    ),
    Sign("pool/", {"classifier": "map"}),
    Sign("position_embedding/embedding", {"position": "learned"}, {"position": "sincos2d"}),
    Sign("block_{l}/attention/{qkv}/bias", {"qkv_bias": True}, {"qkv_bias": False}),
    Sign("pre_logits/", {}, {"representation_size": None}),
    Sign("head/", {}, {"num_classes": 0}),
)
"""A later sign goes before an earlier one."""

SIZES = {
    "m": "hidden_size",
    "f": "mlp_dim",
    "h": "num_heads",
    "n": "num_positions",
    "r": "representation_size",
    "k": "num_classes",
    "c": "channels",
    "i": "channels",
}
"""An axis and the field that its size tells; a hybrid's `c` are channels of its stem."""


def fields_from(
    votes: Mapping[str, Counter[int]],
    found: Mapping[str, list[dict[str, str]]],
) -> dict[str, Any]:
    """Turns what a file's names and shapes tell into fields of `ViTConfig`.

    Args:
        votes: per axis symbol, how many arrays claim which size. The majority
            wins, so that one misshapen array is reported against the rest.
        found: per path template, the placeholder values that the file has.

    Returns:
        Fields; those that cannot be told are absent. `"num_positions"` stands for
        the image size, which positions alone do not tell.
    """
    size = {symbol: counts.most_common(1)[0][0] for symbol, counts in votes.items()}
    is_hybrid = "root/conv/kernel" in found or any(path.startswith(_UNIT) for path in found)
    fields: dict[str, Any] = {
        field: size[symbol]
        for symbol, field in SIZES.items()
        if symbol in size and not (is_hybrid and symbol == "c")
    }
    for sign in SIGNS:
        has = any(path.startswith(sign.path) for path in found)
        fields |= sign.present if has else sign.absent
    fields["num_layers"] = size.get("l") or _count(found)
    if "p" in size and "q" in size:
        fields["patch_size"] = (size["p"], size["q"])
    fields["resnet"] = None
    if is_hybrid:
        units = _units_per_stage(found)
        fields["resnet"] = {"num_layers": units, "width_factor": size.get("root w", 64) / 64}
        fields.setdefault("channels", 3)
    return fields


def numbers(found: Mapping[str, list[dict[str, str]]], placeholder: str) -> set[int]:
    """Returns the values of a numeric placeholder that the names of a file have."""
    bindings = (binding for bindings in found.values() for binding in bindings)
    return {int(binding[placeholder]) for binding in bindings if placeholder in binding}


def _count(found: Mapping[str, list[dict[str, str]]]) -> int:
    """The number of blocks, by the highest number in a name."""
    return max(numbers(found, "l"), default=-1) + 1


def _units_per_stage(found: Mapping[str, list[dict[str, str]]]) -> list[int]:
    units: dict[int, int] = {}
    for template, bindings in found.items():
        if template.startswith(_UNIT):
            for binding in bindings:
                s, u = int(binding["s"]), int(binding["u"])
                units[s] = max(u, units.get(s, 0))
    return [units.get(s, 1) for s in range(1, min(max(units, default=0), 99) + 1)]
