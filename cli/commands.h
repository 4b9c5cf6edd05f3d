// The commands that call a server or read a bundle: the options and the function of each.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/common_flags.h"
#include "cli/console.h"
#include "cli/sampling_flags.h"

namespace runnel {

struct GenerateOptions {
  Target server;
  std::string model;
  int count = 1;
  SamplingFlags sampling;
  std::string out;  // empty: a name made from the model's
  std::string prompt_image;
  std::optional<int64_t> rows;  // of prompt_image
  std::string values;           // the prompt as numbers
  std::optional<std::string> prompt;
  std::string prompt_file;        // a file with the prompt; "-": standard input
  bool no_begin = false;          // does not put the model's first value before the prompt
  std::vector<std::string> stop;  // texts
  bool ignore_eos = false;
  std::optional<int64_t> max_values;
  std::string session, from;  // where to continue from: a session, a stored state
  bool keep = false;
  int top_log_probs = 0;
  std::optional<double> max_queue_time;  // seconds to wait for a state; none: the server's default
  bool json = false;
  double timeout = 3600;  // seconds
};

struct DrawOptions {
  Target server;
  std::string model;
  std::string prompt_image;
  std::optional<int64_t> rows;  // of prompt_image
  SamplingFlags sampling;
  double seconds = 0;  // the minimum time that the drawing takes
  double timeout = 3600;
};

struct ScoreOptions {
  Target server;
  std::string model;
  std::string file;   // "-": standard input
  bool text = false;  // the file is text, not numbers
  bool no_begin = false;
  std::optional<int64_t> first;
  int jobs = 16;
  bool json = false;
  double timeout = 3600;  // seconds, of each sequence
};

struct SessionOptions {
  Target server;
  std::string model;
  std::vector<std::string> ids;  // to delete or to show; empty: list all
  bool shows = false;            // shows `ids` instead of deleting them
  bool json = false;
  double timeout = 10;
};

struct InfoOptions {
  std::optional<std::string> bundle;  // none: the server
  Target server;
  bool json = false;
  double timeout = 10;
};

struct HealthOptions {
  Target server;
  bool json = false;
  double timeout = 5;
  double wait = 0;  // seconds to wait until the server serves
};

struct ReloadOptions {
  Target server;
  bool json = false;
  double timeout = 600;
};

// Each function runs one command and returns its exit code (console.h).
int run_generate(const GenerateOptions& options, Console& console);
int run_draw(const DrawOptions& options, Console& console);
int run_score(const ScoreOptions& options, Console& console);
int run_session(const SessionOptions& options, Console& console);
int run_info(const InfoOptions& options, Console& console);
int run_health(const HealthOptions& options, Console& console);
int run_reload(const ReloadOptions& options, Console& console);

// Adds the commands to the program.
void add_client_commands(const Command& root);

}  // namespace runnel
