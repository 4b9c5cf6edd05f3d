// Fuzzes the parser of POST /v1/chat/completions with libFuzzer.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/chat_properties.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  runnel::check_chat_request({reinterpret_cast<const char*>(data), size});
  return 0;
}
