// Flags that several commands share, and their checks.
#pragma once

#include <optional>
#include <string>

#include "cli/flags.h"
#include "client/access.h"

namespace runnel {

// Adds --server and the flags for reaching it: TLS, certificates, keys. Environment variables
// replace missing flags.
Flag add_server(const Command& command, Target& server);
void add_model(const Command& command, std::string& model);
void add_json(const Command& command, bool& json);
// Adds --timeout with the help text "Seconds " and `what`. It must be more than 0.
void add_timeout(const Command& command, double& timeout, const std::string& what);

// Adds --max-queue-time: how long a call may wait for a state.
void add_max_queue_time(const Command& command, std::optional<double>& seconds);

// Checks of a flag's value (flags.h).
std::string check_server(const std::string& text);
std::string check_seed(const std::string& text);  // an unsigned number of 64 bits
CheckWord seconds_from(double least);

}  // namespace runnel
