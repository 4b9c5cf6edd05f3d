// The operations of one instruction set as a table. Included last inside an anonymous namespace by
// each isa_*.cc. No include guard and no includes: see isa.h.

constexpr Kernels kKernels = {.panel = kPanel,
                              .block_rows = 32,
                              .run_inputs = 16,
                              .fewest_run_inputs = 4,
                              .longest_task = 8000,
                              .matmul = matmul<Factors::kFp32>,
                              .matmul_widened = matmul<Factors::kWidened>,
                              .end = end_tile,
                              .round_rows = round_rows,
                              .matmul_rounded = matmul_rounded,
                              .round_pairs = round_pairs,
                              .step = kStep,
                              .round_int8 = round_int8,
                              .matmul_int8 = matmul_int8,
                              .norm = norm,
                              .features = features,
                              .shift = shift,
                              .convolve = convolve,
                              .recur = recur,
                              .exp = exp_scaled,
                              .finite = make_finite};
