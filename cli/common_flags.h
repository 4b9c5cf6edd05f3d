// Flags that several commands share, and their checks.
#pragma once

#include <string>

#include "cli/flags.h"
#include "client/access.h"

namespace runnel {

// --server and how it is reached: TLS, certificates, keys; from the environment where no flag says
// it.
Flag add_server(const Command& command, Target& server);
void add_model(const Command& command, std::string& model);
void add_json(const Command& command, bool& json);
// "Seconds " and `what`, above 0.
void add_timeout(const Command& command, double& timeout, const std::string& what);

// The flag --max-queue-time: how long a call may wait for a state.
void add_max_queue_time(const Command& command, double& seconds);

// Checks of a word (flags.h).
std::string check_server(const std::string& text);
std::string check_seed(const std::string& text);  // 64 bits without a sign
CheckWord seconds_from(double least);

}  // namespace runnel
