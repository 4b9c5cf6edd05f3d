// Fuzzes the parser of POST /v1/completions with libFuzzer.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/request_properties.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  runnel::check_completion_request({reinterpret_cast<const char*>(data), size});
  return 0;
}
