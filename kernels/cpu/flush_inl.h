// While an object of this class exists, the thread flushes denormals to zero, in operands and in
// results, as AMX tiles do. Included inside the anonymous namespace of each isa_*.cc of x86, after
// <immintrin.h>.
class FlushDenormals {
 public:
  FlushDenormals() : before_(_mm_getcsr()) {
    _mm_setcsr(before_ | kFlushToZero | kDenormalsAreZero);
  }
  FlushDenormals(const FlushDenormals&) = delete;
  FlushDenormals& operator=(const FlushDenormals&) = delete;
  ~FlushDenormals() { _mm_setcsr(before_); }

 private:
  static constexpr unsigned kFlushToZero = 0x8000;
  static constexpr unsigned kDenormalsAreZero = 0x40;
  unsigned before_;
};
