// Flags that several commands share, their checks, and what is said about wrong ones.
#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <string>

#include "client/access.h"

namespace runnel {

// --server and how it is reached: TLS, certificates, keys; from the environment where no flag says
// it.
void add_server(CLI::App& command, Target& server);
void add_model(CLI::App& command, std::string& model);
void add_json(CLI::App& command, bool& json);
// "Seconds " and `what`, above 0.
void add_timeout(CLI::App& command, double& timeout, const std::string& what);

// Checks of a flag's word for CLI11: "" where it can be used, else what was expected.
std::string check_server(const std::string& text);
std::string check_seed(const std::string& text);  // 64 bits without a sign; CLI11 would wrap others
std::function<std::string(const std::string&)> seconds_from(double least);

// The flag --max-queue-time: how long a call may wait for a state.
void add_max_queue_time(CLI::App& command, double& seconds);

// Words that cannot be used, as one line: what is wrong, the nearest command or flag where one was
// meant, and whose --help to read. For CLI::App::failure_message().
std::string usage_error(const CLI::App* app, const CLI::Error& error);

// "there is no command 'genrate'; did you mean 'generate'?", of the commands of `app`.
std::string unknown_command(const CLI::App& app, const std::string& word);

// "runnel session list": the command's own words.
std::string full_name(const CLI::App& command);

}  // namespace runnel
