// Fuzzes the parser and the renderer of chat templates with libFuzzer.
#include <cstddef>
#include <cstdint>

#include "tests/fuzz/template_properties.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  runnel::check_template({reinterpret_cast<const char*>(data), size});
  return 0;
}
