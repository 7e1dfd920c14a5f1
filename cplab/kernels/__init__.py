"""Vector code: numba functions over LLVM vectors, bit-equal to `cplab.arithmetic` and sharing only its constants.

=============  =====================================================================
`vectors`      LLVM building blocks: load, decode, tree sum, exp, on 16 lanes
`rows`         rows x tokens: the matrix kernels, one source for all formats
`blocks`       norms, RoPE, softmax, SwiGLU over blocks of 16
`machine`      atomics, pause, yield, clock, floating-point mode
`stages`       the stages of a pass, each split over the members of a team
`team`         who runs the stages: one thread, one region a frame, or one region a stage
`reading`      a kernel that only reads: the roof
=============  =====================================================================

LLVM lowers one source to AVX-512, AVX2, NEON or plain code, by numba's target. Every function is a module-level name,
so that numba's disk cache holds.
"""
