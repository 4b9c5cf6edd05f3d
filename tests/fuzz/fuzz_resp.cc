// Fuzzes the parser of Redis replies with libFuzzer.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/resp_properties.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  runnel::check_replies({reinterpret_cast<const char*>(data), size});
  return 0;
}
