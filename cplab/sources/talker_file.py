"""A talker's GGUF file, looked at before llama.cpp gets it: its architecture, its width, CB0's table and head."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from numpy.typing import NDArray

from cplab.errors import BadInputError, UnreadableModelError
from cplab.sources.gguf_header import Header, StoredTensor, read_header
from cplab.spec import Spec

ARCHITECTURE = "qwen3"
#: Codes of a talker beyond those of the codebook: begin, end, pad, thinking, languages, speakers.
SPECIAL_CODES = 1024
_TABLE, _HEAD = "token_embd.weight", "output.weight"
_EXPORT = "python -m cplab export CHECKPOINT_DIR --talker FILE writes one"


@dataclass(frozen=True, slots=True)
class TalkerFile:
    """What a talker's file says of itself.

    Attributes:
        path: where it lies.
        width: of its inputs and hidden states.
        vocab: codes that its head chooses from, the special ones included.
        layers: how many.
        kind: type of most of its matrices, in lower case, as llama.cpp names it.
    """

    path: Path
    width: int
    vocab: int
    layers: int
    kind: str

    def must_fit(self, spec: Spec) -> None:
        """Refuse a talker that this code predictor was not made for.

        Raises:
            BadInputError: another width, or a codebook of another size.
        """
        if self.width != spec.talker_hidden:
            raise BadInputError(
                f"{self.path}: a talker of width {self.width}; the code predictor wants {spec.talker_hidden}"
            )
        if self.vocab != spec.vocab + SPECIAL_CODES:
            raise BadInputError(
                f"{self.path}: a vocabulary of {self.vocab}; beside codebooks of {spec.vocab} codes it has "
                f"{spec.vocab + SPECIAL_CODES}"
            )

    def codec_embedding(self) -> NDArray[np.float32]:
        """CB0's table, ``[vocab, width]`` f32; a quantised one is dequantised."""
        stored = _tensor(read_header(self.path), _TABLE)
        raw = stored.bytes_of(np.memmap(self.path, np.uint8, "r"), None, 1)
        block, size = gguf.GGML_QUANT_SIZES[stored.kind]
        rows = np.asarray(raw).reshape(self.vocab, self.width // block * size)
        table: NDArray[np.float32] = np.ascontiguousarray(gguf.quants.dequantize(rows, stored.kind), np.float32)
        if not np.isfinite(table).all():
            raise UnreadableModelError(f"{self.path}: {_TABLE} holds NaN or infinite values")
        return table


def read_talker_file(path: Path) -> TalkerFile:
    """The head of a talker's file; of its tensors nothing is read.

    Raises:
        UnreadableModelError: no GGUF, another architecture, a key or tensor that is missing, shapes that disagree.
    """
    header = read_header(path)
    architecture = header.keys.get("general.architecture")
    if architecture != ARCHITECTURE:
        raise UnreadableModelError(f"{path}: architecture {architecture!r}, not a talker ({ARCHITECTURE!r}); {_EXPORT}")
    width, layers = _whole(header, "qwen3.embedding_length"), _whole(header, "qwen3.block_count")
    table, head = _tensor(header, _TABLE), _tensor(header, _HEAD)
    for stored in (table, head):
        if len(stored.shape) != 2 or stored.shape[1] != width or stored.shape[0] != table.shape[0]:
            raise UnreadableModelError(
                f"{path}: {stored.name} is {list(stored.shape)}, [{table.shape[0]}, {width}] is wanted"
            )
    matrices = [t for name, t in header.tensors.items() if name.startswith("blk.") and len(t.shape) == 2]
    if not matrices:
        raise UnreadableModelError(f"{path}: no tensor blk.*: it has no layers; {_EXPORT}")
    (kind, _), *_ = Counter(t.kind.name.lower() for t in matrices).most_common(1)
    return TalkerFile(path, width, int(table.shape[0]), layers, kind)


def _whole(header: Header, key: str) -> int:
    value: Any = header.keys.get(key)
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        told = "is missing" if value is None else f"is {value}"
        raise UnreadableModelError(f"{header.path}: metadata key {key} {told}")
    return value


def _tensor(header: Header, name: str) -> StoredTensor:
    found = header.tensors.get(name)
    if found is None:
        what = {_TABLE: "CB0's table", _HEAD: "CB0's head"}[name]
        raise UnreadableModelError(f"{header.path}: tensor {name} ({what}) is missing; {_EXPORT}")
    return found
