"""What a checkpoint in safetensors files holds, by its headers alone: the name, number format and
shape of every tensor. No weight is read.

A file begins with the length of its header (8 bytes, little-endian) and the header, which is JSON:
``{name: {"dtype": ..., "shape": [...], "data_offsets": [begin, end]}}``. An index names the file of
each tensor. Both come from a stranger: whatever contradicts itself is refused in one line. Links
are followed, as the cache of the hub's client is made of them, but only to plain files.

Source: the format's description and the checks of its library (safetensors 0.8.0).
"""

import json
import math
import os
import stat
from pathlib import Path
from typing import NamedTuple

from hwdesign._check import shown

MOST_HEADER = 100_000_000  # of a header, as the format's library has it [byte]
MOST_INDEX = 200_000_000  # of an index [byte]
MOST_FILES, MOST_TENSORS = 5000, 2_000_000
MOST_LETTERS = 1000  # of a tensor's name
MOST_ELEMENTS = 2**62
INDEX = "model.safetensors.index.json"
BITS = {  # dtype -> bits of an element
    "BOOL": 8,
    "F4": 4,
    "F6_E2M3": 6,
    "F6_E3M2": 6,
    **dict.fromkeys(("U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0"), 8),
    **dict.fromkeys(("F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("U16", "I16", "F16", "BF16"), 16),
    **dict.fromkeys(("U32", "I32", "F32"), 32),
    **dict.fromkeys(("U64", "I64", "F64", "C64"), 64),
}
KEYS = {"dtype", "shape", "data_offsets"}


class Tensor(NamedTuple):
    """A tensor as a header describes it."""

    dtype: str
    shape: tuple[int, ...]  # [element]
    bytes: int  # [byte]

    @property
    def elements(self):
        """How many elements are stored [element]."""
        return math.prod(self.shape)


class Checkpoint(NamedTuple):
    """What lies in a folder, a file or an index."""

    tensors: dict[str, Tensor]  # empty where only the index is known
    files: int
    index: dict[str, str] | None = None  # name -> file
    missing: int = 0  # files that the index names and that are not there
    total_size: int | None = None  # what the index says [byte]
    total_parameters: int | None = None  # what the index says [element]


def read_checkpoint(source):
    """Tensors of a checkpoint: of a model's folder, a .safetensors file or an index.

    Parameters
    ----------
    source : str or path
        A folder with .safetensors files, and an index where there are several; one such file; or an
        index, beside which its files may lie.

    Returns
    -------
    Checkpoint
        Tensors by name; none where a file that the index names is missing.

    Raises
    ------
    ValueError
        If there is no such file, or a header or the index contradicts itself.
    """
    path = Path(source)
    if os.path.isdir(path):
        if os.path.exists(path / INDEX):
            return _by_index(path / INDEX)
        indexes = sorted(path.glob("*.safetensors.index.json"))
        if len(indexes) == 1:
            return _by_index(indexes[0])
        files = sorted(path.glob("*.safetensors"))
        if not files or indexes:
            held = f"{len(indexes)} indexes" if indexes else "no .safetensors file"
            raise ValueError(
                "weights must be a folder with .safetensors files or one index of them, a "
                f".safetensors file or its index; {shown(str(path))} holds {held}"
            )
        return _of_files(files)
    if path.name.endswith(".json"):
        return _by_index(path)
    return _of_files([path])


def _of_files(files):
    if len(files) > MOST_FILES:
        raise ValueError(f"weights must be at most {MOST_FILES} files, got {len(files)}")
    tensors = {}
    for file in files:
        found = read_header(file)
        if twice := tensors.keys() & found.keys():
            raise ValueError(
                f"weights must hold each tensor once, got {shown(min(twice))} also in "
                f"{shown(file.name)}"
            )
        tensors.update(found)
        if len(tensors) > MOST_TENSORS:
            raise ValueError(f"weights must be at most {MOST_TENSORS:,} tensors, got more")
    return Checkpoint(tensors, len(files))


def _by_index(path):
    index = read_index(path)
    names = sorted(set(index.index.values()))
    files = [path.parent / name for name in names]
    there = [file for file in files if os.path.exists(file)]
    if len(there) < len(files):
        return index._replace(missing=len(files) - len(there))
    found = _of_files(files)
    if lost := index.index.keys() - found.tensors.keys():
        name = min(lost)
        raise ValueError(
            f"index {shown(path.name)} must name tensors of its files, got {shown(name)}, which is "
            f"not in {shown(index.index[name])} ({len(lost)} of that kind)"
        )
    return index._replace(tensors=found.tensors, files=found.files)


def read_index(path):
    """What an index says, as a `Checkpoint` without tensors: a name or path of its JSON file.

    Raises
    ------
    ValueError
        If it is no index, or names a file outside its folder.
    """
    path = Path(path)
    with _opened(path, "index") as file:
        text = file.read(MOST_INDEX + 1)
    if len(text) > MOST_INDEX:
        raise _odd(path, f"at most {MOST_INDEX:,} bytes", "more", "index")
    said = _parsed(path, text, "index")
    names = said.get("weight_map")
    if not isinstance(names, dict) or not names:
        raise _odd(path, "an object with a weight_map, name to file", "none", "index")
    if long := next((name for name in names if len(name) > MOST_LETTERS), None):
        raise _odd(path, f"names of at most {MOST_LETTERS} letters", shown(long), "index")
    for name in set(map(str, names.values())):
        plain = Path(name).name == name and not set("\\/\0:") & set(name)
        if not plain or not name.endswith(".safetensors"):
            raise _odd(path, "names of .safetensors files in its own folder", shown(name), "index")
    files = len(set(map(str, names.values())))
    if files > MOST_FILES:
        raise _odd(path, f"names of at most {MOST_FILES} files", files, "index")
    meta = said.get("metadata")
    meta = meta if isinstance(meta, dict) else {}
    return Checkpoint(
        {},
        files,
        index={name: str(file) for name, file in names.items()},
        total_size=_total(path, meta, "total_size"),
        total_parameters=_total(path, meta, "total_parameters"),
    )


def _total(path, meta, key):
    """A number of the metadata, which some libraries write as a float or a text."""
    value = meta.get(key)
    if value is None or isinstance(value, bool):
        return None
    try:
        number = int(value)
        if 0 <= number < MOST_ELEMENTS and number == float(value):
            return number
    except (TypeError, ValueError, OverflowError):
        pass
    raise _odd(path, f"a whole number as {key}", shown(value), "index")


def read_header(path):
    """Tensors of one file by name, as a dict of `Tensor`.

    Raises
    ------
    ValueError
        If the header is no header, or does not fit the file.
    """
    path = Path(path)
    with _opened(path) as file:
        size = os.fstat(file.fileno()).st_size
        first = file.read(8)
        length = int.from_bytes(first, "little")
        if len(first) < 8 or not 2 <= length <= size - 8:
            got = f"a length of {length:,} in {size:,} bytes"
            raise _odd(path, "a safetensors file, header and all", got)
        if length > MOST_HEADER:
            raise _odd(path, f"of a header of at most {MOST_HEADER:,} bytes", f"{length:,}")
        said = _parsed(path, file.read(length))
    said.pop("__metadata__", None)
    spans, found = [], {}
    for name, entry in said.items():
        begin, end, found[name] = _tensor(path, name, entry)
        spans.append((begin, end))
    last = 0
    for begin, end in sorted(spans):
        if begin != last:
            raise _odd(path, "tensors one after the other", f"one at byte {begin:,}, not {last:,}")
        last = end
    if last != size - 8 - length:
        here = size - 8 - length
        raise _odd(path, f"{last:,} bytes of tensors, as its header says", f"{here:,}")
    return found


def _tensor(path, name, entry):
    """(begin, end, `Tensor`) of an entry."""
    if not isinstance(entry, dict) or entry.keys() != KEYS:
        raise _odd(path, f"dtype, shape and data_offsets for {shown(name)}", shown(entry))
    if len(name) > MOST_LETTERS:
        raise _odd(path, f"names of at most {MOST_LETTERS} letters", shown(name))
    dtype, shape, offsets = entry["dtype"], entry["shape"], entry["data_offsets"]
    bits = BITS.get(dtype) if isinstance(dtype, str) else None
    if bits is None:
        raise _odd(path, f"of {', '.join(BITS)} for {shown(name)}", shown(dtype))
    if not _sizes(shape) or len(shape) > 32:
        raise _odd(path, f"a shape of whole numbers for {shown(name)}", shown(shape))
    if not _sizes(offsets) or len(offsets) != 2 or offsets[0] > offsets[1]:
        raise _odd(path, f"begin and end in bytes for {shown(name)}", shown(offsets))
    begin, end = offsets
    elements = math.prod(shape)
    if elements > MOST_ELEMENTS or elements * bits != 8 * (end - begin):
        like = f"the bytes of {dtype} {list(shape)} for {shown(name)}"
        raise _odd(path, like, f"{end - begin:,}")
    return begin, end, Tensor(dtype, tuple(shape), end - begin)


def _sizes(values):
    plain = isinstance(values, list) and set(map(type, values)) <= {int}
    return plain and (not values or (min(values) >= 0 and max(values) <= MOST_ELEMENTS))


def _opened(path, what="file"):
    """The file opened; neither a folder nor a device, which could block for ever."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise _odd(path, "a plain file", "another kind", what)
        return open(path, "rb")  # closed by who asked
    except (OSError, ValueError) as error:
        if not isinstance(error, OSError) and "must be" in str(error):
            raise
        why = error.strerror if isinstance(error, OSError) else "no path"
        raise ValueError(
            f"weights must be a folder, a .safetensors file or an index, got {shown(str(path))}: "
            f"{why}"
        ) from None


def _parsed(path, text, what="header of"):
    """A JSON object in which no key stands twice."""
    try:
        said = json.loads(text.decode("utf-8"), object_pairs_hook=_unique, parse_constant=_refuse)
    except RecursionError:
        raise _odd(path, "JSON", "one nested too deep", what) from None
    except ValueError as error:
        raise _odd(path, "JSON", str(error)[:100], what) from None
    if not isinstance(said, dict):
        raise _odd(path, "a JSON object", shown(said), what)
    return said


def _unique(pairs):
    found = dict(pairs)
    if len(found) < len(pairs):
        seen = set()
        twice = next(key for key, _ in pairs if key in seen or seen.add(key))
        raise ValueError(f"key {shown(twice)} twice")
    return found


def _refuse(text):
    raise ValueError(f"{text} is no number")


def _odd(path, accepted, got, what="file"):
    return ValueError(f"{what} {shown(path.name)} must be {accepted}, got {got}")
