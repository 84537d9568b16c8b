"""Writes a page per family of models: the lines that use one, license, preprocessing, sizes.

`families.toml` names the families. A page takes its facts from the catalog of presets; a family
without rows there takes its sizes from the architectures of timm that keras_vit knows.
"""

import fnmatch
import json
import re
import tomllib
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from models_table import protocol_words
from sphinx.errors import ExtensionError

from keras_vit.checkpoints.families import NAMES
from keras_vit.checkpoints.families.timm import architectures
from keras_vit.config.weights.lexicon import num_parameters
from keras_vit.models import flops
from keras_vit.presets import catalog
from keras_vit.presets.catalog import CATALOG, Preset
from keras_vit.presets.evidence import evidence_level

TABLE = Path(__file__).with_name("families.toml")
HUB = "https://huggingface.co/"
UNKNOWN = "see the repository"


def write_pages(folder: Path) -> None:
    """Writes `<slug>.md` for each family, and leaves unchanged files alone."""
    families = read_families()
    pages = {f"{family['slug']}.md": page(family) for family in families}
    described = {name for family in families for name in _matching(CATALOG, family.get("rows", ()))}
    of_fields = {row.name for row in CATALOG.values() if row.feature or row.folder}
    if missing := sorted(CATALOG.keys() - described - of_fields):
        raise ExtensionError(f"{TABLE.name}: no family has the rows {', '.join(missing)}.")
    folder.mkdir(exist_ok=True)
    for old in set(folder.glob("*.md")) - {folder / name for name in pages}:
        old.unlink()
    for name, text in pages.items():
        path = folder / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")


def page(family: dict[str, Any]) -> str:
    """Returns the page of one family, in Markdown."""
    rows = rows_of(family)
    papers = family.get("papers") or list(dict.fromkeys(_PAPERS[row.name] for row in rows))
    facts = {"Paper": _cited(papers)} if any(papers) else {}
    facts |= _facts_of_catalog(rows) if rows else _facts_elsewhere(family)
    formats = ", ".join(f"`{name}`" for name in _matching(NAMES, family["formats"]))
    facts["Formats"] = f"{formats}. {{doc}}`../families` says which can be read and written."
    table = _table_of_catalog(rows) if rows else _table_of_timm(family.get("timm", ()))
    return "\n".join(
        [
            f"# {family['name']} in Keras\n",
            f"{family['about']}\n",
            f"```py\n{example(family)}```\n",
            *(f"- **{name}**: {text}" for name, text in facts.items()),
            *([f"\n{family['more']}"] if "more" in family else []),
            *(["\n## Sizes\n\n:::{div} presets", *table, ":::"] if table else []),
            "",
        ]
    )


def read_families() -> list[dict[str, Any]]:
    """Returns the families of `families.toml`, in their order."""
    families: list[dict[str, Any]] = tomllib.loads(TABLE.read_text(encoding="utf-8"))["family"]
    return families


def rows_of(family: dict[str, Any]) -> list[Preset]:
    """Returns the rows of the catalog that belong to a family."""
    return [CATALOG[name] for name in _matching(CATALOG, family.get("rows", ()))]


def _matching(names: Iterable[str], patterns: Iterable[str]) -> list[str]:
    """Returns the names that match a pattern, in their order."""
    names = list(names)
    for pattern in patterns:
        if not fnmatch.filter(names, pattern):
            raise ExtensionError(f"{TABLE.name}: {pattern!r} matches nothing.")
    return [name for name in names if any(fnmatch.fnmatch(name, each) for each in patterns)]


def _read_papers() -> dict[str, str]:
    """Returns `authors (year), arXiv number` of each row, which its group in the catalog states."""
    groups = json.loads(Path(catalog.__file__).with_name("catalog.json").read_text("utf-8"))
    papers = {}
    for group in groups:
        paper = re.match(r".*?\(\d{4}\), arXiv [\d.]+\d", group["about"])
        papers |= {row["name"]: paper[0] if paper else "" for row in group["rows"]}
    return papers


_PAPERS = _read_papers()


def _cited(papers: Iterable[str]) -> str:
    """Returns papers with their links."""
    link = r"[arXiv \1](https://arxiv.org/abs/\1)"
    return "; ".join(re.sub(r"arXiv (\S+)", link, paper) for paper in papers if paper) + "."


def example(family: dict[str, Any]) -> str:
    """Returns lines that load a model of the family, use it, probe it and fine-tune it."""
    rows = rows_of(family)
    classifiers = [row for row in rows if row.num_classes == 1000]
    source = (classifiers or rows)[0].name if rows else family["load"]
    use = [
        "# Feature extraction: one vector per image\n"
        'vectors = keras_vit.evaluation.features(model, ["photo.jpg"]).values',
        '# Classification\nprint(model.classify("photo.jpg", top=5))',
    ][bool(classifiers)]
    return f"""import keras_vit

source = "{source}"
model = keras_vit.VisionTransformer.from_preset(source)

{use}

# Linear probe on your images, one folder per class
print(keras_vit.probe(model, "photos").summary())

# Fine-tuning on the same images
keras_vit.finetune(source, "photos", path="finetuned")
"""


def _facts_of_catalog(rows: list[Preset]) -> dict[str, str]:
    """Returns license, preprocessing and evidence of presets, and the catalog's warnings."""
    licenses = Counter(row.license for row in rows)
    stated = {f"; {who}: {name}" for row in rows for who, name in row.licenses.items()}
    gated = any(row.note.startswith("gated") for row in rows)
    protocols = dict.fromkeys(protocol_words(row.protocol) for row in rows)
    on_hub = any(str(row.source).startswith("hf://") for row in rows)
    facts = {
        "License": _counted(licenses)
        + "".join(sorted(stated))
        + (". Gated: accept it on the repository's page, then `hf auth login`." if gated else "."),
        "Preprocessing": ("see the table" if len(protocols) > 1 else str(*protocols))
        + ": {doc}`../preprocessing`."
        + (" The configuration in a Hub repository takes precedence." if on_hub else ""),
        "Tests": _tests(rows, on_hub),
    }
    notes: dict[str, list[str]] = {}
    for row in rows:
        if row.note and not row.note.startswith("gated"):
            notes.setdefault(row.note, []).append(f"`{row.name}`")
        if row.unverified and not str(row.source).startswith("hf://"):
            notes.setdefault(f"not verified: {row.unverified}", []).append(f"`{row.name}`")
    known = "; ".join(f"{text} ({', '.join(names)})" for text, names in notes.items())
    return facts | ({"Notes": f"{known}."} if known else {})


def _tests(rows: list[Preset], on_hub: bool) -> str:
    """Returns how far a family was tested."""
    in_timm = any(row.counterparts.get("timm") for row in rows)
    library = "timm" if in_timm else rows[0].format_name.partition("/")[0]
    compared = "the official code" if library == "google" else f"{library}'s"
    place = "the Hub" if on_hub else "the official bucket"
    read = [f"`{row.name}`" for row in rows if evidence_level(row.name)]
    words = f"not yet loaded from {place} by us; architecture compared with {compared}."
    return words + (f" Published `config.json` and shapes read: {', '.join(read)}." if read else "")


def _counted(numbers: Any) -> str:
    """Returns keys, with their numbers if there are several keys."""
    if len(numbers) == 1:
        return str(*numbers)
    return "; ".join(f"{key} ({number})" for key, number in numbers.items())


def _facts_elsewhere(family: dict[str, Any]) -> dict[str, str]:
    """Returns license, preprocessing and evidence of a family without rows in the catalog."""
    return {
        "License": license_of(family) + ".",
        "Preprocessing": "as the repository's files state it: {doc}`../preprocessing`.",
        "Tests": "not yet loaded from the Hub by us; architecture compared with the library's: "
        "{ref}`what-was-compared`.",
    }


def license_of(family: dict[str, Any]) -> str:
    """Returns the license of a family without rows in the catalog."""
    return f"{family['license']}, as timm states it" if "license" in family else UNKNOWN


def _table_of_catalog(rows: list[Preset]) -> list[str]:
    lines = ["| preset | file | timm's name | params, M | GMACs | pixels |"]
    lines.append("|---|---|---|---:|---:|---:|")
    differ = len({protocol_words(row.protocol) for row in rows}) > 1
    for row in rows:
        source, in_timm = str(row.source), row.counterparts.get("timm", "")
        repository = source.removeprefix("hf://")
        config = row.config()
        cells = (
            f"`{row.name}`" + (f"<br>{protocol_words(row.protocol)}" if differ else ""),
            f"[npz]({source})" if repository == source else f"[{repository}]({HUB}{repository})",
            in_timm and f"[{in_timm}]({HUB}timm/{in_timm})",
            f"{num_parameters(config) / 1e6:,.1f}",
            f"{flops(config).forward / 2e9:,.1f}",
            str(row.image_size),
        )
        lines.append(f"| {' | '.join(cells)} |")
    return lines


def _table_of_timm(patterns: Iterable[str]) -> list[str]:
    """Returns the architectures that keras_vit has all parts of."""
    lines = ["| architecture of timm | hidden_size | num_heads | patch_size |"]
    lines.append("|---|---:|---:|---:|")
    for name in _matching(architectures.read_file("registry")["models"], patterns):
        try:
            _, arguments, _ = architectures.read_arguments({"architecture": name})
        except ValueError:
            continue
        sizes = (str(arguments.get(key, "")) for key in ("width", "num_heads", "patch_size"))
        lines.append(f"| {name} | {' | '.join(sizes)} |")
    return lines if len(lines) > 2 else []


def setup(app: Any) -> dict[str, bool]:
    """Writes the pages before Sphinx looks for its sources."""
    write_pages(Path(app.srcdir) / "families")
    return {"parallel_read_safe": True}
