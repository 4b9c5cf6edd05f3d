// The command `bench`: measures how fast an engine or a server samples, and the limits of the
// machine.
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
  std::string bundle;  // a bundle to measure in this process; empty: none
  Target server = {.address = ""};
  std::string model;  // the server's model to measure through gRPC; empty: none
  // The measurements to make: of the bundle "engine", "prompts", "memory", "positions" and
  // "operations"; of the server "streams" and "samples"; of the machine "limits". Empty: for a
  // bundle "engine", and on a CPU also "memory" and "operations"; for a server "streams" and
  // "samples".
  std::vector<std::string> what;
  std::vector<int> batches = {1, 8, 32, 128, 512};
  // Values for each sequence. 0: up to the model's last position, or 784 if it has no last
  // position.
  int64_t values = 0;
  int64_t prompt = 512;  // values
  int64_t from = 0;      // the position at which sequences begin in "engine" and "operations"
  double seconds = 2;    // each measurement repeats whole runs for at least this time
  std::vector<int64_t> positions = {1'000, 10'000, 100'000, 1'000'000};
  std::map<std::string, std::string> words;  // settings of `serve`: the flag's name, its value
  bool json = false;
  std::string out;  // file for the JSON
};

// Runs the command and returns its exit code (console.h).
int run_bench(const BenchOptions& options, const ModelFactory& make_model, Console& console);

// Adds the command to the program.
void add_bench(const Command& root, const ModelFactory& make_model);

}  // namespace runnel
