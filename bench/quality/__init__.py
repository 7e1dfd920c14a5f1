"""How far an implementation is from what the model says in float32: the figures behind ``python -m bench quality``.

`bench.quality.teacher_forced.measure` is the core: an implementation, or anything that gives logits, beside a `Truth`.
"""
