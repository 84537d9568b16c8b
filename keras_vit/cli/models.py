"""Commands about presets, checkpoints and the installation."""

import argparse
import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.progress import Progress

from keras_vit.cli.console import ImageSize, add_output, console, positive, show
from keras_vit.cli.screen import Screen
from keras_vit.environment import backend
from keras_vit.errors import KerasViTError

if TYPE_CHECKING:
    from keras_vit.checkpoints import Passport
    from keras_vit.config import ViTConfig


def add(commands: Any) -> None:
    """Adds list, doctor, info, convert, verify, attest and upload."""
    command = commands.add_parser("list", help="show presets, or the variants of the papers")
    command.add_argument("--variants", action="store_true", help="architectures, not presets")
    command.add_argument("--variant", help="presets of this variant alone")
    command.add_argument("--family", help="vit, dinov2, dinov3, clip, siglip, deit, mae, ...")
    command.add_argument("--data", help="trained on: i21k, i1k, i21k_ft_i1k, i1k_ft_i1k")
    command.add_argument("--resolution", type=positive, metavar="PIXELS")
    command.add_argument(
        "--hybrid",
        action=argparse.BooleanOptionalAction,
        help="with a ResNet before the Transformer, or without",
    )
    add_output(command, "print a list of JSON objects")
    command.set_defaults(run=_list)

    command = commands.add_parser("doctor", help="tell what is installed, and what is missing")
    add_output(command, "print a list of JSON objects")
    command.set_defaults(run=_doctor)

    command = commands.add_parser("info", help="tell what a checkpoint or preset holds")
    command.add_argument("source", help="a name, a file or folder, or hf://owner/repo")
    add_output(command, "print one JSON object, with every array")
    command.set_defaults(run=_info)

    command = commands.add_parser("convert", help="write a checkpoint in another dialect")
    command.add_argument("source", help="a name, a file or folder, or hf://owner/repo")
    command.add_argument("destination", type=Path)
    command.add_argument("--to", required=True, metavar="DIALECT", help="dialect to write")
    _add_fields(command)
    command.add_argument(
        "--lossy", action="store_true", help="write also what the other library cannot express"
    )
    command.add_argument(
        "--allow-pickle-weights",
        action="store_true",
        help="read a .bin or .pth file by torch.load(weights_only=True); see SECURITY.md",
    )
    command.set_defaults(run=_convert)

    command = commands.add_parser("verify", help="compare a checkpoint with its passport")
    command.add_argument("source", help="a name, a file or folder, or hf://owner/repo")
    command.add_argument("other", nargs="?", help="another checkpoint, to compare with")
    command.add_argument("--passport", type=Path, metavar="FILE", help="JSON that attest wrote")
    _add_fields(command)
    add_output(command, "print a list of JSON objects")
    command.set_defaults(run=_verify)

    command = commands.add_parser("attest", help="write the passport of a checkpoint")
    command.add_argument("source", help="a name, a file or folder, or hf://owner/repo")
    command.add_argument("--out", type=Path, metavar="FILE", help="default: the standard output")
    command.add_argument(
        "--by",
        choices=("library", "keras_vit"),
        default="library",
        help="whose code runs: that of timm, transformers or keras-hub, or keras_vit's own",
    )
    command.add_argument(
        "--imagenet", type=Path, metavar="FOLDER", help="validation images, to measure top-1 too"
    )
    command.add_argument(
        "--images", type=int, choices=(1_000, 50_000), default=1_000, help="how many of them"
    )
    _add_fields(command)
    command.set_defaults(run=_attest)

    command = commands.add_parser("upload", help="put a preset folder on the Hub")
    command.add_argument("folder", type=Path)
    command.add_argument("target", help="hf://owner/repo[@branch]")
    command.add_argument("--private", action="store_true", help="of a new repository")
    command.add_argument("--overwrite", action="store_true", help="replace another preset")
    command.add_argument("--message", help="of the commit")
    command.set_defaults(
        run=_upload, go_on="The same command goes on; what arrived is not sent again."
    )


def _add_fields(command: argparse.ArgumentParser) -> None:
    command.add_argument(
        "--image-size",
        type=positive,
        nargs="+",
        action=ImageSize,
        metavar="PIXELS",
        help="resize the positions for it",
    )
    command.add_argument("--num-heads", type=positive, help="where the files do not tell")


def _list(arguments: argparse.Namespace) -> None:
    from keras_vit.checkpoints import inspect
    from keras_vit.checkpoints.passports import rung_of
    from keras_vit.sources.catalog import list_presets, preset_named
    from keras_vit.variants import list_variants, variant
    from keras_vit.weights.lexicon import num_parameters

    rows: list[tuple[object, ...]] = []
    if arguments.variants:
        for name in list_variants():
            config = variant(name).config()
            stem = None if config.resnet is None else list(config.resnet.num_layers)
            sizes = (config.hidden_size, config.num_layers, config.num_heads, config.mlp_dim)
            rows.append((name, num_parameters(config), *sizes, config.patch_size[0], stem))
        columns = "variant parameters hidden_size num_layers num_heads mlp_dim patch_size stem"
        return show(arguments, columns.split(), rows)
    filters = ("variant", "data", "resolution", "hybrid", "family")
    asked = {key: getattr(arguments, key) for key in filters}
    for row in map(preset_named, list_presets(**asked)):
        parameters = inspect(row.name).num_parameters
        score = row.top1 and f"{row.top1:.2f}"
        facts = (row.name, row.data, parameters, row.image_size, row.num_classes, score)
        rows.append((*facts, row.license, rung_of(row.name)))
    columns = "preset data parameters pixels classes top-1 license rung"
    return show(arguments, columns.split(), rows)


def _doctor(arguments: argparse.Namespace) -> None:
    from keras_vit.environment.components import components

    rows = [(c.kind, c.name, c.version or "not installed", c.note) for c in components()]
    show(arguments, ("kind", "name", "version", "note"), rows)


def _info(arguments: argparse.Namespace) -> None:
    from keras_vit.checkpoints import inspect
    from keras_vit.checkpoints.passports import RUNGS, rung_of, shipped
    from keras_vit.sources.catalog import CATALOG

    found = inspect(arguments.source)
    facts: dict[str, Any] = {"source": str(arguments.source)}
    arrays = {}
    if found.shapes:
        size_known = "image_size" not in found.undetermined
        facts |= {"dialect": found.dialect, "prefix": found.prefix or "none"}
        facts |= _model_facts(found.config, size_known)
        facts |= {"parameters": found.num_parameters, "arrays": len(found.shapes)}
        facts |= {"types": sorted({dtype.name for dtype in found.dtypes.values()})}
        if found.ignored:
            facts["ignored"] = found.ignored
        arrays = {name: list(shape) for name, shape in found.shapes.items()}
    else:
        facts |= {"dialect": "keras_vit preset", **_model_facts(found.config, True)}
        facts |= {"protocol": found.protocol}
        facts |= {f"provenance: {name}": value for name, value in found.provenance.items()}
    if str(arguments.source) in CATALOG:
        rung = rung_of(str(arguments.source))
        facts["evidence"] = f"rung {rung} of 5: {RUNGS[rung]}"
        if (passport := shipped().get(str(arguments.source))) and passport.read:
            facts["evidence"] += f"; read on {passport.date}: JSON {passport.read}"
    rows = [(n, f"{v:,}" if n == "parameters" else v) for n, v in facts.items()]
    show(arguments, ("fact", "value"), rows, {**facts, "array_shapes": arrays})


def _model_facts(config: "ViTConfig", size_known: bool) -> dict[str, Any]:
    from keras_vit.variants import variant_of

    if not size_known:
        resolution = "undetermined; give image_size on loading"
    elif config.image_size is None:
        resolution = "any"
    else:
        resolution = "{}x{}".format(*config.image_size)
    return {
        "variant": variant_of(config) or "none of the named ones",
        "resolution": resolution,
        "classes": config.num_classes or "no head",
        "representation layer": config.representation_size or "none",
        "classifier": config.classifier,
        "hidden_size": config.hidden_size,
        "mlp_dim": config.mlp_dim,
        "num_heads": config.num_heads,
        "num_layers": config.num_layers,
        "patch_size": "{}x{}".format(*config.patch_size),
        "channels": config.channels,
        "stem": "none" if config.resnet is None else str(list(config.resnet.num_layers)),
        **(_costs(config) if size_known and config.image_size is not None else {}),
    }


def _costs(config: "ViTConfig") -> dict[str, Any]:
    from keras_vit.costs import flops, memory, parameters

    counted, predicted = flops(config), memory(config)
    return {
        "parameters": parameters(config),
        "tokens": config.num_tokens,
        "GFLOPs per image": f"{counted.forward / 1e9:.3g} forward, "
        f"{counted.training / 1e9:.3g} in a training step",
        "memory in float32": f"{predicted.weights / 2**20:,.0f} MiB of weights, "
        f"{predicted.training / 2**20:,.0f} MiB predicted for a training step of SGD on one image",
    }


def _fields(arguments: argparse.Namespace) -> dict[str, Any]:
    """Returns the fields of a checkpoint that the user has given."""
    named = {"image_size": arguments.image_size, "num_heads": arguments.num_heads}
    return {name: value for name, value in named.items() if value is not None}


def _verify(arguments: argparse.Namespace) -> int:
    backend.start()
    from keras_vit.checkpoints import verify
    from keras_vit.explanation import looks_untrained

    if arguments.other is not None and arguments.passport is not None:
        raise KerasViTError("verify compares with another checkpoint or with --passport, not both.")
    against = arguments.passport or arguments.other
    with Screen(stderr=True).status("Running"):
        found = verify(arguments.source, against, look=looks_untrained, **_fields(arguments))
    rows = [
        (c.name, c.expected, f"{c.difference:.2e}", f"{c.tolerance:.0e}", _WORDS[c.passed])
        for c in found.checks
    ]
    show(arguments, ("compared", "with", "difference", "tolerance", "result"), rows)
    for sentence in found.warnings:
        Screen(stderr=True).print(f"{arguments.source} looks untrained: {sentence}", soft_wrap=True)
    return int(not found.passed)


_WORDS = {True: "equal", False: "differs"}


def _attest(arguments: argparse.Namespace) -> None:
    backend.start()
    from keras_vit.checkpoints import attest

    with Screen(stderr=True).status("Running"):
        passport = attest(arguments.source, by=arguments.by, **_fields(arguments))
        if arguments.imagenet is not None:
            passport = _scored(passport, arguments)
    if arguments.out is None:
        print(json.dumps(passport.to_dict(), indent=1))
    else:
        passport.write_to(arguments.out)
        console.print(f"{arguments.out} written: {passport.origin}.", soft_wrap=True)


def _scored(passport: "Passport", arguments: argparse.Namespace) -> "Passport":
    """Returns a passport with the accuracy on labelled images, of every class alike."""
    from keras_vit import VisionTransformer, data, evaluate

    model = VisionTransformer.from_preset(arguments.source, **_fields(arguments))
    images = data.from_folder(arguments.imagenet, model, 32)
    if arguments.images < len(images.labels):
        _, images = images.hold_out(arguments.images / len(images.labels))
    score = evaluate(model, images)
    return dataclasses.replace(passport, images=score.count, top1=round(100 * score.top1, 2))


def _convert(arguments: argparse.Namespace) -> None:
    from keras_vit.checkpoints import convert
    from keras_vit.checkpoints.dialects import dialects_named

    dialects_named(arguments.to)  # refuses an unknown name before a download
    with Progress(console=Screen(stderr=True), disable=not console.is_terminal) as progress:
        convert(
            arguments.source,
            arguments.destination,
            arguments.to,
            lossy=arguments.lossy,
            track=lambda moves: progress.track(list(moves), description="Converting"),
            allow_pickle_weights=arguments.allow_pickle_weights,
            **_fields(arguments),
        )
    written = f"{arguments.destination} written in the {arguments.to} dialect."
    console.print(written, soft_wrap=True)


def _upload(arguments: argparse.Namespace) -> None:
    from keras_vit.sharing.upload import upload_preset

    url = upload_preset(
        arguments.target,
        arguments.folder,
        private=arguments.private,
        overwrite=arguments.overwrite,
        commit_message=arguments.message,
    )
    console.print(url, soft_wrap=True)
