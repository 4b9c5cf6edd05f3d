#include "bench/tile_products.h"

#include <immintrin.h>

namespace runnel {
namespace {

// Eight tiles of 16 rows of 64 bytes.
struct alignas(64) TileConfig {
  uint8_t palette = 1, start = 0, reserved[14] = {};
  uint16_t bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};

}  // namespace

// Four loads for four products, with sums of 16 x 16 each, as in kernels/cpu/isa_amx.cc.
float multiply_tiles(const void* data, int64_t bytes) {
  const auto* rows = static_cast<const char*>(data);
  const TileConfig config;
  alignas(64) float sums[4][256] = {};
  asm volatile("" ::: "memory");  // the compiler does not know which memory tiles read
  _tile_loadconfig(&config);
  _tile_loadd(0, sums[0], 64);
  _tile_loadd(1, sums[1], 64);
  _tile_loadd(2, sums[2], 64);
  _tile_loadd(3, sums[3], 64);
  for (const char* weights = rows; weights < rows + bytes; weights += kTileStepBytes) {
    _tile_loadd(4, rows, 64);
    _tile_loadd(6, weights, 128);
    _tile_dpbf16ps(0, 4, 6);
    _tile_loadd(7, weights + 64, 128);
    _tile_dpbf16ps(1, 4, 7);
    _tile_loadd(5, rows + 1024, 64);
    _tile_dpbf16ps(2, 5, 6);
    _tile_dpbf16ps(3, 5, 7);
  }
  _tile_stored(0, sums[0], 64);
  _tile_stored(1, sums[1], 64);
  _tile_stored(2, sums[2], 64);
  _tile_stored(3, sums[3], 64);
  _tile_release();
  asm volatile("" ::: "memory");
  float sum = 0;
  for (const auto& tile : sums) {
    for (const float one : tile) sum += one;
  }
  return sum;
}

}  // namespace runnel
