// Converts the inputs of a run to integers with AVX2, for blocks_inl.h. Included inside an
// anonymous namespace by isa_*.cc, after it defines kPlanes: whether the words have bytes, as VNNI
// needs them. No include guard and no includes: see isa.h.

inline int32_t largest_size(const float* x) {
  __m256i most = _mm256_setzero_si256();
  for (int i = 0; i < kStepInputs; i += 8) {
    const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(x + i));
    most = _mm256_max_epi32(most, _mm256_and_si256(bits, _mm256_set1_epi32(0x7fffffff)));
  }
  __m128i four = _mm_max_epi32(_mm256_castsi256_si128(most), _mm256_extracti128_si256(most, 1));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
  four = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0xb1));
  return _mm_cvtsi128_si32(four);
}

// Of each four integers v:
// - With bytes, v = 256 * upper + lower. The first word has the lower bytes, the second the upper
//   ones. The lower byte of v + 128 is lower + 128, and its upper byte is upper.
// - Otherwise, a word has two 16-bit numbers: the first and the third v, then the second and the
//   fourth.
inline void put_integers(const float* x, float factor, int32_t* words, int32_t (&sums)[2]) {
  const __m128i order = kPlanes
                            ? _mm_setr_epi8(0, 2, 4, 6, 1, 3, 5, 7, 8, 10, 12, 14, 9, 11, 13, 15)
                            : _mm_setr_epi8(0, 1, 4, 5, 2, 3, 6, 7, 8, 9, 12, 13, 10, 11, 14, 15);
  const __m256 by = _mm256_set1_ps(factor);
  __m256i pairs[2];  // the sums of two integers each
  for (int half = 0; half < 2; ++half, x += 16, words += 8) {
    const __m256i low = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x), by));
    const __m256i high = _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_loadu_ps(x + 8), by));
    __m256i v = _mm256_permute4x64_epi64(_mm256_packs_epi32(low, high), 0xd8);
    pairs[half] = _mm256_madd_epi16(v, _mm256_set1_epi16(1));
    if (kPlanes) v = _mm256_add_epi16(v, _mm256_set1_epi16(128));
    v = _mm256_shuffle_epi8(v, _mm256_broadcastsi128_si256(order));
    if (kPlanes) v = _mm256_xor_si256(v, _mm256_set1_epi64x(0x80808080));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(words), v);
  }
  const __m256i fours = _mm256_hadd_epi32(pairs[0], pairs[1]);
  __m128i all = _mm_add_epi32(_mm256_castsi256_si128(fours), _mm256_extracti128_si256(fours, 1));
  all = _mm_add_epi32(all, _mm_shuffle_epi32(all, 0xb1));
  sums[0] = _mm_cvtsi128_si32(all);
  sums[1] = _mm_extract_epi32(all, 2);
}
