// The digest of a request, by which a retry is known to be the same call.
#pragma once

#include <array>
#include <cstdint>

#include "engine/request.h"

namespace runnel {

using RequestDigest = std::array<uint8_t, 32>;

// SHA-256 of every field but the tokenizer, which belongs to the model.
RequestDigest digest_of(const GenerateRequest& request);

}  // namespace runnel
