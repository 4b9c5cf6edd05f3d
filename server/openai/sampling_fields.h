// The fields that say how values are sampled, whatever they stand for.
#pragma once

#include "engine/request.h"
#include "server/http/request_fields.h"

namespace runnel {

// Reads n.
void read_samples(RequestFields& fields, GenerateRequest& call);
// Reads repetition_penalty, presence_penalty, frequency_penalty and logit_bias, an object of
// numbers by token. The engine checks their ranges.
void read_penalties(RequestFields& fields, GenerateRequest& call);
// Reads seed, temperature (0: greedy), top_p, top_k (0 or -1: all) and min_p. The engine checks
// their ranges.
void read_sampling(RequestFields& fields, GenerateRequest& call);

}  // namespace runnel
