"""The plan: everything compiled code needs to know of a model, its buffers and one call, in one int64 array.

A frame is one call into compiled code, and a parallel region takes few and simple arguments best, so dimensions and
addresses travel together. `cplab.decoder` fills the array; the names below are its indices. Addresses are of arrays
that the decoder keeps alive. Unless noted, arrays are float32 and contiguous.
"""

from __future__ import annotations

(
    # Dimensions, from the Spec.
    HIDDEN,
    INTERMEDIATE,
    LAYERS,
    HEADS,
    KV_HEADS,
    HEAD_DIM,
    VOCAB,
    PASSES,
    POSITIONS,
    TALKER_HIDDEN,
    PROJECTED,
    # How to run.
    RECOMPUTE,  # 1: all positions in every pass; 0: KV cache
    AHEAD,  # prefetch distance, bytes
    CLOCK,  # POSIX clock id for pass times
    BATCH,  # B, frames of this call
    IS_FORCED,  # 1: codes fed back come from FORCED
    DRAFTS_GIVEN,  # 1: what a drafter says is not taken down: DRAFTS was filled by the caller
    REJECTABLE,  # drafts of the frame that may be taken in and not hold, after which no more are
    OFFSET_DEPTHS,  # drafts, from the nearest on, that have an offset
    SAMPLED,  # 1: codes are drawn, as SAMPLING and what follows it say; 0: the largest logit's
    TOP_K,
    # The model.
    MATRICES,  # int64 [layers * 4 + 1 + passes, 3]: address, format code, bytes a row; order as in `matrix_index`
    NORMS,  # per layer: input [hidden], q [head_dim], k [head_dim], post-attention [hidden]; then final [hidden]
    TABLES,  # int64 [passes, 3]: codec embeddings: address, format code, bytes a row
    BIAS,  # [hidden], of the projection
    ROPE,  # [2, positions, head_dim / 2]: cos, sin
    NUMBERS,  # [2]: rms epsilon, attention scale
    OFFSETS,  # [passes, OFFSET_DEPTHS, hidden]: added to a normed hidden state before a draft head
    DRAFTER,  # a plan of its own, of the model that drafts; 0 where later heads do
    # Inputs and outputs of the call.
    HIDDEN_IN,  # [B, talker_hidden]
    CB0_IN,  # [B, talker_hidden]
    FORCED,  # int32 [B, passes]
    SAMPLING,  # [2]: temperature, top_p
    NOISE,  # [B, passes, vocab], or 0: noise is made from
    SEEDS,  # uint64 [B]
    FRAMES,  # uint64 [B]
    LOGITS,  # [B, passes, vocab]
    CODES,  # int32 [B, passes]
    DRAFTED,  # int64 [4, passes]: drafts to make before the pass that begins with a code, and to take in; then what was
    DRAFTS,  # int32 [passes, passes]: for the pass that begins with code g, a draft of each code from g on
    FED,  # int32 [passes], of a model that drafts: the codes that it is fed, known ones and drafts; else 0
    DRAFT_TIMES,  # int64 [passes, 3]: when member 0 began to draft by a model, had its first draft, and the last
    LAYER_TIMES,  # int64 [passes, 2]: of the pass that begins with code g, when member 0 entered and left the layers
    STATUS,  # int64: the first value that is not finite, as `layout.trouble` writes it; NO_TROUBLE where there is none
    TIMES,  # int64 [passes + 1]: when member 0 started, and when it had each code's logits
    TRACE,  # int64 [members, passes, parts] ns, or 0: see `tracing`
    # Shared work space; panels are [n / 16][T][16].
    INPUTS,  # [B, positions, hidden]
    RESIDUAL,  # panel of hidden
    QKV,  # panel of q_rows + 2 * kv_rows
    ATTENDED,  # panel of q_rows
    GATED,  # panel of intermediate
    ATTENDED_QUANTS,  # the same two as records of quantised activations, where the arithmetic is
    GATED_QUANTS,
    KEYS,  # [layers, B, kv_heads, positions, head_dim]
    VALUES,  # as KEYS
    # Private work space of each member: PRIVATE + member * PRIVATE_BYTES: a panel, then what stands at these offsets.
    PRIVATE,
    PRIVATE_BYTES,
    SCRATCH_AT,  # two [T][16] blocks
    QUANTS_AT,  # the panel as records of quantised activations
    DRAWING_AT,  # `sampling.work_bytes`
    TEAM,  # int64 words, each in a cache line of its own: see `team`
    # Compiled code, by address.
    UNIT_CODE,  # units.unit
    STAGE_CODE,  # stages.run_stage
    DRAW_CODE,  # sampling.draw
    SIZE,
) = range(65)

#: Matrices of a layer, in the order of a pass. Gate and up are interleaved by units of 16 rows.
QKV_MATRIX, OUT_MATRIX, GATE_UP_MATRIX, DOWN_MATRIX, MATRICES_PER_LAYER = range(5)

#: STATUS where all was finite.
NO_TROUBLE = 2**63 - 1
