// Reads the fields for sampling, for values of any kind.
#pragma once

#include "engine/request.h"
#include "models/spec.h"
#include "server/http/request_fields.h"

namespace runnel {

// Reads n.
void read_samples(RequestFields& fields, GenerateRequest& call);
// Reads repetition_penalty, presence_penalty, frequency_penalty and logit_bias, an object of
// numbers by token. The engine checks their ranges.
void read_penalties(RequestFields& fields, GenerateRequest& call);
// Reads seed, temperature (below kLeastTemperature, also 0, sampling is greedy), top_p, top_k (0 or
// -1: all) and min_p. The engine checks their ranges.
void read_sampling(RequestFields& fields, GenerateRequest& call);
// Lowers a top_k beyond the model's vocabulary, so that it keeps all values, as in vLLM: clients of
// OpenAI's API do not know the size of the vocabulary.
void fit_top_k(const Spec& spec, Sampling& sampling);

}  // namespace runnel
