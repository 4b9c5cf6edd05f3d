// The command load: sends many calls to a server and reports their outcomes.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/commands.h"
#include "cli/console.h"

namespace runnel {

struct LoadOptions {
  Target server;
  std::string model;
  // One of the next three. A sweep first finds the capacity if it is not given.
  double rate = 0;  // calls per second
  bool find_capacity = false;
  std::vector<double> sweep;                      // multiples of the capacity
  double capacity = 0;                            // calls per second; 0: unknown
  double duration = 20, warm_up = 3, grace = 30;  // seconds
  int repeat = 1;                                 // runs of each load
  // Concurrent calls for finding the capacity. 0: as many as the model has sessions.
  int concurrency = 0;
  std::string prompt = "0-64", values = "16-128";  // lengths (load_plan.h)
  double cancel_share = 0, stall_share = 0;
  double stall_time = 2;  // seconds
  int connections = 4;
  int most_open = 4096;
  int values_per_message = 0;
  std::optional<double> max_queue_time;  // seconds; none: the server's default
  uint64_t seed = 1;
  bool json = false;
  std::string out;  // file for the JSON
};

// Runs the command and returns its exit code (console.h).
int run_load(const LoadOptions& options, Console& console);

// Adds the command to the program.
void add_load(const Command& root);

}  // namespace runnel
