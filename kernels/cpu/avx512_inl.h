// The vector register of AVX-512, 16 lanes of 32 bits, for kernels_inl.h. Included inside the
// anonymous namespace of each isa_avx512*.cc.

using Reg = __m512;
constexpr int kLanes = 16;
constexpr int kRows = 8;  // 8 x 2 accumulators; with more, rows 4 KiB apart would evict each other
constexpr int kAccumulators = 16;  // in one block
constexpr bool kKeepsPairs = true;
constexpr int kStepRows = 7;

inline Reg set1(float x) { return _mm512_set1_ps(x); }
inline Reg load(const float* p) { return _mm512_loadu_ps(p); }
inline void store(float* p, Reg x) { _mm512_storeu_ps(p, x); }
inline void hold(Reg& x) { asm("" : "+v"(x)); }
inline __mmask16 lanes(int n) { return static_cast<__mmask16>((1U << n) - 1U); }
inline Reg first(Reg x, int n) { return _mm512_maskz_mov_ps(lanes(n), x); }
inline Reg load_n(const float* p, int n) { return _mm512_maskz_loadu_ps(lanes(n), p); }
inline void store_n(float* p, Reg x, int n) { _mm512_mask_storeu_ps(p, lanes(n), x); }
inline Reg add(Reg a, Reg b) { return _mm512_add_ps(a, b); }
inline Reg sub(Reg a, Reg b) { return _mm512_sub_ps(a, b); }
inline Reg mul(Reg a, Reg b) { return _mm512_mul_ps(a, b); }
inline Reg div(Reg a, Reg b) { return _mm512_div_ps(a, b); }
inline Reg sqrt(Reg x) { return _mm512_sqrt_ps(x); }
inline Reg max(Reg a, Reg b) { return _mm512_max_ps(a, b); }
inline Reg min(Reg a, Reg b) { return _mm512_min_ps(a, b); }
inline Reg multiply_add(Reg a, Reg b, Reg c) { return _mm512_fmadd_ps(a, b, c); }
inline Reg if_above(Reg x, Reg y, Reg then, Reg otherwise) {
  return _mm512_mask_blend_ps(_mm512_cmp_ps_mask(x, y, _CMP_GT_OQ), otherwise, then);
}
// x * 2^n, where `shifted` is 1.5 * 2^23 + n.
inline Reg scale_by_power(Reg x, Reg shifted) {
  const __m512i exponent = _mm512_slli_epi32(_mm512_castps_si512(shifted), 23);
  return _mm512_castsi512_ps(_mm512_add_epi32(_mm512_castps_si512(x), exponent));
}
// Changes the sign of x if n is odd, with `shifted` as above.
inline Reg negate_if_odd(Reg x, Reg shifted) {
  const __m512i sign = _mm512_slli_epi32(_mm512_castps_si512(shifted), 31);
  return _mm512_castsi512_ps(_mm512_xor_si512(_mm512_castps_si512(x), sign));
}

// Loads bf16 numbers, widened.
inline Reg load_bf16(const uint16_t* p) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(p));
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}
inline Reg load_int8(const std::byte* p) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
  return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes));
}

inline Reg fused(Reg a, Reg b, Reg c) { return _mm512_fmadd_ps(a, b, c); }
inline Reg flushed(Reg x) { return x; }  // the processor flushes
// Rounds to bf16, to nearest, ties to even. A NaN stays a NaN.
inline Reg nearest_bf16(Reg x) {
  const __m512i bits = _mm512_castps_si512(x);
  const __m512i odd = _mm512_and_si512(_mm512_srli_epi32(bits, 16), _mm512_set1_epi32(1));
  const __m512i up = _mm512_add_epi32(bits, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
  const __m512i kept = _mm512_and_si512(up, _mm512_set1_epi32(-65536));
  const __mmask16 none = _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q);
  return _mm512_castsi512_ps(_mm512_mask_mov_epi32(kept, none, _mm512_set1_epi32(0x7fc00000)));
}

// The even and the odd elements of pairs of bf16, as fp32.
inline Reg even(Reg pairs) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_castps_si512(pairs), 16));
}
inline Reg odd(Reg pairs) {
  return _mm512_castsi512_ps(
      _mm512_and_si512(_mm512_castps_si512(pairs), _mm512_set1_epi32(-65536)));
}

// Loads half-precision numbers. Denormals are kept, even while denormals are flushed.
inline Reg load_half(const std::byte* p) {
  return _mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)));
}

// Integers, for blocks_inl.h.
constexpr int kBlockRows = 8, kBothHalves = 2;
using Ints = __m512i;
inline Ints no_ints() { return _mm512_setzero_si512(); }
inline Ints same_ints(int32_t x) { return _mm512_set1_epi32(x); }
inline Ints load_ints(const std::byte* p) { return _mm512_loadu_si512(p); }
inline Ints lower_nibbles(Ints w) { return _mm512_and_si512(w, _mm512_set1_epi8(15)); }
inline Ints upper_nibbles(Ints w) { return lower_nibbles(_mm512_srli_epi32(w, 4)); }
// Looks up 4-bit numbers, one in each byte, in a table of 16 bytes.
inline Ints looked_up(Ints nibbles, const uint8_t* table) {
  const __m128i bytes = _mm_load_si128(reinterpret_cast<const __m128i*>(table));
  return _mm512_shuffle_epi8(_mm512_broadcast_i32x4(bytes), nibbles);
}
// float(x), rounded to nearest.
inline Reg to_numbers(Ints x) { return _mm512_cvtepi32_ps(x); }
