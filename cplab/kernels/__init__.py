"""Vector code: numba functions over LLVM vectors, bit-equal to `cplab.arithmetic` and sharing only its constants.

==================  ===================================================================================
`vectors`           LLVM building blocks: load, decode, tree sum, exp, on 16 lanes
`tiles`             rows and tokens that share registers, and the loops around them
`rows`              rows x tokens of float weights
`int_products`      sums of four int8 products, by whichever instruction the target has
`quantised_rows`    rows x tokens of block-quantised weights and activations, over `int_products`
`quantised_lines`   what a unit of such weights is in memory, and its integers in registers
`quantised_scales`  where its scales lie, and how they come to stand beside the sums they scale
`quantising`        activations as int8 blocks
`units`             16 rows of any format, as one entry with a C address
`packing`           matrices in the order in which the rows kernels read them
`blocks`            norms, RoPE, softmax, SwiGLU over blocks of 16
`machine`           atomics, pause, yield, clock, floating-point mode; `memory`: integers at addresses
`plan`, `layout`    what compiled code is told of a model and a call, and where things lie
`stages`            the stages of a pass, each split over the members of a team; `attention` is one of them
`team`              who runs the stages: one thread, one region a frame, or one region a stage
`tracing`           a lap timer for each member
`reading`, `peak`   the machine's roofs: a kernel that only reads, one that only multiplies
==================  ===================================================================================

LLVM lowers one source to AVX-512 (with VNNI where there is), AVX2, NEON or plain code, by numba's target. Every
function is a module-level name, so that numba's disk cache holds.
"""
