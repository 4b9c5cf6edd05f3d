// Refusals of requests whose messages name fields, made by the code of the server.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"

namespace runnel {

// The kind of a request, which determines the doors at which its refusals can occur.
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

// Has at least one refusal for each check of a field.
std::vector<Refusal> every_refusal();

}  // namespace runnel
