// Fuzzes the parser of published models' config.json with libFuzzer.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/published_properties.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  runnel::check_published({reinterpret_cast<const char*>(data), size});
  return 0;
}
