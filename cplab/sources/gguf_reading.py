"""GGUF files of every dialect, read: first a survey of names, shapes and keys, then the tensors.

The survey reads no tensor, so it is what `inspect` shows. A model is made only of a survey without a complaint: every
field of the Spec comes out of the file (or out of NAME.spec.json beside it, where a person says what a converter left
out), every tensor is there once, none is left over.
"""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from cplab.errors import UnreadableModelError
from cplab.formats import FORMATS, Format
from cplab.model import Model, Tensor, is_streamed
from cplab.sources import parts
from cplab.sources.dialects import DIALECTS, Dialect, Source, dialect_of
from cplab.sources.gguf_header import Header, StoredTensor, Undecodable, read_header
from cplab.spec import Spec

SYNTHETIC_KEY = "cplab.synthetic"
#: Formats that are mapped as they lie, blocks only as matrices that passes stream; everything else becomes F32.
AS_STORED: dict[Any, Format] = {
    gguf.GGMLQuantizationType[name.upper()]: kind for name, kind in FORMATS.items() if kind.in_files
}
#: The Spec's fields that a file must say; groups come first, since concatenated tables are divided by them.
_FIELDS = (
    "groups", "layers", "hidden", "intermediate", "heads", "kv_heads", "head_dim", "vocab", "rope_theta", "rms_eps",
    "talker_hidden",
)  # fmt: skip
_FLOATS = ("rope_theta", "rms_eps")
#: What a person may say beside a file stays below this; the Spec has bounds of its own.
_LARGEST = 1e30


@dataclass(frozen=True, slots=True)
class Placement:
    """Where one tensor of the checkpoint lies: a stored tensor, or one of its equal pieces."""

    stored: StoredTensor
    part: int | None
    parts: int


@dataclass(slots=True)
class Survey:
    """What a file says of itself.

    Attributes:
        path: the file.
        dialect: who wrote it.
        tensors: every stored tensor, those of files beside it included.
        values: Spec fields that were found.
        origins: Spec field -> where its value came from, in words.
        spec: the Spec, where it is complete.
        placements: checkpoint name -> where it lies.
        problems: what is wrong, a sentence each; empty for a file that can be read.
        synthetic: the weights were made from a seed.
    """

    path: Path
    dialect: Dialect
    keys: dict[str, Any]
    tensors: dict[str, StoredTensor]
    values: dict[str, Any] = field(default_factory=dict)
    origins: dict[str, str] = field(default_factory=dict)
    spec: Spec | None = None
    placements: dict[str, Placement] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    @property
    def synthetic(self) -> bool:
        """Whether the file is marked as made from a seed."""
        return SYNTHETIC_KEY in self.keys

    def is_foreign(self, stored: StoredTensor) -> bool:
        """Whether a stored tensor is not the code predictor's."""
        return self.dialect.passes_over(stored.name)


def read(path: Path) -> Model:
    """Read and map a file. Floats stay as they lie, and so do the blocks of matrices in Q8_0, Q6_K, Q5_0 and Q4_0.

    What else is quantised is dequantised to F32: other types, and embeddings, whose rows are looked up and summed.

    Raises:
        UnreadableModelError: naming what is wrong: not GGUF, truncated, another architecture, a missing key, a
            missing or left-over tensor, a wrong shape, a type that the gguf package cannot dequantise.
    """
    survey = surveyed(path)
    if survey.spec is None or survey.problems:
        raise UnreadableModelError(f"{path}: {'; '.join(survey.problems)}")
    shapes = survey.spec.shapes()
    files = {placement.stored.file for placement in survey.placements.values()}
    data = {file: np.memmap(file, np.uint8, "r") for file in files}
    with ThreadPoolExecutor(2) as pool:
        loaded = pool.map(
            lambda name: _tensor(
                name, shapes[name], survey.placements[name], data[survey.placements[name].stored.file]
            ),
            shapes,
        )
        return Model(str(path), survey.spec, {t.name: t for t in loaded}, synthetic=survey.synthetic)


def _tensor(name: str, shape: tuple[int, ...], placement: Placement, data: NDArray[np.uint8]) -> Tensor:
    stored = placement.stored
    raw = stored.bytes_of(data, placement.part, placement.parts)
    kind = AS_STORED.get(stored.kind)
    if kind is not None and (kind.blocks is None or is_streamed(name)):
        return Tensor(name, kind, raw.view(kind.storage).reshape(kind.stored_shape(shape)))
    block, block_bytes = gguf.GGML_QUANT_SIZES[stored.kind]
    rows = np.asarray(raw).reshape(*shape[:-1], shape[-1] // block * block_bytes)
    return Tensor(name, FORMATS["f32"], gguf.quants.dequantize(rows, stored.kind), stored.kind.name.lower())


def surveyed(path: Path) -> Survey:
    """What a file says, without reading a tensor.

    Raises:
        UnreadableModelError: the head cannot be read, or holds no code predictor in any known dialect.
    """
    header = read_header(path)
    dialect = dialect_of(header)
    if dialect is None:
        raise UnreadableModelError(f"{path}: {_not_ours(header)}")
    survey = Survey(path, dialect, dict(header.keys), dict(header.tensors))
    if dialect.side_files:
        for part in parts.beside(path, survey.problems):
            survey.keys = {**part.keys, **survey.keys}
            twice = sorted(set(part.tensors) & set(survey.tensors))
            if twice:
                survey.problems.append(f"{part.path.name} holds again {', '.join(twice)}")
            survey.tensors |= part.tensors
    _find_values(survey)
    _make_spec(survey)
    _place(survey)
    _check_types(survey)
    return survey


def _not_ours(header: Header) -> str:
    architecture = header.keys.get("general.architecture")
    if architecture is None:
        return "metadata key general.architecture is missing"
    if isinstance(architecture, Undecodable):
        return "metadata key general.architecture is damaged (not UTF-8); copy it again"
    known = sorted({dialect.architecture for dialect in DIALECTS})
    if architecture in known:
        return f"no tensor of a code predictor in it (architecture {architecture!r})"
    return f"architecture {architecture!r}, not a code predictor ({', '.join(map(repr, known))})"


# -- the Spec's fields ------------------------------------------------------------------------------------------------


def _find_values(survey: Survey) -> None:
    """Fill ``values`` and ``origins``; complain of every key that is missing or no number."""
    said = _said_beside(survey)
    missing = []
    for name in _FIELDS:
        sources = survey.dialect.sources[name]
        complaints = len(survey.problems)
        for source in sources:
            value = _number(survey, source, survey.values.get("groups"))
            if value is not None:
                survey.values[name] = float(value) if name in _FLOATS else value
                survey.origins[name] = _origin(source)
                break
        else:
            if name in said:
                survey.values[name] = float(said[name]) if name in _FLOATS else said[name]
                survey.origins[name] = _spec_file(survey.path).name
            elif len(survey.problems) == complaints and not _waits_for_groups(survey, sources):
                missing.append(name)
        if name in said and name in survey.values and survey.values[name] != said[name]:
            survey.problems.append(
                f"{_spec_file(survey.path).name} says {name} {said[name]}, the file {survey.values[name]}"
            )
    for name in missing:
        advice = survey.dialect.advice.get(name)
        survey.problems.append(
            f"{_lacking(survey, survey.dialect.sources[name])} is missing"
            + (f" ({advice}; if you know it, write it into {_spec_file(survey.path).name})" if advice else "")
        )


def _waits_for_groups(survey: Survey, sources: tuple[Source, ...]) -> bool:
    """Whether a number only lacks the group count, whose absence is told already."""
    concatenated = [s for s in sources if s.take == "concatenated rows" and s.at in survey.tensors]
    return bool(concatenated) and "groups" not in survey.values


def _lacking(survey: Survey, sources: tuple[Source, ...]) -> str:
    """What is missing: of several keys the first that bears the file's own architecture."""
    keys = [source.at for source in sources if source.take == "key"]
    keys.sort(key=lambda key: not key.startswith(f"{survey.keys.get('general.architecture')}."))
    key = f"metadata key {keys[0]}" if keys else None
    tensor = next((f"tensor {source.at}" for source in sources if source.take != "key"), None)
    return " or ".join(filter(None, (key, tensor)))


def _origin(source: Source) -> str:
    if source.take == "key":
        return source.at + (" (the talker's)" if source.talkers else "")
    return f"{source.take} of {source.at}"


def _number(survey: Survey, source: Source, groups: Any) -> Any:
    """The number at a source; None where there is none."""
    if source.take == "key":
        if source.at not in survey.keys:
            return None
        value = survey.keys[source.at]
        if isinstance(value, bool) or not isinstance(value, int | float):
            what = (
                "text that is not UTF-8"
                if isinstance(value, Undecodable)
                else value
                if not isinstance(value, str)
                else repr(value)
            )
            survey.problems.append(f"metadata key {source.at} holds {what}, a number is wanted")
            return None
        # A float32 key read back as float64 (9.99999997e-07) means the shortest decimal that gives the same float32.
        with np.errstate(over="ignore"):
            return float(str(np.float32(value))) if isinstance(value, float) else value
    stored = survey.tensors.get(source.at)
    if stored is None:
        return None
    shape = stored.shape
    match source.take:
        case "rows":
            return shape[0]
        case "width":
            return shape[-1]
        case "stack" if len(shape) == 3:
            return shape[0] + 1
        case "stack rows" if len(shape) == 3:
            return shape[1]
        case "concatenated rows" if len(shape) == 2 and isinstance(groups, int) and groups > 1:
            if shape[0] % (groups - 1):
                survey.problems.append(f"{source.at} has {shape[0]} rows, which {groups - 1} codebooks cannot share")
                return None
            return shape[0] // (groups - 1)
    return None


def _spec_file(path: Path) -> Path:
    return path.with_name(path.stem + ".spec.json")


def _said_beside(survey: Survey) -> dict[str, Any]:
    """NAME.spec.json, where a person says what the converter left out: ``{"rope_theta": 1000000.0}``."""
    path = _spec_file(survey.path)
    try:
        said = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        survey.problems.append(f"{path.name} cannot be read ({error})")
        return {}
    if not isinstance(said, dict) or any(
        name not in _FIELDS or isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > _LARGEST
        for name, value in said.items()
    ):
        survey.problems.append(f"{path.name} must hold numbers by these names: {', '.join(_FIELDS)}")
        return {}
    return said


def _make_spec(survey: Survey) -> None:
    names = survey.dialect.names.get("small_to_mtp_projection", ())
    projected = any(f"{name}.weight" in survey.tensors for name in names)
    if len(survey.values) < len(_FIELDS):
        return
    if survey.dialect.tables_projected and _projected_before(survey):
        return
    try:
        survey.spec = Spec(**survey.values, projected=projected)
    except UnreadableModelError as error:
        survey.problems.append(str(error))


def _projected_before(survey: Survey) -> bool:
    """Complain where a 1.7B's tables went through a projection that the file does not have."""
    beside = survey.path.with_name("proj_weight.npy")
    width, hidden = survey.values["talker_hidden"], survey.values["hidden"]
    if width == hidden and not beside.exists():
        return False
    why = f"{beside.name} lies beside it" if width == hidden else f"the talker is {width} wide"
    survey.problems.append(
        f"a 1.7B whose tables are projected to {hidden} already ({why}), while hidden and cb0_embed cannot be "
        "projected from this file: take the checkpoint or another converter's file"
    )
    return True


# -- tensors ----------------------------------------------------------------------------------------------------------


def _place(survey: Survey) -> None:
    """Find every tensor of the Spec; complain of wrong shapes, missing and left-over ones."""
    spec, dialect = survey.spec, survey.dialect
    if spec is None:
        return
    used: set[str] = set()
    missing: list[str] = []
    wrong: dict[str, str] = {}
    for name, shape in spec.shapes().items():
        candidates = list(dialect.stored_names(name))
        stored_name, index = next((c for c in candidates if c[0] in survey.tensors), candidates[0])
        stored = survey.tensors.get(stored_name)
        if stored is None:
            if stored_name not in missing:
                missing.append(stored_name)
            continue
        used.add(stored_name)
        codebooks = spec.groups - 1
        wanted = [shape] if index is None else [(codebooks, *shape), (codebooks * shape[0], *shape[1:])]
        if stored.shape not in wanted:
            expected = wanted[0] if len(stored.shape) != 2 else wanted[-1]
            wrong[stored_name] = f"{stored_name} has shape {list(stored.shape)}, the metadata says {list(expected)}"
            continue
        survey.placements[name] = Placement(stored, index, codebooks)
    left = [name for name in survey.tensors if name not in used and not dialect.passes_over(name)]
    survey.problems += wrong.values()
    if missing or left:
        told = [
            f"{what} {', '.join(sorted(some))}" for what, some in (("missing", missing), ("left over", left)) if some
        ]
        survey.problems.append(f"tensors {'; '.join(told)}")


def _check_types(survey: Survey) -> None:
    """Complain of types that are neither mapped nor dequantised; tried on a row of zeros, so nothing is read."""
    unreadable: dict[str, list[str]] = {}
    for stored in {p.stored.name: p.stored for p in survey.placements.values()}.values():
        if stored.kind not in AS_STORED and not _dequantisable(stored.kind):
            unreadable.setdefault(stored.kind.name, []).append(stored.name)
    for kind, names in unreadable.items():
        survey.problems.append(
            f"{', '.join(names)}: of type {kind}; F32, BF16, F16 and what the gguf package dequantises can be read"
        )


def expanded(kind: Any) -> bool:
    """Whether matrices of a type are read, and decoded to float32 since nothing here runs on them as they lie."""
    return kind not in AS_STORED and _dequantisable(kind)


def _dequantisable(kind: Any) -> bool:
    try:
        gguf.quants.dequantize(np.zeros((1, gguf.GGML_QUANT_SIZES[kind][1]), np.uint8), kind)
    except NotImplementedError:
        return False
    return True
