// Calls to an engine in this process, as the server makes them, without a server.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "bench/tally.h"
#include "engine/engine.h"

namespace runnel {

// Runs sequences to their end: fresh ones, or with `session` copies of that session, which stays as
// it was. Gives seconds, from the first call to the last value, with the time of the copies.
Result<double> run_on_engine(Engine& engine, const Work& work, const OnValues& on_values,
                             const std::string& session = "");

// Gives a fresh sequence a prompt, and samples the value after it. Gives seconds.
Result<double> read_prompt(Engine& engine, std::vector<int32_t> prompt);

// Samples `values` values from the session's position, and leaves it as it was. Gives seconds.
Result<double> sample_from_session(Engine& engine, const std::string& session, int64_t values);

// Feeds the session given values; a session that is not there is made. Gives seconds.
Result<double> feed_session(Engine& engine, const std::string& session,
                            std::vector<int32_t> values);

}  // namespace runnel
