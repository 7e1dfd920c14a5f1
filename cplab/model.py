"""Model: a Spec and the tensors that fill it, by their checkpoint names, memory-mapped where they come from a file."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cplab.errors import UnpackableError, UnreadableModelError
from cplab.formats import STORED, Format, format_named
from cplab.formats.format import differing
from cplab.spec import Spec


@dataclass(frozen=True, slots=True)
class Tensor:
    """One tensor as stored.

    Attributes:
        name: checkpoint name without the ``talker.code_predictor.`` prefix.
        format: how ``data`` is stored.
        data: array in the format's storage dtype, rows first, an item for each block of a row (`Format.block`; for
            float formats the checkpoint's own shape); kept contiguous, since kernels walk rows by address.
        decoded: the quantised format that the file has it in, where reading decoded it to floats; else "".
    """

    name: str
    format: Format
    data: NDArray[Any]
    decoded: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "data", np.ascontiguousarray(self.data))

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape as in the checkpoint, in weights."""
        return self.format.shape_of(self.data)

    def f32(self) -> NDArray[np.float32]:
        """The values, exactly, as float32."""
        return self.format.unpack(self.data)

    def packed(self, target: Format) -> NDArray[Any]:
        """The values in another format, rounded where that format must round.

        Raises:
            UnpackableError: naming this tensor and the weight that the format cannot hold.
        """
        return self.data if target is self.format else self.packed_values(target, self.f32())

    def packed_values(self, target: Format, values: NDArray[np.float32]) -> NDArray[Any]:
        """As `packed`, for a caller that has decoded this tensor's ``values`` already."""
        try:
            return target.pack(values)
        except UnpackableError as error:
            raise type(error)(f"{self.name}: {error}") from error

    def digest(self) -> bytes:
        """SHA-256 of what the tensor says: of a float format the values, whatever holds them.

        Of a quantised format the stored blocks: equal values in other blocks are another model to integer arithmetic.
        """
        if self.format.blocks is None:
            return values_digest(self.f32())
        return hashlib.sha256(self.format.name.encode() + b"\0" + self.data.view(np.uint8).data).digest()


@dataclass(slots=True)
class Model:
    """A code predictor's weights.

    Attributes:
        name: what the user called it: a path or ``synthetic:...``.
        spec: its dimensions.
        tensors: every tensor of ``spec.shapes()``, no more and no fewer.
        synthetic: made from a seed; its codes are not speech.
        known_digest: what `digest` found, kept; set it only where another process has just computed it.
    """

    name: str
    spec: Spec
    tensors: Mapping[str, Tensor]
    synthetic: bool = False
    known_digest: str | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        expected = self.spec.shapes()
        missing = [name for name in expected if name not in self.tensors]
        extra = [name for name in self.tensors if name not in expected]
        if missing or extra:
            parts = [
                f"{what}: {', '.join(some)}" for what, some in (("missing", missing), ("left over", extra)) if some
            ]
            raise UnreadableModelError(f"{self.name}: tensors {'; '.join(parts)}")
        for name, shape in expected.items():
            if self.tensors[name].shape != shape:
                raise UnreadableModelError(
                    f"{self.name}: {name} has shape {list(self.tensors[name].shape)}, the spec says {list(shape)}"
                )

    @property
    def quantised(self) -> list[str]:
        """The quantised formats among those that its file has tensors in, by name; none where all values are floats."""
        held = {t.decoded or ("" if t.format.blocks is None else t.format.name) for t in self.tensors.values()}
        return sorted(held - {""})

    def f32(self, name: str) -> NDArray[np.float32]:
        """A tensor's values as float32."""
        return self.tensors[name].f32()

    def check_finite(self) -> None:
        """Raise UnreadableModelError naming the first tensor that holds a NaN or an infinity."""
        with ThreadPoolExecutor(2) as pool:
            tensors = list(self.tensors.values())
            for tensor, good in zip(tensors, pool.map(lambda t: t.format.finite(t.data), tensors), strict=True):
                if not good:
                    raise UnreadableModelError(f"{self.name}: {tensor.name} holds NaN or infinite weights")

    def digest(self) -> str:
        """Sixteen hex digits over the spec and the *values* of all tensors (of quantised ones, the stored blocks).

        The same weights in another exact container (BF16 as F32, say) have the same digest, so one golden serves both.
        Takes about half a second at the 0.6B shape, once.
        """
        if self.known_digest is None:
            total = hashlib.sha256()
            spec = self.spec.as_dict()
            for key in ("rope_theta", "rms_eps"):
                spec[key] = np.float32(spec[key]).tobytes().hex()
            total.update(repr(sorted(spec.items())).encode())
            names = list(self.spec.shapes())
            with ThreadPoolExecutor(2) as pool:
                for name, part in zip(names, pool.map(lambda n: self.tensors[n].digest(), names), strict=True):
                    total.update(name.encode() + b"\0" + part)
            self.known_digest = total.hexdigest()[:16]
        return self.known_digest

    def repacked(self, format_name: str) -> tuple[Model, int]:
        """This model with its matrices rounded to a format, and how many weights that changed; `STORED` changes none.

        Where a float format changed none, the model itself is returned. A quantised format is taken even so: integer
        arithmetic wants its blocks. Norms, biases and embeddings are held as stored by every variant, so they stay as
        they are.

        Raises:
            UnpackableError: naming the tensor and the weight that the format cannot hold.
        """
        if format_name == STORED:
            return self, 0
        target = format_named(format_name)
        streamed = [t for name, t in self.tensors.items() if is_streamed(name) and t.format is not target]
        if target.name == "f32":
            streamed = []  # it holds everything
        with ThreadPoolExecutor(2) as pool:
            done = list(pool.map(lambda t: _rounded(t, target), streamed))
        kept = {tensor.name: tensor for tensor, _ in done if tensor.format is target}
        if not kept:
            return self, 0
        name = f"{self.name} rounded to {format_name}"
        return Model(name, self.spec, {**self.tensors, **kept}, self.synthetic), sum(count for _, count in done)


def _rounded(tensor: Tensor, target: Format) -> tuple[Tensor, int]:
    """A tensor in another format and how many weights that changed; as it was where a float format changed none."""
    values = tensor.f32()
    data = tensor.packed_values(target, values)
    count = differing(target.unpack(data), values)
    if not count and target.blocks is None:
        return tensor, 0
    return replace(tensor, format=target, data=data), count


def is_streamed(name: str) -> bool:
    """Whether a tensor is a matrix that passes stream: layer matrices, heads, the projection."""
    return name.endswith("_proj.weight") or name.startswith("lm_head.") or name == "small_to_mtp_projection.weight"


def values_digest(values: NDArray[np.float32]) -> bytes:
    """SHA-256 of float32 values in little-endian order."""
    return hashlib.sha256(np.ascontiguousarray(values, "<f4").view(np.uint8).data).digest()
