// The refusals of requests whose messages name fields, made as the server makes them.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"

namespace runnel {

// What a request asked for, which says at which doors its refusals can come.
enum class Asked : uint8_t {
  kGenerate,
  kScore,
  kCreate,
  kSessions,
  kSave,
  kLoad,
  kToken,
  kText,
  kModel,
  kChat,
  kWire
};

struct Refusal {
  Asked asked;
  Status status;
};

// At least one for each check of a field.
std::vector<Refusal> every_refusal();

}  // namespace runnel
