"""The oracle of quantised weights: `cplab.oracle` with every matrix by the law of `cplab.arithmetic_quantised`.

The input of a matrix is quantised for each token; what comes out is float32 again, so norms, RoPE, attention, SwiGLU,
the residual, the bias and the embeddings are as in `cplab.oracle`.

A model with matrices in several formats has a law too, ``stored``: what goes into a matrix and what comes out is
float32, so each matrix has the law of the format that it is stored in, and nothing between two matrices need know of
either. Where all are stored alike that is ``f32``, or the law of their format, itself (`stored_law`).
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cplab import arithmetic_quantised as law
from cplab.errors import BadInputError, NonFiniteActivationError
from cplab.formats import FORMATS, STORED
from cplab.model import Model, Tensor, is_streamed
from cplab.oracle import Oracle, OracleFrame, Vector
from cplab.sampling import Draws

#: Ids of rounding laws that have an oracle: float32, integers in the blocks of a format of the same name, or a mix.
ARITHMETICS = ("f32", *(name for name, kind in FORMATS.items() if kind.blocks is not None), STORED)


def stored_law(model: Model) -> str:
    """The law of a model whose matrices are computed with as they are stored; ``stored`` where they have several."""
    laws = {"f32" if t.format.blocks is None else t.format.name for n, t in model.tensors.items() if is_streamed(n)}
    return laws.pop() if len(laws) == 1 else STORED


def oracle_for(model: Model, arithmetic: str = "f32") -> Oracle:
    """The oracle of a model in an arithmetic.

    Raises:
        BadInputError: no such arithmetic, or a matrix that is not in its format.
    """
    _require_known(arithmetic)
    return Oracle(model) if arithmetic == "f32" else QuantisedOracle(model, arithmetic)


def in_arithmetic(model: Model, arithmetic: str) -> Model:
    """A model as an arithmetic wants it: as it is for ``f32`` and ``stored``, else with its matrices in that format.

    Raises:
        BadInputError: no such arithmetic.
        UnpackableError: a weight that the format cannot hold.
    """
    _require_known(arithmetic)
    return model if arithmetic == "f32" else model.repacked(arithmetic)[0]


def _require_known(arithmetic: str) -> None:
    if arithmetic not in ARITHMETICS:
        raise BadInputError(f"no arithmetic {arithmetic!r}; there are {', '.join(ARITHMETICS)}")


class QuantisedOracle(Oracle):
    """The law of quantised weights applied to a model whose matrices are in that format, or each in its own."""

    def __init__(self, model: Model, arithmetic: str) -> None:
        for name, tensor in model.tensors.items():
            if arithmetic != STORED and is_streamed(name) and tensor.format.name != arithmetic:
                raise BadInputError(
                    f"{model.name}: {name} is {tensor.format.name}; arithmetic {arithmetic} wants every matrix in "
                    f"{arithmetic} (Model.repacked)"
                )
        super().__init__(model)

    def decoded(self, tensor: Tensor) -> Any:
        """A quantised matrix as ``(integers int8 [rows, n], scales f32 [rows, n / 32 or 16])``, the rest as float32."""
        if not is_streamed(tensor.name) or tensor.format.blocks is None:
            return super().decoded(tensor)
        quants, scales = tensor.format.blocks(tensor.data)
        return quants, scales.astype(np.float32)

    def linear(self, name: str, x: Vector) -> Vector:
        """``W @ x`` row by row, ``x`` quantised where ``W`` is.

        Raises:
            NonFiniteActivationError: ``x`` holds a NaN or an infinity; `pass_logits` says in which pass.
        """
        if not isinstance(self.weights[name], tuple):
            return super().linear(name, x)
        quants, scales = self.weights[name]
        q, d = np.empty(len(x), np.int8), np.empty(len(x) // law.BLOCK, np.float32)
        if not law.quantise(np.ascontiguousarray(x), q, d):
            raise NonFiniteActivationError(0, 0, name)
        y = np.empty(len(quants), np.float32)
        law.matvec(quants, scales, q, d, y)
        return y

    def pass_logits(self, g: int, inputs: list[Vector]) -> Vector:
        """See `Oracle.pass_logits`.

        Raises:
            NonFiniteActivationError: with the pass and the matrix.
        """
        try:
            return super().pass_logits(g, inputs)
        except NonFiniteActivationError as error:
            raise NonFiniteActivationError(0, g, error.matrix) from None

    def scored(
        self, hidden: Vector, cb0_embed: Vector, forced: NDArray[np.int32], draws: Draws | None = None
    ) -> OracleFrame:
        """See `Oracle.scored`; where an activation is not finite, pass by pass, which tells the pass."""
        try:
            return super().scored(hidden, cb0_embed, forced, draws)
        except NonFiniteActivationError:
            return self.frame(hidden, cb0_embed, forced, draws)
