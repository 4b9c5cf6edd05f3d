// Rounds weights to bf16 in plain code. Included inside an anonymous namespace by the isa_*.cc
// whose instruction set has no instruction for it. No include guard and no includes: see isa.h.

// To nearest, ties to even. A NaN stays a NaN.
inline uint32_t bits_of_bf16(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  return x != x ? 0x7fc0U : (bits + 0x7fffU + (bits >> 16 & 1U)) >> 16;
}

// Rounds x [count] to bf16, two numbers to a word. If the count is odd, the last one is paired with
// a zero.
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
