"""PyTorch as its authors run it: the official class's `generate`, once a frame, in float32.

The idea: none of ours; it is what everybody has who installs the model. The talker of qwen-tts calls `generate` of
transformers for every frame, which prepares a configuration, a cache, masks and logits processors for 15 codes and
calls some 400 operators a pass. `torch_manual` does the same arithmetic without it: the difference is what
`generate` costs.

What to expect: torch sums in the order of its BLAS, so tier `codes`. Attention by `sdpa`, as `from_pretrained` has it.

Cost of a frame at the published shape: 4.85 GB of weights, held once (0.57 GB), 1.3 G multiply-adds, about 6,200
operators called from Python, as torch's profiler counts them.
"""

from __future__ import annotations

import os

import numpy as np
from numpy.typing import NDArray

from cplab import official
from cplab.decoder import require_process
from cplab.model import Model
from cplab.sampling import Noise
from cplab.torch_frames import DecodedTensors, torch_note, torch_streams, torch_threads
from cplab.variant import CodePredictor, Trace, WeightStream, checked_inputs, variant

Array = NDArray[np.float32]


class OfficialPredictor:
    """See `cplab.variant.CodePredictor`; ``trace`` gets no pass times, which `generate` does not tell."""

    def __init__(self, model: Model, threads: int) -> None:
        self._pid = os.getpid()
        self.model, self.threads = model, threads
        official.versions()  # one line on what is missing, before anything is decoded
        with torch_threads(threads):
            self.module = official.build(model.spec, DecodedTensors(model), attention="sdpa")
        self.engine_note = torch_note("transformers", "qwen-tts")
        self.passes_per_frame = model.spec.passes
        self.bytes_per_frame = sum(s.rows * s.row_bytes for s in self.streams())

    def predict(
        self,
        hidden: Array,
        cb0_embed: Array,
        *,
        forced: NDArray[np.int32] | None = None,
        trace: Trace | None = None,
        noise: Noise | None = None,
    ) -> NDArray[np.int32]:
        """See `cplab.variant.CodePredictor.predict`; frames go one after another.

        Codes that are ``forced`` go through the official ``forward``, since `generate` takes none.

        Raises:
            ForkedTeamError: this process is a fork of the one that made the predictor.
        """
        hidden, cb0_embed, forced = checked_inputs(self.model, hidden, cb0_embed, forced, noise)
        require_process(self._pid)
        with torch_threads(self.threads):
            if forced is None:
                codes, logits = official.greedy_codes(self.module, hidden, cb0_embed)
            else:
                logits = official.forced_logits(self.module, hidden, cb0_embed, forced)
                codes = logits.argmax(-1).astype(np.int32)
        if trace is not None:
            trace.logits, trace.pass_ns = logits, np.empty(0, np.int64)
        return codes

    def streams(self) -> list[WeightStream]:
        """Every matrix in the order of a frame."""
        return torch_streams(self.module.state_dict(), self.model.spec)


@variant("torch_f32", format="f32", arithmetic="torch_f32", tier="codes", extra="torch")
def build(model: Model, threads: int) -> CodePredictor:
    """The official class of qwen-tts and its `generate`, float32."""
    return OfficialPredictor(model, threads)
