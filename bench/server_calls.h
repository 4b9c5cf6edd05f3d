// Calls to a server in another process.
#pragma once

#include <memory>

#include "base/status.h"
#include "bench/tally.h"
#include "client/connections.h"
#include "client/model_choice.h"

namespace runnel {

// Opens enough connections for `streams` calls at once. Errors are those of connect_times().
Result<std::shared_ptr<const Stubs>> connect_for(const Access& access, int streams);

// Runs fresh sequences of the model to their end, each call on its own stream. Returns the seconds
// from the first call to the last value.
Result<double> run_on_server(const Stubs& stubs, const ModelView& model, const Work& work,
                             const OnValues& on_values);

}  // namespace runnel
