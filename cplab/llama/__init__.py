"""llama.cpp as a rival: the code predictor's layers run by it, heads by the lab's own kernels.

===========  ===========================================================================================
`settings`   what can be set, what is tried for each weight type
`derived`    the code predictor as a ``qwen3`` GGUF that llama.cpp loads, made once into the cache
`engine`     one sequence through llama.cpp: embeddings in, hidden states out
`buffers`    llama.cpp's weight-repacking buffer type without the others of its extra ones
`trial`      the child process that tries settings, and may die of one
`probing`    what works and is fastest, tried once for each file, thread count and machine
`heads`      a matrix over the lab's own kernels: ``[B, columns] -> [B, rows]``
`predictor`  all of it as a `cplab.variant.CodePredictor`
===========  ===========================================================================================

Nothing here imports llama-cpp-python before a predictor is built: a missing extra is told then, with the command.
"""
