// Rounds weights to bf16 in plain code. Each isa_*.cc whose instruction set cannot round to bf16
// includes this file inside an anonymous namespace. The file has no include guard and includes
// nothing: see isa.h.

// Rounds x to the nearest bf16 number, ties to even. A NaN stays a NaN. The result is in the low 16
// bits.
inline uint32_t bits_of_bf16(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  return x != x ? 0x7fc0U : (bits + 0x7fffU + (bits >> 16 & 1U)) >> 16;
}

// Rounds x [count] to bf16, and puts two numbers into each word. If the count is odd, the last
// number is paired with a zero.
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
