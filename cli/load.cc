#include "cli/load.h"

#include <algorithm>
#include <cmath>
#include <thread>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "bench/cpu_name.h"
#include "bench/load_figures.h"
#include "bench/load_run.h"
#include "cli/common_flags.h"
#include "cli/interrupt.h"
#include "cli/reach_model.h"
#include "client/client.h"
#include "client/connections.h"
#include "client/model_choice.h"

namespace runnel {
namespace {

constexpr Seconds kConnect{10};
constexpr double kMostRate = 1e5;
constexpr double kMostSeconds = 86400;

Duration duration_of(double seconds) {
  return std::chrono::duration_cast<Duration>(Seconds(seconds));
}

// Everything that is known before the first call.
struct Setup {
  ModelView model;
  int64_t sessions_free = 0;
  LoadRunOptions run;
};

Status check_flags(const LoadOptions& options) {
  const int ways = (options.rate > 0 ? 1 : 0) + (options.find_capacity ? 1 : 0) +
                   (options.sweep.empty() ? 0 : 1);
  if (ways != 1) {
    return invalid_argument(
        "say which load: one of --rate CALLS_PER_SECOND, --find-capacity and --sweep 0.5,1,2");
  }
  if (options.capacity > 0 && options.sweep.empty()) {
    return invalid_argument("--capacity is what --sweep multiplies: add --sweep, or use --rate");
  }
  if (options.find_capacity && options.cancel_share + options.stall_share > 0) {
    return invalid_argument(
        "--find-capacity is for clients that read: leave out --cancel-share and --stall-share, or "
        "use --rate");
  }
  if (options.cancel_share + options.stall_share > 1) {
    return invalid_argument(
        "--cancel-share and --stall-share are parts of all calls and make more "
        "than 1 together");
  }
  if (options.concurrency > options.most_open) {
    return invalid_argument("--concurrency " + std::to_string(options.concurrency) +
                            " is more than --max-open " + std::to_string(options.most_open) +
                            " lets be open: lower it, or raise --max-open");
  }
  if (options.concurrency > 0 && (options.rate > 0 || options.capacity > 0)) {
    return invalid_argument(
        "--concurrency is for measuring the capacity: leave it out, or use --find-capacity, or "
        "--sweep without --capacity");
  }
  if (!options.out.empty()) return check_writable(options.out);
  return {};
}

Result<Setup> set_up(const LoadOptions& options, const v1::ListModelsResponse& models) {
  Result<ModelView> model = choose_model(models, options.model);
  if (!model.ok()) return model.status();
  const auto prompt = Lengths::parse(options.prompt, "--prompt");
  if (!prompt.ok()) return prompt.status();
  const auto values = Lengths::parse(options.values, "--values");
  if (!values.ok()) return values.status();
  Setup setup;
  for (const v1::ModelInfo& info : models.models()) {
    if (info.name() == model->name) setup.sessions_free = info.sessions_free();
  }
  setup.run = {.model = model->name,
               .vocabulary = model->vocabulary,
               .traffic = {.prompt = *prompt,
                           .values = *values,
                           .cancel_share = options.cancel_share,
                           .stall_share = options.stall_share,
                           .seed = options.seed,
                           .max_length = model->max_length,
                           .least_prompt = model->has_begin ? 0 : 1},
               .warm_up = duration_of(options.warm_up),
               .duration = duration_of(options.duration),
               .grace = duration_of(options.grace),
               .stall = duration_of(options.stall_time),
               .most_open = options.most_open,
               .values_per_message = options.values_per_message,
               .max_queue_time = options.max_queue_time};
  setup.model = std::move(*model);
  return setup;
}

// Runs one load after another and keeps their results.
class Load {
 public:
  Load(const LoadOptions& options, Setup setup, const Stubs& stubs, const Interrupt& interrupt,
       Console& console)
      : options_(options),
        setup_(std::move(setup)),
        stubs_(stubs),
        interrupt_(interrupt),
        console_(console) {}

  // Returns false if it was interrupted, or could not find a capacity.
  bool run() {
    capacity_ = options_.capacity;
    if (options_.rate > 0) return run_rate();
    if (capacity_ == 0 && !find_capacity()) return false;
    for (int round = 0; round < options_.repeat; ++round) {
      for (const double multiple : options_.sweep) {
        if (!run_once({.rate = capacity_ * multiple, .multiple = multiple, .round = round})) {
          return false;
        }
      }
    }
    return true;
  }

  const std::vector<LoadFigures>& runs() const { return runs_; }
  double capacity() const { return capacity_; }

  OrderedJson to_json() const {
    OrderedJson out = {
        {"model", setup_.model.name},
        {"numerics", setup_.model.numerics},
        {"server", options_.server.address},
        {"machine", {{"cpu", cpu_name()}, {"cores", std::thread::hardware_concurrency()}}},
        {"prompt", options_.prompt},
        {"values", options_.values},
        {"cancel_share", options_.cancel_share},
        {"stall_share", options_.stall_share},
        {"stall_seconds", options_.stall_time},
        {"max_queue_seconds",
         options_.max_queue_time ? OrderedJson(*options_.max_queue_time) : OrderedJson()},
        {"warm_up_seconds", options_.warm_up},
        {"grace_seconds", options_.grace},
        {"connections", options_.connections},
        {"seed", options_.seed}};
    if (capacity_ > 0) out["capacity"] = std::round(capacity_ * 1000) / 1000;
    out["runs"] = OrderedJson::array();
    for (const LoadFigures& run : runs_) out["runs"].push_back(figures_json(run));
    return out;
  }

 private:
  struct Point {
    double rate = 0;
    double multiple = 0;
    int concurrency = 0;
    int round = 0;
  };

  bool run_rate() {
    for (int round = 0; round < options_.repeat; ++round) {
      if (!run_once({.rate = options_.rate, .round = round})) return false;
    }
    return true;
  }

  // Finds the completed calls per second when the maximum number of calls is open at all times: the
  // median run.
  bool find_capacity() {
    const int64_t fit = std::clamp<int64_t>(setup_.sessions_free, 1, options_.most_open);
    const int at_once = options_.concurrency > 0 ? options_.concurrency : static_cast<int>(fit);
    std::vector<double> rates;
    for (int round = 0; round < options_.repeat; ++round) {
      if (!run_once({.concurrency = at_once, .round = round})) return false;
      rates.push_back(runs_.back().good_calls / runs_.back().seconds);
    }
    const auto middle = rates.begin() + static_cast<std::ptrdiff_t>(rates.size() / 2);
    std::nth_element(rates.begin(), middle, rates.end());
    capacity_ = *middle;
    return capacity_ > 0;
  }

  bool run_once(const Point& point) {
    LoadRunOptions run = setup_.run;
    run.rate = point.rate;
    run.concurrency = point.concurrency;
    run.traffic.seed += static_cast<uint64_t>(point.round);
    if (point.concurrency > 0) {
      // Capacity is measured with clients that read all they get.
      run.traffic.cancel_share = 0;
      run.traffic.stall_share = 0;
    }
    announce(point);
    ProgressLine line = progress_line(console_, "values");
    LoadFigures figures =
        run_load_once(stubs_, run,
                      {.stopped = [this] { return interrupt_.fired(); },
                       .progress =
                           [&](const RunProgress& progress) {
                             // Progress by time, not by values, because the number of values is
                             // being measured.
                             line.update(progress.values, progress.expected_values());
                           }});
    line.clear();
    if (interrupt_.fired()) return false;
    figures.multiple = point.multiple;
    runs_.push_back(std::move(figures));
    return true;
  }

  void announce(const Point& point) {
    if (options_.json) return;
    std::string text = with_commas(point.concurrency) + " calls at once";
    if (point.rate > 0) text = fixed(point.rate, 1) + " calls/s";
    if (point.multiple > 0) text += " (" + fixed(point.multiple, 2) + "x)";
    console_.err << text << " for " << fixed(options_.warm_up + options_.duration, 0) << " s"
                 << std::endl;
  }

  const LoadOptions& options_;
  const Setup setup_;
  const Stubs& stubs_;
  const Interrupt& interrupt_;
  Console& console_;
  double capacity_ = 0;
  std::vector<LoadFigures> runs_;
};

int tell(const LoadOptions& options, const Load& load, Console& console) {
  const std::string text = json_text(load.to_json(), 1) + "\n";
  if (!options.out.empty()) {
    if (Status written = replace_file(options.out, text); !written.ok()) {
      return fail(console, kExitFailed, written.message());
    }
  }
  if (options.json) {
    console.out << text << std::flush;
    return kExitOk;
  }
  console.out << figures_table(load.runs());
  if (load.capacity() > 0) {
    console.out << "capacity: " << fixed(load.capacity(), 1) << " calls/s" << '\n';
  }
  console.out << std::flush;
  return kExitOk;
}

void add_shape(const Command& command, LoadOptions& options) {
  command
      .flag("--prompt", options.prompt,
            "Length of each prompt, in values: 64, 16-128, 16,64,512 or exp:64")
      .shows_default();
  command
      .flag("--values", options.values,
            "Values to sample in each call, in the same form as --prompt")
      .shows_default();
  command
      .flag("--cancel-share", options.cancel_share,
            "Share of the calls that the client cancels before their end, 0 to 1")
      .between(0.0, 1.0)
      .shows_default();
  command
      .flag("--stall-share", options.stall_share,
            "Share of the calls that the client stops reading for a while, 0 to 1")
      .between(0.0, 1.0)
      .shows_default();
  command
      .flag("--stall-time", options.stall_time,
            "Seconds for which the client does not read such a call")
      .between(0.0, kMostSeconds)
      .shows_default();
  command
      .flag("--values-per-message", options.values_per_message,
            "Most values in one message (default: the server decides)")
      .between(0, 4096);
  add_max_queue_time(command, options.max_queue_time);
  command.flag("--seed", options.seed, "The same seed makes the same calls").shows_default();
}

void add_pace(const Command& command, LoadOptions& options) {
  command
      .flag("--rate", options.rate,
            "Calls per second on average, at random times, even if earlier calls still run")
      .between(0.001, kMostRate);
  command.flag(
      "--find-capacity", options.find_capacity,
      "Measure the capacity: the calls per second that complete while all sessions are in use");
  command.flag("--sweep", options.sweep, "Multiples of the capacity, one run each: 0.5,1,2")
      .separated_by_commas()
      .between(0.01, 100.0);
  command
      .flag("--capacity", options.capacity,
            "For --sweep: the capacity in calls per second (default: measure it first)")
      .between(0.001, kMostRate);
  command
      .flag("--concurrency", options.concurrency,
            "Concurrent calls that measure the capacity (default: the number of free sessions)")
      .between(1, 65536);
  command.flag("--duration", options.duration, "Seconds to measure")
      .between(0.1, kMostSeconds)
      .shows_default();
  command.flag("--warm-up", options.warm_up, "Seconds to run before the measurement begins")
      .between(0.0, kMostSeconds)
      .shows_default();
  command.flag("--grace", options.grace, "Seconds to wait after the measurement for calls to end")
      .between(0.0, kMostSeconds)
      .shows_default();
  command.flag("--repeat", options.repeat, "Runs of each load; the table shows the median")
      .between(1, 100)
      .shows_default();
}

}  // namespace

int run_load(const LoadOptions& options, Console& console) {
  if (Status status = check_flags(options); !status.ok()) {
    return fail(console, kExitUsage, status.message());
  }
  Client client(options.server, kConnect);
  const Interrupt interrupt([&] { client.cancel(); });
  const auto reached = reach_models(client, interrupt, console);
  if (const int* exit_code = std::get_if<int>(&reached)) return *exit_code;
  Result<Setup> setup = set_up(options, std::get<v1::ListModelsResponse>(reached));
  if (!setup.ok()) return fail(console, kExitUsage, setup.status().message());
  const Result<Access> access = read_access(options.server);
  if (!access.ok()) return fail(console, kExitUsage, access.status().message());
  const auto stubs = connect_times(*access, options.connections);
  if (!stubs.ok()) {
    return fail(console, kExitFailed,
                stubs.status().message() + "; ask for fewer with --connections");
  }
  Load load(options, std::move(*setup), **stubs, interrupt, console);
  const bool done = load.run();
  if (interrupt.fired()) return fail(console, kExitInterrupted, "interrupted");
  if (!done) {
    return fail(console, kExitFailed,
                "no call completed within --duration and --grace: there is no capacity to "
                "measure; ask for fewer --values or a longer --duration");
  }
  return tell(options, load, console);
}

void add_load(const Command& root) {
  const auto options = std::make_shared<LoadOptions>();
  const Command command = root.command(
      "load", "Make many calls at the same time, and measure speed, latency and refusals");
  add_server(command, options->server);
  add_model(command, options->model);
  add_pace(command, *options);
  add_shape(command, *options);
  command.flag("--connections", options->connections, "Connections that the calls share")
      .between(1, 256)
      .shows_default();
  command
      .flag("--max-open", options->most_open,
            "Most open calls; calls beyond that are not made, but counted")
      .between(1, 65536)
      .shows_default();
  command.flag("--out", options->out, "JSON file to write, for bench/report/plot_load.py");
  command.flag("--json", options->json, "Print the JSON instead of a table");
  command.runs([options](Console& console) { return run_load(*options, console); });
}

}  // namespace runnel
