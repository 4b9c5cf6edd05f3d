// Fuzzes the parser of safetensors files with libFuzzer. The input is header, zero byte and data.
// The header's length is put before it, because almost every mutation would make a given length
// wrong. Input without a zero byte is a whole file.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "tests/fuzz/properties.h"
#include "tests/models/bundle/bundle_writer.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  const size_t zero = input.find('\0');
  if (input.starts_with('{') && zero != std::string_view::npos) {
    runnel::check_safetensors(
        runnel::safetensors_file(input.substr(0, zero), input.substr(zero + 1)));
  } else {
    runnel::check_safetensors(input);
  }
  return 0;
}
