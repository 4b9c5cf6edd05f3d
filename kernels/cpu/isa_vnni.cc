// AVX-512 with its instruction for products of bytes, used for weights in blocks. The sums are
// those of isa_avx512.cc.
#include <immintrin.h>

#include "kernels/cpu/block_layout.h"
#include "kernels/cpu/isa.h"
#include "kernels/rules.h"

namespace runnel::cpu {
namespace {

#include "kernels/cpu/avx512_inl.h"
#include "kernels/cpu/elementary_inl.h"
#include "kernels/cpu/features_inl.h"
#include "kernels/cpu/flush_inl.h"
#include "kernels/cpu/kernels_inl.h"
#include "kernels/cpu/vnni_inl.h"
// These must come after the functions that they use.
#include "kernels/cpu/block_integers_inl.h"
#include "kernels/cpu/blocks_inl.h"

Kernels with_products_of_bytes(Kernels kernels) {
  kernels.round_blocks = round_blocks;
  kernels.matmul_blocks = matmul_blocks;
  return kernels;
}

}  // namespace

const Kernels& avx512vnni_kernels() {
  static const Kernels kernels = with_products_of_bytes(avx512_kernels());
  return kernels;
}

}  // namespace runnel::cpu
