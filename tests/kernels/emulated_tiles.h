// Tiles in software, for machines without AMX: each instruction does what its documentation says. A
// source file that includes this header and then a file of the program, with the flags of
// isa_amx.cc, compiles that file with these tiles.
#pragma once

#include <immintrin.h>

namespace emulated {
namespace {

struct Tiles {
  int rows[8];
  int bytes[8];
  alignas(64) char data[8][16][64];
};
thread_local Tiles tiles;

void configure(const void* config) {
  const auto* from = static_cast<const unsigned char*>(config);
  for (int i = 0; i < 8; ++i) {
    tiles.bytes[i] = from[16 + 2 * i] + from[17 + 2 * i] * 256;
    tiles.rows[i] = from[48 + i];
  }
}
void release() { __builtin_memset(&tiles, 0, sizeof(tiles)); }

void load(int tile, const void* from, long stride) {
  __builtin_memset(tiles.data[tile], 0, sizeof(tiles.data[tile]));
  for (int row = 0; row < tiles.rows[tile]; ++row) {
    __builtin_memcpy(tiles.data[tile][row], static_cast<const char*>(from) + row * stride,
                     tiles.bytes[tile]);
  }
}
void store(int tile, void* to, long stride) {
  for (int row = 0; row < tiles.rows[tile]; ++row) {
    __builtin_memcpy(static_cast<char*>(to) + row * stride, tiles.data[tile][row],
                     tiles.bytes[tile]);
  }
}

// sums += a b, with the arithmetic of TDPBF16PS.
void multiply(int sums, int a, int b) {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040);
  const __m512i upper = _mm512_set1_epi32(-65536);
  for (int row = 0; row < tiles.rows[sums]; ++row) {
    __m512 even = _mm512_setzero_ps();
    __m512 odd = _mm512_setzero_ps();
    for (int k = 0; k < tiles.rows[b]; ++k) {
      int word;
      __builtin_memcpy(&word, tiles.data[a][row] + 4 * k, 4);
      const __m512i x = _mm512_set1_epi32(word);
      const __m512i w = _mm512_load_si512(tiles.data[b][k]);
      even = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_slli_epi32(x, 16)),
                             _mm512_castsi512_ps(_mm512_slli_epi32(w, 16)), even);
      odd = _mm512_fmadd_ps(_mm512_castsi512_ps(_mm512_and_si512(x, upper)),
                            _mm512_castsi512_ps(_mm512_and_si512(w, upper)), odd);
    }
    auto* to = reinterpret_cast<float*>(tiles.data[sums][row]);
    _mm512_store_ps(to, _mm512_add_ps(_mm512_load_ps(to), _mm512_add_ps(even, odd)));
  }
  _mm_setcsr(before);
}

}  // namespace
}  // namespace emulated

#undef _tile_loadconfig
#undef _tile_release
#undef _tile_loadd
#undef _tile_stored
#undef _tile_dpbf16ps
#define _tile_loadconfig ::emulated::configure
#define _tile_release ::emulated::release
#define _tile_loadd ::emulated::load
#define _tile_stored ::emulated::store
#define _tile_dpbf16ps ::emulated::multiply
