"""Every instruction set gives the same bits, in every arithmetic, from code without a trace of what was cut."""

from __future__ import annotations

import pytest
from instruction_sets import TARGETS, X86, Target
from small_models import HOT, arithmetics_of, digest, inputs, oracle_logits, small_model

NAMES = ["tiny", "projected", "wide"]
NATIVE = Target("", "", (), (), ())

#: Code that one thread needs, run in a process of its own; parallel regions take long to compile and hold no kernels.
RUN = """
import json, re
import numba
from cplab.decoder import Decoder
from cplab.kernels import compiling, units
from cplab.variant import Trace
from small_models import HOT, arithmetic_of, digest, formats_of, inputs, small_model

steps = compiling.steps()[:4]
compiling.steps = lambda: steps
found = {}
for name in ("tiny", "projected", "wide"):
    model = small_model(name)
    arrays = inputs(model, 3)
    for format_name in formats_of(model):
        for recompute in (False, True):
            decoder = Decoder(model, 1, format=format_name, recompute=recompute)
            trace = Trace()
            codes = decoder.predict(*arrays, trace=trace)
            drawn = decoder.predict(*arrays, noise=HOT)
            key = f"{name} {arithmetic_of(format_name)}"
            found.setdefault(key, []).append(digest(codes, trace.logits, drawn))
# Code that comes out of the cache has no text.
fresh = numba.cfunc(units.unit.signature, error_model="numpy")(units.unit.function)
assembly = fresh._library.get_asm_str()
words = sorted(set(re.findall(r"^\\s+([a-z][a-z0-9.]+)", assembly, re.M)))
registers = sorted({kind for kind in ("xmm", "ymm", "zmm") if re.search(rf"%{kind}\\d", assembly)})
print(json.dumps({"digests": found, "instructions": words, "registers": registers}))
"""


@pytest.fixture(scope="module")
def expected():
    """The oracles' digests by model and arithmetic."""
    found = {}
    for name in NAMES:
        model = small_model(name)
        for arithmetic in arithmetics_of(model):
            hidden, cb0 = inputs(model, 3)
            drawn, _ = oracle_logits(model, hidden, cb0, arithmetic=arithmetic, noise=HOT)
            greedy = oracle_logits(model, hidden, cb0, arithmetic=arithmetic)
            found[f"{name} {arithmetic}"] = digest(*greedy, drawn)
    assert len(set(found.values())) == len(found)
    return found


def host_has(fresh_process, features):
    names = [feature[1:] for feature in features.split(",") if feature]
    return fresh_process(f"import json\nfrom cplab import jit\nprint(json.dumps(jit.has_feature(*{names!r})))")


@pytest.mark.slow
@pytest.mark.parametrize("name", [*TARGETS, "native"])
def test_an_instruction_set_gives_the_oracles_bits(fresh_process, expected, name):
    target = TARGETS.get(name, NATIVE)
    if target.cpu and not X86:
        pytest.skip("an x86 instruction set")
    if not host_has(fresh_process, target.features):
        pytest.skip(f"this CPU cannot run code for {name}")
    found = fresh_process(RUN, **target.environment)
    assert {key: set(digests) for key, digests in found["digests"].items()} == {k: {v} for k, v in expected.items()}
    if target.cpu:
        assert tuple(found["registers"]) == target.registers
        for wanted in target.present:
            assert any(word.startswith(wanted) for word in found["instructions"]), wanted
        for unwanted in target.absent:
            assert not any(word.startswith(unwanted) for word in found["instructions"]), unwanted
    elif host_has(fresh_process, "+avx512f,+avx512vnni"):
        assert "vpdpbusd" in found["instructions"]
        assert "vpmaddubsw" not in found["instructions"]
