// Fuzzes the parser of GGUF files with libFuzzer: header, blocks and vocabularies.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/properties.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  runnel::check_gguf({reinterpret_cast<const char*>(data), size});
  return 0;
}
