#include "server/openai/random_hex.h"

#include <cstdint>
#include <random>

#include "base/hex.h"

namespace runnel {

std::string random_hex(size_t digits) {
  std::random_device device;
  std::string text;
  while (text.size() < digits) text += hex(uint64_t{device()} << 32 | device());
  text.resize(digits);
  return text;
}

}  // namespace runnel
