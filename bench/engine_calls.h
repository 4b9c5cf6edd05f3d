// Calls to an engine in this process, made as a server makes them, but without a server.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/tally.h"
#include "engine/engine.h"

namespace runnel {

// Runs sequences to their end: fresh ones or, with `session`, copies of that session, which does
// not change. Returns the seconds from the first call to the last value, including the copies.
Result<double> run_on_engine(Engine& engine, const Work& work, const OnValues& on_values,
                             const std::string& session = "");

// Gives a fresh sequence a prompt, and samples the value after it. Returns seconds.
Result<double> read_prompt(Engine& engine, std::vector<int32_t> prompt);

// Samples `values` values from the session, which does not change. Returns seconds.
Result<double> sample_from_session(Engine& engine, const std::string& session, int64_t values);

// Feeds `values` to the session, which is created if it does not exist. Returns seconds.
Result<double> feed_session(Engine& engine, const std::string& session,
                            std::vector<int32_t> values);

}  // namespace runnel
