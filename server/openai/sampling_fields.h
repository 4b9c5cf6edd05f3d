// The fields that say how values are sampled, whatever they stand for.
#pragma once

#include "engine/request.h"
#include "server/openai/request_fields.h"

namespace runnel {

// Reads n, seed, temperature (0: greedy), top_p, top_k and min_p. The engine checks their ranges.
void read_sampling(RequestFields& fields, GenerateRequest& call);

}  // namespace runnel
