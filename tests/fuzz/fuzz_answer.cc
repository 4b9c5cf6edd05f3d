// Fuzzes the parser of a chat model's answers with libFuzzer.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/answer_properties.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  runnel::check_chat_answer({reinterpret_cast<const char*>(data), size});
  return 0;
}
