// Calls to a server in another process.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/tally.h"
#include "client/client.h"
#include "client/model_choice.h"

namespace runnel {

// One stub for each connection.
using Stubs = std::vector<std::unique_ptr<v1::Inference::Stub>>;

// Connects so often that `streams` calls can be open at once. UNAVAILABLE when nobody answers.
Result<Stubs> connect_for(const Access& access, int streams);

// Runs fresh sequences of the model to their end, each call a stream. Gives seconds, from the first
// call to the last value.
Result<double> run_on_server(const Stubs& stubs, const ModelView& model, const Work& work,
                             const OnValues& on_values);

}  // namespace runnel
