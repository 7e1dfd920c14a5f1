"""Making a talker dump with the official classes, and what must hold of one before it is written."""

from __future__ import annotations

import platform
import sys
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cplab import __version__, official, official_talker
from cplab.errors import BadInputError, NonFiniteLogitsError
from cplab.official_import import versions
from cplab.official_prompt import Text, prefill_call, text_call
from cplab.recorded import Prompt, codec_embedding
from cplab.sources.checkpoint import Checkpoint, code_predictor
from cplab.sources.talker import talker_digest, talker_of
from cplab.talker_dump import TalkerDump

if TYPE_CHECKING:
    from torch import nn

Float32 = NDArray[np.float32]


def make_dump(
    checkpoint: Checkpoint,
    source: Text | Prompt,
    frames: int,
    *,
    about: dict[str, object] | None = None,
    progress: Callable[[], None] | None = None,
) -> TalkerDump:
    """Let the official talker speak and record it.

    Args:
        checkpoint: whose talker speaks.
        source: a text, or a prefill that was recorded.
        frames: how many at most; the end code may come first.
        about: more for the provenance, such as the prefill's file.
        progress: called after each frame.

    Raises:
        BadInputError: the text names what the checkpoint does not know, or the talker ended before its first frame.
        NonFiniteLogitsError: a logit of CB0 is NaN or infinite.
        OfficialMismatchError: the code predictor alone gives other codes than in the loop, or an input is not its sum.
        OfficialUnavailable: torch, transformers or qwen-tts cannot be imported.
        UnreadableModelError: the checkpoint lacks something.
    """
    if isinstance(source, Text):
        source.check(checkpoint)
    dims, talker = talker_of(checkpoint)
    predictor = code_predictor(checkpoint)
    tokens = official_talker.token_numbers(checkpoint)
    provenance: dict[str, object] = {
        "made_by": f"cplab {__version__}",
        "official": versions(),
        "versions": {"python": platform.python_version(), "numpy": np.__version__},
        "machine": f"{platform.system()} {platform.machine()}",
        "command": " ".join(["python -m cplab", *sys.argv[1:]]),
    }
    model = official_talker.build(checkpoint)
    if isinstance(source, Text):
        call, text_tokens = text_call(model, checkpoint, source)
        provenance |= {**source.about(), "tokens": text_tokens}
    else:
        call = prefill_call(model, checkpoint, source)
    spoken = official_talker.speak(model, call, frames, progress)
    if not spoken.codes:
        raise BadInputError("the talker chose the end code before its first frame; there is nothing to dump")
    bos, eos = official_talker.text_embeddings(model, [tokens["tts_bos_token_id"], tokens["tts_eos_token_id"]])
    tables = [predictor.f32(f"model.codec_embedding.{group}.weight") for group in range(predictor.spec.passes)]
    dump = TalkerDump(
        prefill=spoken.prefill,
        trailing=call.tensors["trailing_text_hidden"][0].numpy(),
        tts_pad=call.tensors["tts_pad_embed"][0, 0].numpy(),
        tts_bos=bos,
        tts_eos=eos,
        hidden=np.stack(spoken.hidden[:-1]),
        logits=np.stack(spoken.logits[:-1]),
        codes=np.stack(spoken.codes),
        step_inputs=np.stack(spoken.inputs),
        final_hidden=spoken.hidden[-1],
        final_logits=spoken.logits[-1],
        codec_embedding=codec_embedding(checkpoint),
        code_predictor_tables=np.stack(tables),
        ended="end code" if spoken.ended else "frames",
        talker_digest=talker_digest(talker),
        code_predictor_digest=predictor.digest(),
        config={"talker": asdict(dims), "code_predictor": predictor.spec.as_dict(), **tokens},
        rules=spoken.rules,
        provenance=provenance | (about or {}),
    )
    check(dump)
    check_code_predictor(model.talker.code_predictor, dump)
    return dump


def check(dump: TalkerDump) -> None:
    """Every logit is a number, and every input is the sum that it is said to be.

    Raises:
        NonFiniteLogitsError: a logit of CB0 is not a number; the frame and pass 0 are named.
        OfficialMismatchError: an input after a frame is further from its sum than float32 additions in any order are.
    """
    bad = np.argwhere(~np.isfinite(np.vstack([dump.logits, dump.final_logits])).all(axis=-1))
    if len(bad):
        raise NonFiniteLogitsError(int(bad[0, 0]), 0, "CB0 of the official talker")
    for frame, given in enumerate(dump.step_inputs):
        terms = dump.terms(frame)
        # Two sums of n terms, each within (n - 1) roundings of the true one.
        bound = 2 * (len(terms) - 1) * 2.0**-24 * np.abs(terms, dtype=np.float64).sum(axis=0)
        off = np.abs(given.astype(np.float64) - dump.next_input(frame))
        if (off > bound).any():
            raise official.OfficialMismatchError(
                f"frame {frame}: the official talker's next input is {off.max():.3g} away from "
                "its CB0 embedding + the code predictor's embeddings + text"
            )


def check_code_predictor(module: nn.Module, dump: TalkerDump) -> None:
    """The code predictor alone, on the recorded states, gives the codes that it gave in the loop.

    Raises:
        OfficialMismatchError: naming the first frame and code that differ.
    """
    codes, _ = official.greedy_codes(module, dump.hidden, dump.cb0_embed)
    wrong = np.argwhere(codes != dump.codes[:, 1:])
    if len(wrong):
        frame, step = (int(i) for i in wrong[0])
        raise official.OfficialMismatchError(
            f"frame {frame}: alone, the official code predictor gives CB{step + 1} = {codes[frame, step]}, "
            f"in the talker's loop {dump.codes[frame, step + 1]}"
        )
