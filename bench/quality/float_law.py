"""The float32 law of a model, fast: the lab's kernels, believed where they give the digests of the golden's frames.

A frame takes the oracle seconds at the published shape, and the kernels give the same bits in a fiftieth of that. So
they are asked first, and what they say of the golden's frames is held against its digests; where that is not the same
to the last bit, the oracle says everything.
"""

from __future__ import annotations

import numpy as np

from bench.quality.truth import Float32, Int32, Truth
from cplab.decoder import Decoder
from cplab.errors import GoldenError, NonFiniteLogitsError
from cplab.golden import Golden, row_digests
from cplab.model import Model, is_streamed
from cplab.oracle import Oracle
from cplab.variant import Trace

#: Formats that decode to float32 as they are: a model held in one of them is packed without a change.
_FLOATS = ("bf16", "f16", "f32")


class FloatLaw:
    """What a model says in float32.

    Args:
        model: the original weights.
        golden: made from them.
        threads: of the kernels.

    Attributes:
        decoder: the predictor whose bits are the law's; None where this machine's kernels do not give them.

    Raises:
        GoldenError: the golden belongs to other weights, or this machine's oracle does not give its digests.
    """

    def __init__(self, model: Model, golden: Golden, threads: int) -> None:
        golden.require(model)
        self.model, self.golden = model, golden
        self.decoder: Decoder | None = Decoder(model, threads, format=lossless_format(model))
        own = self._by_kernels(golden.hidden, golden.cb0_embed, golden.codes)
        if own is None or not np.array_equal(row_digests(own), golden.digests):
            self.decoder = None
            own = self._by_oracle(golden.hidden, golden.cb0_embed, golden.codes)
            if not np.array_equal(row_digests(own), golden.digests):
                raise GoldenError("the golden's digests are not those of this machine's oracle; make it again")
        self._own = Truth(golden.hidden, golden.cb0_embed, golden.codes, own)

    def of_golden(self, frames: int | None = None) -> Truth:
        """The golden's first frames, default all, its own codes pinned."""
        own, part = self._own, slice(0, frames)
        return Truth(own.hidden[part], own.cb0_embed[part], own.codes[part], own.logits[part])

    def of(self, hidden: Float32, cb0_embed: Float32, codes: Int32) -> Truth:
        """Other frames: ``hidden``, ``cb0_embed [F, talker_hidden]``, ``codes [F, groups-1]`` that are pinned.

        Raises:
            NonFiniteLogitsError: the model itself gives logits that are not finite.
        """
        logits = self._by_kernels(hidden, cb0_embed, codes) if self.decoder is not None else None
        if logits is None:
            logits = self._by_oracle(hidden, cb0_embed, codes)
        return Truth(hidden, cb0_embed, codes, logits)

    def _by_kernels(self, hidden: Float32, cb0_embed: Float32, codes: Int32) -> Float32 | None:
        """None where a logit is not finite: the oracle then says in which frame."""
        trace = Trace()
        assert self.decoder is not None
        try:
            self.decoder.predict(hidden, cb0_embed, forced=codes, trace=trace)
        except NonFiniteLogitsError:
            return None
        return trace.logits

    def _by_oracle(self, hidden: Float32, cb0_embed: Float32, codes: Int32) -> Float32:
        oracle = Oracle(self.model)
        return np.stack([oracle.scored(*frame).logits for frame in zip(hidden, cb0_embed, codes, strict=True)])


def lossless_format(model: Model) -> str:
    """The narrowest float format that holds a model's matrices as they are: their own where all have one, or f32."""
    held = {tensor.format.name for name, tensor in model.tensors.items() if is_streamed(name)}
    own = held.pop() if len(held) == 1 else "f32"
    return own if own in _FLOATS else "f32"
