"""Run in a process of its own: every format x KV or recompute x batch x forced or free, for one team size.

Prints digests of codes and logits by case as JSON, for `test_decoder.py` to compare with the oracle's.
"""

from __future__ import annotations

import json
import sys

from small_models import digest, forced_codes, formats_of, inputs, small_model

from cplab.decoder import Decoder
from cplab.variant import Trace

BATCHES = (1, 2, 3, 8, 9)
FRAMES = max(BATCHES)


def main(name: str, threads: int) -> None:
    model = small_model(name)
    hidden, cb0 = inputs(model, FRAMES)
    found = {}
    for format_name in formats_of(model):
        for recompute in (False, True):
            decoder = Decoder(model, threads, format=format_name, recompute=recompute)
            for batch in BATCHES:
                for forced in (None, forced_codes(model, batch)):
                    trace = Trace()
                    codes = decoder.predict(hidden[:batch], cb0[:batch], forced=forced, trace=trace)
                    mode = "free" if forced is None else "forced"
                    key = f"{format_name} {'recompute' if recompute else 'kv'} {batch} {mode}"
                    found[key] = digest(codes, trace.logits)
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
