#include "engine/request.h"

#include <algorithm>
#include <random>

#include "base/hash.h"
#include "base/hex.h"
#include "base/limits.h"

namespace runnel {

namespace {

uint64_t random_bits() {
  std::random_device device;
  return (uint64_t{device()} << 32) | device();
}

}  // namespace

uint64_t seed_of(const std::string& request_id) {
  return request_id.empty() ? random_bits() : hash_of(request_id);
}

std::string made_session_id(const std::string& request_id) {
  return "r-" + hex(hash_of(request_id));
}

std::string random_session_id() { return "s-" + hex(random_bits()) + hex(random_bits()); }

void set_temperature(float temperature, Sampling& sampling) {
  if (temperature >= 0 && temperature < kLeastTemperature) {
    sampling.greedy = true;
  } else {
    sampling.temperature = temperature;
  }
}

int64_t bytes_of(const GenerateRequest& request) {
  size_t bytes = request.prompt.size() * sizeof(int32_t);
  for (const std::vector<int32_t>& sequence : request.stop) {
    bytes += sequence.size() * sizeof(int32_t);
  }
  for (const std::string& text : request.stop_text) bytes += text.size();
  if (request.turn) bytes += static_cast<size_t>(bytes_of(*request.turn));
  if (request.penalties) bytes += request.penalties->logit_bias.size() * sizeof(LogitBias);
  return static_cast<int64_t>(bytes);
}

bool GenerateRequest::ends_at(int32_t value, std::span<const int32_t> eos) const {
  return !ignore_eos && (value == end_of_turn || std::ranges::count(eos, value) > 0);
}

}  // namespace runnel
