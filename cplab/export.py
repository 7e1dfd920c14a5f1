"""Export: the parts of a checkpoint as GGUF files, bit for bit unless another format is asked for.

Vectors (norms, biases) are written as F32 whatever the format, which every engine expects and which changes no value;
tables of embeddings are not quantised. Tensors go through one at a time, from the mapped checkpoint into a file of a
temporary name.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cplab.errors import BadInputError, UnpackableError
from cplab.formats import FORMATS, Format, format_named
from cplab.model import Model, Tensor
from cplab.recipe import Recipe
from cplab.sources import gguf_writing as writing
from cplab.sources.checkpoint import Checkpoint, code_predictor, open_checkpoint
from cplab.sources.dialects import KAZEIA, OWN
from cplab.sources.gguf_reading import SYNTHETIC_KEY
from cplab.sources.talker import Qwen3, qwen3_name, talker_of

Progress = Callable[[int], None]
#: Mean square inputs ``[columns]`` by the names of matrices.
Energies = dict[str, NDArray[np.float64]]

#: Kazeia's three parts. The engine's own files are not published; `cplab.sources.parts` says what is read.
KAZEIA_LAYERS, KAZEIA_HEADS, KAZEIA_TABLES = "cp_f16.gguf", "cp_heads_f16.gguf", "cp_codec_embd_f16.gguf"
_KAZEIA_FORMAT = "f16"

#: ``general.file_type`` of llama.cpp.
_FILE_TYPES = {"f32": 0, "f16": 1, "bf16": 32, "q8_0": 7, "q6_k": 18, "q5_0": 8, "q4_0": 2}
_WIDER = {("bf16", "f32"), ("f16", "f32")}


@dataclass(frozen=True, slots=True)
class Written:
    """What was done to one tensor.

    Attributes:
        name: in the checkpoint.
        shape: rows first.
        before: format in the checkpoint.
        after: format in the file.
        changed: how many values the new format could not hold.
        vanished: how many of those became zero.
        furthest: largest difference that this made to a value.
    """

    name: str
    shape: tuple[int, ...]
    before: str
    after: str
    changed: int = 0
    vanished: int = 0
    furthest: float = 0.0

    @property
    def action(self) -> str:
        """``copied``, ``widened``, ``converted`` (every value held), or ``rounded``."""
        if self.before == self.after:
            return "copied"
        if (self.before, self.after) in _WIDER:
            return "widened"
        return "rounded" if self.changed else "converted"

    def __str__(self) -> str:
        size = int(np.prod(self.shape))
        line = f"{self.name} {list(self.shape)} {self.before} -> {self.after}: {self.action}"
        if not self.changed:
            return line
        zeros = f", {self.vanished:,} to zero" if self.vanished else ""
        return f"{line}, {self.changed:,} of {size:,} values changed{zeros}, the furthest by {self.furthest:.3g}"


@dataclass(frozen=True, slots=True)
class Part:
    """One file that is to be written.

    Attributes:
        path: where it goes.
        architecture: ``general.architecture``.
        keys: the other metadata.
        tensors: under their names in the checkpoint.
        declared: the same tensors as the file announces them.
        energies: mean square inputs by column, to which Q4_0 blocks of these matrices are fitted.
    """

    path: Path
    architecture: str
    keys: dict[str, str | bool | int | float]
    tensors: list[Tensor]
    declared: list[writing.Declared]
    energies: Energies = field(default_factory=dict)

    @property
    def nbytes(self) -> int:
        """Bytes of its tensors."""
        return sum(tensor.nbytes for tensor in self.declared)

    def write(self, progress: Progress | None = None) -> list[Written]:
        """Write the file and say what was done to each tensor.

        Raises:
            BadInputError: a value is beyond the range of the format that was asked for; nothing is written then.
        """
        done: list[Written] = []

        def arrays() -> Iterator[NDArray[Any]]:
            for tensor, wanted in zip(self.tensors, self.declared, strict=True):
                data, told = converted(tensor, wanted.format, self.energies.get(tensor.name))
                done.append(told)
                yield data

        writing.write_tensors(self.path, self.architecture, self.keys, self.declared, arrays(), progress)
        return done


def converted(
    tensor: Tensor, target: Format, energy: NDArray[np.float64] | None = None
) -> tuple[NDArray[Any], Written]:
    """A tensor's data in another format, and what that did to it.

    Args:
        tensor: as it is.
        target: as it is to be.
        energy: mean square input of each column, to which Q4_0 blocks are fitted; None for the gguf package's blocks.

    Raises:
        BadInputError: a value is beyond the format's range.
    """
    told = Written(tensor.name, tensor.shape, tensor.format.name, target.name)
    if told.action == "copied":
        return tensor.data, told
    values = tensor.f32()
    data = quantised(tensor, target, values, energy)
    if told.action == "widened":
        return data, told
    back = target.unpack(data)
    beyond = int(np.count_nonzero(np.isfinite(values) & ~np.isfinite(back)))
    if beyond:
        largest = float(np.abs(values).max())
        raise BadInputError(f"{tensor.name}: {beyond} values are beyond {target.name} (up to {largest:.6g}); take f32")
    moved = back.view(np.uint32) != values.view(np.uint32)
    was, now = values[moved], back[moved]
    furthest = float(np.abs(was.astype(np.float64) - now).max(initial=0.0))
    return data, replace(told, changed=len(was), vanished=int(np.count_nonzero(now == 0)), furthest=furthest)


def quantised(
    tensor: Tensor, target: Format, values: NDArray[np.float32], energy: NDArray[np.float64] | None
) -> NDArray[Any]:
    """A tensor's values in a format; arguments and errors as of `converted`."""
    if energy is None or target.name != "q4_0" or target is tensor.format:
        return tensor.packed_values(target, values)
    from cplab.formats import fitting  # numba is imported when something is packed, not before

    try:
        return fitting.pack(values, energy)
    except UnpackableError as error:
        raise type(error)(f"{tensor.name}: {error}") from error


def planned(
    folder: Path,
    output: Path | None,
    *,
    matrices: str | None = None,
    recipe: Recipe | None = None,
    fit: str | None = None,
    talker: Path | None = None,
    kazeia: Path | None = None,
) -> list[Part]:
    """Everything that an export writes, checked before any of it is written.

    Args:
        folder: the checkpoint's.
        output: the code predictor's file.
        matrices: format of what is no vector, in ``output`` and ``talker``; None keeps each tensor's own.
        recipe: formats by class of matrices, in ``output``; what it does not name is as ``matrices`` says.
        fit: frames by whose inputs Q4_0 blocks in ``output`` are fitted (`cplab.input_energy.input_energies`).
        talker: the talker's file.
        kazeia: folder of the three files of the Kazeia engine's layout.

    Raises:
        BadInputError: nothing to write, the same file twice, one of the checkpoint's own, or a format for memory only.
        UnpackableError: rows of a matrix that are not made of the format's blocks.
        UnreadableModelError: the checkpoint is not whole.
    """
    if output is None and talker is None and kazeia is None:
        raise BadInputError("nothing to write: give -o FILE, --talker FILE or --kazeia DIR")
    if matrices is not None:
        _require_in_files("--format", matrices)
    if output is None and (recipe is not None or fit is not None):
        raise BadInputError("--recipe and --fit are of the code predictor's file, which is not asked for: -o FILE")
    for name in () if recipe is None else recipe.formats.values():
        _require_in_files("--recipe", name)
    checkpoint = open_checkpoint(folder)
    parts = [code_predictor_part(checkpoint, output, matrices, recipe, fit)] if output is not None else []
    if talker is not None:
        parts.append(talker_part(checkpoint, talker, matrices))
    if kazeia is not None:
        parts += kazeia_parts(checkpoint, kazeia)
    taken = {stored.file.resolve() for stored in checkpoint.stored.values()}
    for part in parts:
        if part.path.resolve() in taken or part.path.is_dir():
            raise BadInputError(f"{part.path}: another file's name is wanted; this one is taken")
        taken.add(part.path.resolve())
    return parts


def _require_in_files(option: str, name: str) -> None:
    """Raise BadInputError for a format that there is not, or that no file holds."""
    if not format_named(name).in_files:
        raise BadInputError(f"{option} {name}: a form of memory that no file holds; export bf16, which is as exact")


def code_predictor_part(
    checkpoint: Checkpoint,
    path: Path,
    matrices: str | None = None,
    recipe: Recipe | None = None,
    fit: str | None = None,
) -> Part:
    """The code predictor as a file of the lab's own dialect.

    Args:
        checkpoint: where it comes from.
        path: where the file goes.
        matrices: format of what is no vector; None keeps each tensor's own.
        recipe: formats by class of matrices; what it does not name is as ``matrices`` says.
        fit: frames by whose inputs Q4_0 blocks are fitted; None for the gguf package's blocks.

    Raises:
        BadInputError: the recipe names what the model does not have; ``fit`` with nothing in Q4_0.
        GoldenError: the frames cannot be read.
        UnreadableModelError: the checkpoint does not hold a whole code predictor.
    """
    model = code_predictor(checkpoint)
    part = model_part(model, path, _named(checkpoint), matrices, recipe)
    if fit is None:
        return part
    if not any(tensor.format.name == "q4_0" for tensor in part.declared):
        raise BadInputError("--fit is of Q4_0 blocks, and no matrix is to be in q4_0")
    from cplab.input_energy import input_energies

    return replace(part, energies=input_energies(model, fit))


def model_part(model: Model, path: Path, name: str, matrices: str | None = None, recipe: Recipe | None = None) -> Part:
    """Any model as a file of the lab's own dialect.

    Args:
        model: its weights.
        path: where the file goes.
        name: ``general.name``.
        matrices: format of what is no vector; None keeps each tensor's own.
        recipe: formats by class of matrices; what it does not name is as ``matrices`` says.

    Raises:
        BadInputError: the recipe names what the model does not have.
        UnpackableError: rows of a matrix that are not made of the format's blocks.
    """
    if recipe is not None:
        recipe.require(model.spec)
    marks = {SYNTHETIC_KEY: True} if model.synthetic else {}
    keys: dict[str, str | bool | int | float] = {"general.name": name, **writing.spec_keys(model.spec), **marks}
    return _part(path, writing.ARCHITECTURE, keys, model.tensors.values(), writing.gguf_name, matrices, recipe)


def talker_part(checkpoint: Checkpoint, path: Path, matrices: str | None = None) -> Part:
    """The talker as a ``qwen3`` of llama.cpp: ``token_embd`` is its codec embedding, ``output`` its codec head.

    Raises:
        UnreadableModelError: the checkpoint does not hold a whole talker.
    """
    dims, tensors = talker_of(checkpoint)
    part = _part(path, "qwen3", {}, tensors, qwen3_name, matrices)
    kinds = {t.format.name for t in part.declared if len(t.shape) > 1 and t.name != _TABLE}
    file_type = {"general.file_type": _FILE_TYPES[kinds.pop()]} if len(kinds) == 1 else {}
    return replace(part, keys={"general.name": f"{_named(checkpoint)} talker", **file_type, **dims.keys()})


def kazeia_parts(checkpoint: Checkpoint, folder: Path) -> list[Part]:
    """The three files of the Kazeia engine's layout, F16.

    ``cp_f16.gguf`` is a ``qwen3`` of the layers and the final norm. llama.cpp loads none without ``token_embd``, so
    there is one, all zeros: the code predictor's tables are fifteen and stand, like its heads, in files of their own,
    under the names that the lab's own files give them. The 1.7B's projection stands with the tables, whose rows (and
    the talker's) go through it.

    Raises:
        UnreadableModelError: the checkpoint does not hold a whole code predictor.
    """
    model = code_predictor(checkpoint)
    spec, name = model.spec, _named(checkpoint)
    dims = Qwen3(
        hidden=spec.hidden,
        intermediate=spec.intermediate,
        layers=spec.layers,
        heads=spec.heads,
        kv_heads=spec.kv_heads,
        head_dim=spec.head_dim,
        vocab=spec.vocab,
        context=checkpoint.code_predictor.whole("max_position_embeddings"),
        rope_theta=spec.rope_theta,
        rms_eps=spec.rms_eps,
    )
    shared = writing.spec_keys(spec, ("groups", "talker_hidden"))
    file_type = {"general.file_type": _FILE_TYPES[_KAZEIA_FORMAT]}
    layers = _part(
        folder / KAZEIA_LAYERS,
        "qwen3",
        {"general.name": f"{name} code predictor", **file_type, **dims.keys(), **shared},
        [_zeros((spec.vocab, spec.hidden)), *_only(model, "model.layers.", "model.norm.")],
        lambda n: n if n == _TABLE else next(KAZEIA.stored_names(n))[0],
        _KAZEIA_FORMAT,
    )
    beside = {
        KAZEIA_HEADS: ("heads", _only(model, "lm_head.")),
        KAZEIA_TABLES: ("codec embeddings", _only(model, "model.codec_embedding.", "small_to_mtp_projection.")),
    }
    return [
        layers,
        *(
            _part(
                folder / file,
                OWN.architecture,
                {"general.name": f"{name} code predictor {what}", **shared},
                tensors,
                writing.gguf_name,
                _KAZEIA_FORMAT,
            )
            for file, (what, tensors) in beside.items()
        ),
    ]


_TABLE = "token_embd.weight"


def _part(
    path: Path,
    architecture: str,
    keys: dict[str, str | bool | int | float],
    tensors: Iterable[Tensor],
    stored_name: Callable[[str], str],
    matrices: str | None,
    recipe: Recipe | None = None,
) -> Part:
    kept = list(tensors)
    asked = None if matrices is None else format_named(matrices)
    wanted = [(t, (recipe and recipe.of(t.name)) or asked or t.format) for t in kept]
    declared = [
        writing.Declared(stored_name(t.name), t.shape, writing.stored_as(t.name, t.shape, kind, t.format))
        for t, kind in wanted
    ]
    return Part(path, architecture, keys, kept, declared)


def _only(model: Model, *starts: str) -> list[Tensor]:
    return [tensor for name, tensor in model.tensors.items() if name.startswith(starts)]


def _zeros(shape: tuple[int, ...]) -> Tensor:
    kind = FORMATS[_KAZEIA_FORMAT]
    return Tensor(_TABLE, kind, np.zeros(shape, kind.storage))


def _named(checkpoint: Checkpoint) -> str:
    return checkpoint.folder.resolve().name
