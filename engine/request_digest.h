// The digest of a request, by which a retry is known to be the same call.
#pragma once

#include "base/sha256.h"
#include "engine/request.h"

namespace runnel {

using RequestDigest = Sha256Digest;

// SHA-256 of every field but the tokenizer, which belongs to the model.
RequestDigest digest_of(const GenerateRequest& request);

}  // namespace runnel
