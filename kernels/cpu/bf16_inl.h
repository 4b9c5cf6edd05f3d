// Numbers of bf16 where no instruction multiplies them: widened to fp32, one product after the
// other. Included before kernels_inl.h, behind even() and odd(), which give the elements of pairs.

// Two products of bf16 numbers added to each lane, the even elements' first.
inline Reg dot_pairs(Reg x, Reg w, Reg sum) {
  return multiply_add(odd(x), odd(w), multiply_add(even(x), even(w), sum));
}

// To nearest, ties to even; what is no number stays none.
inline uint32_t rounded_to_bf16(float x) {
  uint32_t bits;
  __builtin_memcpy(&bits, &x, sizeof(bits));
  return x != x ? 0x7fc0U : (bits + 0x7fffU + (bits >> 16 & 1U)) >> 16;
}

// x [count] rounded to bf16, two to a word; an odd last one beside a zero.
void round_pairs(const float* x, int count, float* pairs) {
  uint32_t word;
  for (int i = 0; i + 1 < count; i += 2) {
    word = rounded_to_bf16(x[i]) | rounded_to_bf16(x[i + 1]) << 16;
    __builtin_memcpy(pairs + i / 2, &word, sizeof(word));
  }
  if (count % 2 == 1) {
    word = rounded_to_bf16(x[count - 1]);
    __builtin_memcpy(pairs + count / 2, &word, sizeof(word));
  }
}
