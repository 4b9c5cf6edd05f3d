// Fuzzes the parser of RWKV vocabularies, and the tokenizer that results, with libFuzzer.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/properties.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  runnel::check_vocabulary({reinterpret_cast<const char*>(data), size});
  return 0;
}
