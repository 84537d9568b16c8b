"""Determines the configuration of a checkpoint from caller, JSON, arrays and constants."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from keras_vit.checkpoints import inference
from keras_vit.checkpoints.families import KERAS_VIT
from keras_vit.checkpoints.families.family import ARITHMETIC, Format, Stated, warn_of_protocol
from keras_vit.checkpoints.families.keys import Facts, Json
from keras_vit.checkpoints.match import Evidence, Match
from keras_vit.config import ViTConfig
from keras_vit.config.fields import flatten, known_fields, nest, part_of
from keras_vit.config.rules import pair
from keras_vit.config.variants import variant_named
from keras_vit.errors import CheckpointError, ConfigError, SourceError, nearest, shown
from keras_vit.images.protocols import ProtocolSpec, compact, complete
from keras_vit.models.building import Building, Reading
from keras_vit.presets.preset_config import PresetConfig
from keras_vit.support.text import log

_FREE = (
    *("image_size", "num_classes", "representation_size", "head", "tokens.mask", "stem.kind"),
    *("dropout_rate", "attention_dropout_rate", "stochastic_depth_rate", "block.layer_scale"),
    *("position_grid", "position_resize", "pool.blocks", "pool.norm", "dense"),
)
"""Fields, by path, that the caller may choose freely; all other fields must match the arrays."""

_NEEDED = ("patch_size", "hidden_size", "mlp_dim", "num_heads")
"""Sizes that every model needs."""

_PARTS = {own.name: part for own in dataclasses.fields(ViTConfig) if (part := part_of(own))}
_OPTIONAL_PARTS = {name: part for name, part in _PARTS.items() if getattr(ViTConfig, name) is None}
"""Optional parts, each of which is one fact; in all other parts, every field is a fact."""

_PREFIX = ("tokens.class_tokens", "tokens.distillation", "tokens.registers")


def resolve(
    match: Match, preset: PresetConfig | None, files: Json, caller: dict[str, Any]
) -> tuple[PresetConfig, tuple[str, ...]]:
    """Returns the configuration of a checkpoint, and the names of undetermined fields.

    The arrays of the file are compared with the result afterwards, which finds contradictions. If
    the caller gives a protocol, it replaces that of the files.

    Args:
        match: the arrays and their format.
        preset: the contents of config.json, if keras_vit wrote it.
        files: the JSON files.
        caller: the caller's arguments, by path.

    Raises:
        CheckpointError: a fact is missing or invalid, or the facts are invalid together.
        SourceError: the arrays belong to a preset whose config.json is missing.
    """
    format, path = match.format, match.reader.path
    caller.pop("patch_size", None)  # of the new model; the file's is inferred from its arrays
    if caller.get("variant"):
        caller = flatten_arguments(variant_named(caller["variant"]).fields) | caller
    _refuse_other_models(match, preset, caller)
    architecture = choose_architecture(caller)
    if preset is not None:
        config = preset.config.replace(**nest(architecture))
        return dataclasses.replace(preset, config=config), ()
    try:
        facts = state_facts(match.evidence, match.stated, architecture, files)
        _refuse_open(match, facts, caller)
        if missing := [name for name in _NEEDED if name not in facts]:
            raise ConfigError(
                f"{', '.join(missing)} cannot be inferred from the arrays; give it as an argument."
            )
        config, undetermined = inference.with_grid(facts, facts.pop("num_positions", None), caller)
        names = format.library.class_names(files, config.num_classes)
        protocol = _choose_protocol(format.library.images.read(files), format, config)
    except CheckpointError as error:  # the JSON describes another model
        raise CheckpointError(f"{path}: read as {format.name}: {error}.") from None
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        reason = str(error).removesuffix(".")
        raise CheckpointError(f"{path}: read as {format.name}: {reason}.") from error
    task = config.dense_task or match.stated.task
    return PresetConfig(config, protocol, names, task=task), undetermined


def _refuse_other_models(
    match: Match, preset: PresetConfig | None, caller: Mapping[str, Any]
) -> None:
    """Refuses a preset's weights without their config.json, and another number of channels."""
    path = match.reader.path
    states_block = any(field.startswith("block.") for field in caller)
    if match.format is KERAS_VIT and preset is None and not states_block:
        raise SourceError(
            f"{path}: these are the weights of a preset, without the config.json that "
            "states its architecture and arithmetic. Copy the complete preset and give its folder; "
            "or give block=, with the arithmetic of the training."
        )
    channels = preset.config.channels if preset else match.evidence.fields.get("channels")
    if channels and caller.get("channels", channels) != channels:
        raise CheckpointError(
            f"{path}: channels={shown(caller['channels'])}, but its patches have "
            f"{channels}. Load it without channels= and repeat its kernel over the new channels, "
            'see docs/preprocessing.md, "Images of other channels".'
        )


def state_facts(
    evidence: Evidence, stated: Stated, caller: Mapping[str, Any], files: Json
) -> Facts:
    """Returns the fields of a model by path, with `num_positions` of the arrays.

    The value of a field is the first of:

    1. the caller's;
    2. that of a JSON key that arrays cannot show;
    3. that of the arrays, unless it is a constant of the family;
    4. that of a JSON key that arrays can show, but these do not;
    5. that of the named architecture, or the family's arithmetic.

    If a field is inferred only from the presence of weights, the architecture's value takes
    precedence if it allows every weight that is present: the file has then lost an array.

    Args:
        evidence: what names and shapes show.
        stated: what the JSON states.
        caller: the caller's fields that the arrays must agree with, by path.
        files: the JSON files.

    Raises:
        ConfigError, ValueError: a value is invalid.
        CheckpointError: the JSON contradicts the arrays.
    """
    format, shows = evidence.format, evidence.fields
    told, assumed = format.read_keys(stated, format.keys)
    sizes, usual = format.read_keys(stated, format.shapes)
    _compare(format, sizes, {**shows, **caller})
    if {**usual, **sizes}.get("hidden_size") not in (None, shows.get("hidden_size")):
        assumed.pop("num_heads", None)  # valid only for the architecture's own width
    assumed = _fit_positions({**usual, **assumed}, {**shows, **sizes, **told})
    for name, part in _OPTIONAL_PARTS.items():
        own = {**assumed, **format.fixed, **told}.get(name)
        if isinstance(caller.get(name), Mapping) and own is not None:
            caller = {**caller, name: part.read(own).replace(**caller[name])}
    implied = {**usual, **assumed}
    refined = _list_refined(implied, evidence)
    shows = {field: value for field, value in shows.items() if field not in refined}
    chosen = {**told, **caller}
    if chosen.get("pool.kind", "gap") not in ("gap", "mean"):  # either name of the last norm
        shows = {field: v for field, v in shows.items() if (field, v) != ("pool.norm", "after")}
    arithmetic = {**ARITHMETIC, **format.library.arithmetic}
    facts = {**arithmetic, **implied, **sizes, **shows, **format.fixed, **chosen}
    was_gated = {**implied, **sizes}.get("block.gated")
    if facts.get("block.gated") and "block.activation" not in chosen:
        is_of_gate = was_gated and "block.activation" in assumed
        facts["block.activation"] = assumed["block.activation"] if is_of_gate else "silu"
        if "block.activation" in assumed and not is_of_gate:
            log.info(_SILU)
    elif was_gated and "block.activation" not in chosen:
        facts["block.activation"] = arithmetic["block.activation"]
    is_fixed = facts.get("position") == "sincos2d" != chosen.get("position")
    if is_fixed and facts.get(_PREFIX[0], 1):
        raise ConfigError(
            "there is a class token but no array of position embeddings. If the model was trained "
            "with fixed positions, give position='sincos2d'; otherwise the file has lost an array"
        )
    size = format.library.images.image_size and format.library.images.image_size(files)
    if size and told.get("image_size") and "image_size" not in caller:
        sides, patch = (pair(name, facts[name]) for name in ("image_size", "patch_size"))
        facts |= {"image_size": size, "position_grid": (sides[0] // patch[0], sides[1] // patch[1])}
    _compare_counts(evidence, facts)
    return facts


def _compare(format: Format, sizes: Mapping[str, Any], shows: Mapping[str, Any]) -> None:
    """Refuses JSON keys that contradict the arrays."""

    def plain(field: str, value: Any) -> Any:
        value = pair(field, value) if field == "patch_size" else value
        return tuple(value) if isinstance(value, list) else value

    contradicted = {
        field: value
        for field, value in sizes.items()
        if field in shows and plain(field, value) != plain(field, shows[field])
    }
    if contradicted:
        words = [
            f"{field}={shown(value)}, but the arrays have {shown(shows[field])}"
            for field, value in contradicted.items()
        ]
        error = CheckpointError(f"{format.library.json[0]} states {'; '.join(words)}")
        error.differences = tuple(f"{field}={shows[field]!r}" for field in contradicted)
        raise error


_REFINED = {"map_of_patches": ("map",), "gap": ("mean", "unpooled")}
"""Pooling inferred from arrays -> poolings with the same arrays, which an architecture may have."""
_SILU = (
    "The arrays have a gated MLP, which model_args do not state: its activation is assumed to be "
    "SiLU, unless they state act_layer. block={'activation': 'gelu'} selects GELU."
)
"""Message about models whose MLP class and activation cannot be stated in JSON."""


def _list_refined(implied: Facts, evidence: Evidence) -> set[str]:
    """Returns the fields for which an architecture is more specific than the arrays.

    Fields that are stated by the same keys are decided together: a norm of the tokens before the
    blocks, which an architecture lacks, comes with a patch embedding without a bias.
    """
    refined: set[str] = set()
    for codec in (*evidence.format.keys.values(), *evidence.format.shapes.values()):
        own = [f for f in codec.fields.split() if f in implied and f in evidence.fields]
        others = [f for f in own if implied[f] != evidence.fields[f]]
        if all(_refines(field, implied[field], evidence) for field in others):
            refined.update(others)
    return refined


def _refines(field: str, value: Any, evidence: Evidence) -> bool:
    """Whether an architecture's value of a field explains all weights that show the field."""
    if field == "pool.kind":
        return value in _REFINED.get(str(evidence.fields[field]), ())
    terms = evidence.present.get(field)
    return terms is not None and all(inference.admits(term, value) for term in terms)


def _fit_positions(assumed: Facts, stated: Facts) -> Facts:
    """Returns the fields of a named architecture, corrected by the number of positions.

    The number shows whether all tokens have positions, or that the images have another size.
    """
    count, patch, size = (
        {**assumed, **stated}.get(name) for name in ("num_positions", "patch_size", "image_size")
    )
    if not count or not patch or not size or "stem.units" in stated:
        return assumed
    sides = zip(pair("image_size", size), pair("patch_size", patch), strict=True)
    patches = math.prod(side // length for side, length in sides)
    prefix = sum(int(stated.get(name, 0)) for name in _PREFIX)
    if count not in (patches, patches + prefix):
        return {field: value for field, value in assumed.items() if field != "image_size"}
    kind = "learned_patches" if count == patches else "learned"
    return {**assumed, "position": kind} if prefix and "position" not in stated else assumed


def _refuse_open(match: Match, facts: Facts, caller: Mapping[str, Any]) -> None:
    """Refuses a file without JSON if neither its arrays nor the caller determine a field."""
    format = match.evidence.format
    if match.stated.keys or match.stated.defaults:
        return
    missing = {
        field: own.words
        for field, own in format.family.open.items()
        if field not in caller and own.is_asked(match.evidence.fields, facts)
    }
    if not missing:
        return
    give = []
    for name, part in nest(dict.fromkeys(missing, "...")).items():
        inside = ", ".join(f"{field!r}: ..." for field in part) if part != "..." else ""
        give.append(f"{name}={{{inside}}}" if inside else f"{name}=...")
    values = "; ".join(f"{name}: {words}" for name, words in missing.items())
    others = [f"load the folder that includes {file}" for file in format.library.json[:1]]
    if "architecture" in format.library.named_by:
        others.append("give read={'timm': 'vit_small_patch16_224'} or the model card's arguments")
    ways = "".join(f"{way}, or " for way in others)
    raise ConfigError(
        f"the arrays do not show {', '.join(missing)}: {ways}give {', '.join(give)} ({values})"
    )


def flatten_arguments(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the caller's arguments with the fields of parts by path."""
    optional = {name for name in _OPTIONAL_PARTS if name != "dense" or not arguments.get(name)}
    parts = [name for name in _PARTS if name not in optional and name in arguments]
    others = {name: value for name, value in arguments.items() if name not in parts}
    return others | flatten({name: arguments[name] for name in parts if arguments[name]})


def choose_architecture(fields: Mapping[str, Any]) -> dict[str, Any]:
    """Returns the caller's fields that must match the arrays."""
    known = inference.PLAIN.keys() - {*_FREE}
    return {p: value for p, value in fields.items() if p in known or p.startswith("dense.")}


def unpack_reading(read: Reading | None, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Checks the argument `read` of a public function, and returns it with defaults.

    Args:
        read: as for `VisionTransformer.from_preset`.
        arguments: the other arguments of the function.

    Raises:
        ConfigError: `read` is not a dict or has an unknown key, or an argument is unknown.
    """
    others = {k: v for k, v in arguments.items() if k not in Building.__annotations__}
    known_fields(ViTConfig, others, read=Reading)
    keys = list(Reading.__annotations__)
    words = ", ".join(keys)
    if not isinstance(read, Mapping | None):
        raise ConfigError(f"read must be a dict with keys from {words}, found {shown(read)}.")
    for key in read or {}:
        if key not in keys:
            raise ConfigError(f"read has no key {shown(key)}.{nearest(key, keys)} It has {words}.")
    given = {key: value for key, value in (read or {}).items() if value is not None}
    return {"checksum": True, "allow_pickle_weights": False, **given}


def _compare_counts(evidence: Evidence, facts: Mapping[str, Any]) -> None:
    """Refuses a number of blocks or stages that is far above the number of arrays.

    A single name such as `block_100000` implies as many blocks; listing their missing arrays
    would take minutes and gigabytes.
    """
    for placeholder, part in (("l", "blocks"), ("s", "stages"), ("u", "units of a stage")):
        found = inference.numbers(evidence.bindings, placeholder)
        promise = facts.get("num_layers") if placeholder == "l" else max(found, default=0)
        if found and isinstance(promise, int) and promise > 2 * len(found) + 8:
            raise ConfigError(
                f"expected arrays for {shown(promise)} {part}, found arrays for {len(found)}, up "
                f"to number {max(found)}."
            )


def _choose_protocol(
    stated: ProtocolSpec | None, format: Format, config: ViTConfig
) -> ProtocolSpec:
    """Returns the protocol of the files if it fits the model's channels, or else a default."""
    if stated is not None:
        protocol = complete(stated)
        counts = [len(protocol[k]) for k in ("mean", "std") if isinstance(protocol[k], list)]
        if set(counts) <= {config.channels}:
            return compact(protocol)
        counted = f"A mean or std of {counts[0]} channels, where the model has {config.channels},"
        warn_of_protocol(counted)
    return compact(format.library.images.default(config))
