"""Split prefill: the positions before the first code have a pass each, and no bit of any logit changes."""

from __future__ import annotations

import pytest
from small_models import arithmetic_of, digest, formats_of, inputs, oracle_logits, small_model

from cplab.decoder import Decoder
from cplab.kernels import layout, stages, team
from cplab.variant import Trace


class Staged(Decoder):
    """Runs the passes of given words, the members of a team one after another in every stage."""

    def __init__(self, model, members, words, *, format):
        super().__init__(model, 1, format=format)
        self.members, self.words = members, words
        self.threads, self._batch = members, 0  # so that each is given its private space

    def _launch(self):
        for word in self.words:
            self.stage(stages.INPUT, 0, word)
            for layer in range(self.model.spec.layers):
                for stage in range(stages.QKV, stages.HEAD):
                    self.stage(stage, layer, word)
            if layout.drafts_of(word) >= 0:
                self.stage(stages.HEAD, 0, word)
        self.stage(stages.FINISH, 0, self.model.spec.passes - 1)

    def stage(self, stage, layer, word):
        for m in range(self.members):
            team.run_stage(self._plan, stage, layer, word, m, self.members)


def found(decoder, hidden, cb0):
    trace = Trace()
    return digest(decoder.predict(hidden, cb0, trace=trace), trace.logits)


FIRST, SECOND = layout.prefill(0), layout.prefill(1)


def test_each_has_one_position_and_the_second_gives_the_first_code():
    assert [layout.new_tokens_of(word) for word in (0, FIRST, SECOND, 1)] == [(0, 2), (0, 1), (1, 1), (2, 1)]
    assert [layout.first_code(word) for word in (FIRST, SECOND)] == [0, 0]
    assert [layout.drafts_of(word) for word in (0, SECOND)] == [0, 0]


@pytest.mark.parametrize("members", [1, 2, 3, 7])
@pytest.mark.parametrize("name", ["tiny", "projected", "wide"])
def test_merged_and_split_prefill_give_the_oracles_bits(name, members):
    model = small_model(name)
    later = tuple(range(1, model.spec.passes))
    for batch in (1, 3):
        hidden, cb0 = inputs(model, batch)
        wanted = {}
        for kind in formats_of(model):
            law = arithmetic_of(kind)
            wanted[law] = wanted.get(law) or digest(*oracle_logits(model, hidden, cb0, arithmetic=law))
            for words in ((0, *later), (FIRST, SECOND, *later)):
                assert found(Staged(model, members, words, format=kind), hidden, cb0) == wanted[law], (kind, words)


def test_the_second_reads_what_the_first_has_left_in_the_cache():
    model = small_model("tiny")
    hidden, cb0 = inputs(model, 1)
    later = tuple(range(1, model.spec.passes))
    left_out = found(Staged(model, 1, (SECOND, *later), format="bf16"), hidden, cb0)
    assert left_out != digest(*oracle_logits(model, hidden, cb0))
