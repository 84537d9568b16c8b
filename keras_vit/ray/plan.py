"""The images of a data set in numbered parts, so that a part has the same images in every run.

A plan is a Parquet file `.keras_vit/NUMBER.plan` in the data set's folder: each of its row groups
lists the images of one part. A part is therefore the same file whichever run or worker writes it,
and writing it twice changes nothing. Images that a later run finds get a plan of their own.
"""

import dataclasses
import io
from collections.abc import Iterable
from typing import Any

from keras_vit.errors import ConfigError
from keras_vit.ray.storage import Folder

_FOLDER = ".keras_vit"
_MOST = 4096
_PARTS_PER_WORKER = 8


@dataclasses.dataclass(frozen=True)
class Part:
    """One file of a data set.

    Args:
        plan: number of the plan.
        number: number of the part in the plan.
        count: number of images in the part.
    """

    plan: int
    number: int
    count: int

    @property
    def name(self) -> str:
        """The name of the file."""
        return f"part-{self.plan:04d}-{self.number:06d}.parquet"


def planned(out: Folder, images: Iterable[str], workers: int) -> list[Part]:
    """Returns the parts of all plans, after a new plan for images that are in none.

    Args:
        out: the folder of the data set.
        images: paths or addresses of the images.
        workers: number of workers, which decides how many images a new part has: a worker has
            several parts to do, and a part has at most 4,096 images.

    Raises:
        ConfigError: a plan cannot be read, or a name is no UTF-8, the only text of Parquet.
        WriteError: the plan cannot be written.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    known: set[str] = set()
    parts: list[Part] = []
    plans = sorted(name for name in out.names(_FOLDER) if name.endswith(".plan"))
    for number, name in enumerate(plans):
        if name != _name(number):
            raise ConfigError(f"{out.place}: {_name(number)} is missing beside {name}.")
        with out.open(f"{_FOLDER}/{name}") as file:
            plan = pq.ParquetFile(file)
            groups = range(plan.num_row_groups)
            parts += [Part(number, k, plan.metadata.row_group(k).num_rows) for k in groups]
            known.update(plan.read(columns=["path"])["path"].to_pylist())
    new = [name for name in dict.fromkeys(images) if name not in known]
    if not new:
        return parts
    size = min(_MOST, max(1, -(-len(new) // (_PARTS_PER_WORKER * workers))))
    buffer = io.BytesIO()
    with pq.ParquetWriter(buffer, pa.schema([("path", pa.string())])) as writer:
        for start in range(0, len(new), size):
            paths = _text(new[start : start + size])
            writer.write_table(pa.table({"path": paths}), row_group_size=size)
    out.write(f"{_FOLDER}/{_name(len(plans))}", buffer.getvalue())
    starts = range(0, len(new), size)
    counts = [min(size, len(new) - start) for start in starts]
    return parts + [Part(len(plans), k, count) for k, count in enumerate(counts)]


def images_of(out: Folder, part: Part) -> list[str]:
    """Returns the images of a part.

    Raises:
        ConfigError: the plan cannot be read.
    """
    import pyarrow.parquet as pq

    with out.open(f"{_FOLDER}/{_name(part.plan)}") as file:
        return pq.ParquetFile(file).read_row_group(part.number)["path"].to_pylist()


def _name(number: int) -> str:
    return f"{number:04d}.plan"


def _text(names: list[str]) -> Any:
    import pyarrow as pa

    try:
        return pa.array(names, pa.string())
    except (UnicodeEncodeError, pa.ArrowException) as error:
        odd = next(n for n in names if n != n.encode(errors="replace").decode())
        raise ConfigError(
            f"{odd}: the name of this file is no UTF-8, the only text that Parquet holds. "
            "Rename the file."
        ) from error
