"""One file, one implementation, one idea.

Read in this order: ``numpy_f32``, ``recompute_f32``, ``recompute_f16``, ``kv_f32``, ``kv_bf16``, ``kv_f16``,
``kv_q8_0``, ``kv_q4_0``, ``kv_q5_0``, ``kv_q6_k``, ``recompute_q8_0``. ``llama_kv`` and ``llama_recompute``
are the rival.
"""
