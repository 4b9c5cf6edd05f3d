// Products of bytes with the VNNI instruction of AVX-512, for blocks_inl.h. Included inside an
// anonymous namespace by isa_*.cc, after avx512_inl.h. No include guard and no includes: see isa.h.

constexpr bool kPlanes = true;

// sum += the products of the four unsigned bytes in each word of `bytes` and the four signed bytes
// of x. It is in assembly, because GCC 12 would first copy x to all lanes of another register.
inline void add_bytes(Ints bytes, const int32_t& x, Ints& sum) {
  asm("vpdpbusd %2%{1to16%}, %1, %0" : "+v"(sum) : "v"(bytes), "m"(x));
}

// Adds the products of the four unsigned bytes in each word of `bytes` and four signed integers of
// two bytes. x[0] has the lower bytes of the integers and x[1] the upper bytes, and their products
// go into sums[0] and sums[1].
inline void add_products(Ints bytes, const int32_t* x, Ints (&sums)[2]) {
  add_bytes(bytes, x[0], sums[0]);
  add_bytes(bytes, x[1], sums[1]);
}
inline Ints sum_of(const Ints (&sums)[2]) {
  return _mm512_add_epi32(sums[0], _mm512_slli_epi32(sums[1], 8));
}
