// The command bench: how fast an engine or a server samples, and the limits of the machine.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cli/console.h"
#include "cli/flags.h"
#include "cli/serve.h"
#include "client/access.h"
#include "server/host/load_model.h"

namespace runnel {

struct BenchOptions {
  std::string bundle;  // measured in this process; empty: no measurement of a bundle
  Target server = {.address = ""};
  std::string model;  // the server's model, measured through gRPC; empty: none
  // The measurements. "engine", "prompts", "memory", "positions" and "operations" measure the
  // bundle, "streams" and "samples" the server, and "limits" the machine. Empty: all measurements
  // that the other options allow.
  std::vector<std::string> what;
  std::vector<int> batches = {1, 8, 32, 128, 512};
  int64_t values = 0;    // sampled per sequence; 0: to the last position, or 784 if there is none
  int64_t prompt = 512;  // values
  int64_t from = 0;      // the position at which "engine" and "operations" begin
  double seconds = 2;    // the least time to measure, in whole runs
  std::vector<int64_t> positions = {1'000, 10'000, 100'000, 1'000'000};
  std::map<std::string, std::string> words;  // settings as for serve, by flag
  bool json = false;
  std::string out;  // file for the JSON
};

// Runs the command and returns its exit code (console.h).
int run_bench(const BenchOptions& options, const ModelFactory& make_model, Console& console);

// Adds the command to the program.
void add_bench(const Command& root, const ModelFactory& make_model);

}  // namespace runnel
