// Weights rounded to bf16 without an instruction for it. Included inside an anonymous namespace by
// isa_*.cc. No include guard and no includes: see isa.h.

// To nearest, ties to even; what is no number stays none.
inline uint32_t bits_of_bf16(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  return x != x ? 0x7fc0U : (bits + 0x7fffU + (bits >> 16 & 1U)) >> 16;
}

// x [count] rounded to bf16, two to a word; an odd last one beside a zero.
void round_pairs(const float* x, int count, float* pairs) {
  uint32_t word;
  for (int i = 0; i + 1 < count; i += 2) {
    word = bits_of_bf16(x[i]) | bits_of_bf16(x[i + 1]) << 16;
    __builtin_memcpy(pairs + i / 2, &word, sizeof(word));
  }
  if (count % 2 == 1) {
    word = bits_of_bf16(x[count - 1]);
    __builtin_memcpy(pairs + count / 2, &word, sizeof(word));
  }
}
