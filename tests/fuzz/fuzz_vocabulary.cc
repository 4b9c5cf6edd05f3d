// libFuzzer on vocabularies of RWKV, and on what they make of text.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/properties.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  runnel::check_vocabulary({reinterpret_cast<const char*>(data), size});
  return 0;
}
