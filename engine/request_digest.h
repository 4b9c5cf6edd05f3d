// The digest of a request, by which a retry is known to be the same call.
#pragma once

#include "base/sha256.h"
#include "engine/request.h"

namespace runnel {

using RequestDigest = Sha256Digest;

// SHA-256 of the request and its caller's name. It leaves out the model and its tokenizer,
// max_queue_time, shared, and the fields that the server sets for itself.
RequestDigest digest_of(const GenerateRequest& request);

}  // namespace runnel
