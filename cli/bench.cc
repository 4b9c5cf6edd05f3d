#include "cli/bench.h"

#include <algorithm>
#include <cmath>
#include <memory>
#include <set>
#include <utility>

#include "base/file.h"
#include "base/json.h"
#include "base/text.h"
#include "bench/cpu_name.h"
#include "bench/engine_calls.h"
#include "bench/measure.h"
#include "bench/server_calls.h"
#include "cli/common_flags.h"
#include "client/client.h"
#include "client/model_choice.h"
#include "kernels/cpu/choose_isa.h"
#include "kernels/cpu/machine.h"
#include "server/grpc/convert.h"

namespace runnel {
namespace {

constexpr int64_t kEndlessValues = 784;    // of a sequence without an end; the same as of an image
constexpr int64_t kPositionValues = 128;   // sampled at each position
constexpr const char* kFed = "bench-fed";  // a session at position BenchOptions::from

// The measurements, what each of them needs, and whether it runs if --what is absent.
enum class Needs { kBundle, kServer, kNothing };
enum class Unasked { kDone, kDoneOnCpu, kNotDone };
struct Measurement {
  const char* name;
  Needs needs;
  Unasked unasked;
};
constexpr Measurement kMeasurements[] = {{"limits", Needs::kNothing, Unasked::kNotDone},
                                         {"engine", Needs::kBundle, Unasked::kDone},
                                         {"prompts", Needs::kBundle, Unasked::kNotDone},
                                         {"memory", Needs::kBundle, Unasked::kDoneOnCpu},
                                         {"operations", Needs::kBundle, Unasked::kDoneOnCpu},
                                         {"positions", Needs::kBundle, Unasked::kNotDone},
                                         {"streams", Needs::kServer, Unasked::kDone},
                                         {"samples", Needs::kServer, Unasked::kDone}};

constexpr const char* kExamples = R"(Examples:
  runnel bench zoo/mnist-small                    everything about an engine in this process
  runnel bench zoo/mnist-small --what engine --batch 1,32 --threads 1
  runnel bench zoo/mnist-small --what engine --isa all   every instruction set, and what auto takes
  runnel bench --what limits                      what this machine can do at most
  runnel serve zoo/mnist-small --sessions 512 --batch-rows 512 --samples 512 &
  runnel bench --server 127.0.0.1:50051           the same sequences through gRPC, twice: a stream
                                                  for each, and one stream for all

'positions' needs long sequences: a bundle without a last position, or a hybrid with --context:
  scripts/runnel-random-bundle --preset mnist --endless --out build/endless
  runnel bench build/endless --what positions --positions 1000,10000,100000
  scripts/runnel-random-bundle --preset lfm2-350m --out build/lfm2
  runnel bench build/lfm2 --what positions --positions 64,1000,30000 --context 32768

'make bench' does all of it in turns with PyTorch, and draws docs/benchmarks.)";

// Runs the measurements one after another and keeps their results.
class Bench {
 public:
  Bench(const BenchOptions& options, const ModelFactory& make_model, Console& console)
      : options_(options), make_model_(make_model), console_(console) {
    out_ = {{"machine", {{"cpu", cpu_name()}, {"cores", cpu::usable_cores()}}}};
  }

  Status run(const std::set<std::string>& what) {
    if (what.contains("limits")) {
      if (Status s = keep("limits", "the machine's limits",
                          [&] { return measure_machine(cpu::usable_cores()); });
          !s.ok()) {
        return s;
      }
    }
    if (!options_.bundle.empty()) {
      if (Status s = run_bundle(what); !s.ok()) return s;
    }
    return options_.server.address.empty() ? Status() : run_server(what);
  }

  const OrderedJson& figures() const { return out_; }

 private:
  // A config that has room for `rows` sequences.
  Result<MeasuredModel> subject(int rows) const {
    ServeFlags flags = {.config_file = {}, .models = {options_.bundle}, .words = options_.words};
    const std::string count = std::to_string(rows);
    for (const char* flag : {"--sessions", "--batch-rows", "--samples"}) flags.words[flag] = count;
    if (options_.from > 0) flags.words["--sessions"] = std::to_string(rows + 1);
    flags.words["--batch-values"] =
        std::to_string(std::max<int64_t>(rows, limits::kBatchValues.default_value));
    Result<ServerConfig> config = config_of(flags);
    if (!config.ok()) return config.status();
    return MeasuredModel{std::move(*config), make_model_};
  }

  Status run_bundle(const std::set<std::string>& what) {
    const Result<MeasuredModel> few = subject(3);  // two sessions, and a copy of one
    if (!few.ok()) return few.status();
    if (what.contains("engine") || what.contains("prompts")) {
      if (Status s = run_engine(what); !s.ok()) return s;
    }
    if (options_.what.empty() && !on_cpu_) return {};
    if (what.contains("memory")) {
      if (Status s = keep("memory", "memory", [&] { return measure_memory(*few); }); !s.ok()) {
        return s;
      }
    }
    for (size_t i = 0; what.contains("operations") && i < options_.batches.size(); ++i) {
      const int batch = options_.batches[i];
      announce("operations, batch " + with_commas(batch));
      Result<OrderedJson> figures =
          measure_operations(*few, batch, options_.seconds, options_.from);
      if (!figures.ok()) return figures.status();
      out_["operations"].push_back(std::move(*figures));
    }
    if (!what.contains("positions")) return {};
    return keep("positions", "positions", [&] {
      ProgressLine line = progress_line(console_, "values");
      const int64_t last = *std::max_element(options_.positions.begin(), options_.positions.end());
      Result<OrderedJson> figures =
          measure_positions(*few, options_.positions, kPositionValues,
                            [&](int64_t values) { line.update(values, last); });
      line.clear();
      return figures;
    });
  }

  Status run_engine(const std::set<std::string>& what) {
    const Clock clock;
    // A prompt is read in one session.
    const int most = what.contains("engine")
                         ? *std::max_element(options_.batches.begin(), options_.batches.end())
                         : 1;
    const Result<MeasuredModel> subject = this->subject(most);
    if (!subject.ok()) return subject.status();
    const Result<ServedModel> model =
        load_model(subject->config.models[0], subject->config, make_model_, clock);
    if (!model.ok()) return model.status();
    const v1::ModelInfo info = model_message(*model, {});
    describe(info);
    if (what.contains("engine")) {
      if (Status s = run_batches(*model->engine); !s.ok()) return s;
    }
    if (!what.contains("prompts")) return {};
    return keep("prompts", "a prompt of " + with_commas(options_.prompt) + " values",
                [&] { return measure_prompts(*model->engine, options_.prompt, options_.seconds); });
  }

  Status run_batches(Engine& engine) {
    const Spec& spec = engine.spec();
    const int64_t from = options_.from;
    if (Status s = check_room(spec, "--from", from, from > 0 ? 2 : 0); !s.ok()) return s;
    const Pace pace = this->pace(spec.max_length() == 0 ? 0 : spec.max_length() - from,
                                 spec.begin.has_value() && from == 0);
    if (from > 0) {
      announce("reading " + with_commas(from) + " values");
      if (Status s = feed_to(engine, kFed, from); !s.ok()) return s;
    }
    const RunWork run = [&](const Work& work, const OnValues& on_values) {
      return run_on_engine(engine, work, on_values, from > 0 ? kFed : "");
    };
    for (const int batch : options_.batches) {
      const int samples = from > 0 ? batch : 1;
      if (Status s = throughput("engine", run, batch / samples, samples, pace); !s.ok()) return s;
    }
    return {};
  }

  Status run_server(const std::set<std::string>& what) {
    Client client(options_.server, Seconds(10));
    v1::ListModelsResponse models;
    Status reached = client.connect(Seconds(10));
    if (reached.ok()) reached = client.list_models(models);
    if (!reached.ok()) return {Code::kUnavailable, call_error(reached)};
    const Result<ModelView> model = choose_model(models, options_.model);
    if (!model.ok()) return model.status();
    const int most = *std::max_element(options_.batches.begin(), options_.batches.end());
    for (const v1::ModelInfo& info : models.models()) {
      if (info.name() != model->name) continue;
      describe(info);
      if (info.sessions_free() < most) return too_few_sessions(info, most);
    }
    const Result<Access> access = read_access(options_.server);
    if (!access.ok()) return access.status();
    const auto stubs = connect_for(*access, most);
    if (!stubs.ok()) return stubs.status();
    const RunWork run = [&](const Work& work, const OnValues& on_values) {
      return run_on_server(**stubs, *model, work, on_values);
    };
    const Pace pace = this->pace(model->max_length, model->has_begin);
    for (const int batch : options_.batches) {
      if (!what.contains("streams")) break;
      if (Status s = throughput("streams", run, batch, 1, pace); !s.ok()) return s;
    }
    for (const int batch : options_.batches) {
      if (!what.contains("samples")) break;
      if (Status s = throughput("samples", run, 1, batch, pace); !s.ok()) return s;
    }
    return {};
  }

  static Status too_few_sessions(const v1::ModelInfo& info, int needed) {
    const std::string count = std::to_string(needed);
    return {Code::kResourceExhausted, "model '" + info.name() + "' has " +
                                          std::to_string(info.sessions_free()) +
                                          " free sessions, and --batch asks for " + count +
                                          "; start the server with --sessions " + count +
                                          " --batch-rows " + count + " --samples " + count};
  }

  Pace pace(int64_t max_length, bool has_begin) const {
    int64_t values = options_.values > 0 ? options_.values : kEndlessValues;
    if (max_length > 0 && (options_.values == 0 || options_.values > max_length)) {
      values = max_length;
    }
    // A model without a first value of its own is given one, and samples the rest.
    if (!has_begin && values == max_length) --values;
    return {.values = values,
            .sampled = has_begin ? std::max<int64_t>(values - 1, 1) : values,
            .seconds = options_.seconds};
  }

  Status throughput(const char* what, const RunWork& run, int calls, int samples,
                    const Pace& pace) {
    announce(std::string(what) + ", batch " + with_commas(int64_t{calls} * samples));
    ProgressLine line = progress_line(console_, "values");
    Result<OrderedJson> figures = measure_throughput(
        run, calls, samples, pace, [&](int64_t values) { line.update(values, 0); });
    line.clear();
    if (!figures.ok()) return figures.status();
    OrderedJson named = {{"what", what}};
    if (options_.from > 0) named["from"] = options_.from;
    named.update(*figures);
    out_["throughput"].push_back(std::move(named));
    return {};
  }

  template <typename F>
  Status keep(const char* name, const std::string& title, const F& measure) {
    announce(title);
    Result<OrderedJson> figures = measure();
    if (!figures.ok()) return figures.status();
    out_[name] = std::move(*figures);
    return {};
  }

  void describe(const v1::ModelInfo& info) {
    out_["model"] = info.name();
    out_["numerics"] = info.numerics();
    on_cpu_ = info.backend() == device_name(DeviceKind::kCpu);
  }

  void announce(const std::string& title) {
    if (!options_.json) console_.err << title << std::endl;
  }

  const BenchOptions& options_;
  const ModelFactory& make_model_;
  Console& console_;
  OrderedJson out_;
  bool on_cpu_ = false;  // set by the first measurement
};

// The measurements asked for, or else all possible ones that do not take very long.
Result<std::set<std::string>> choose(const BenchOptions& options) {
  std::set<std::string> chosen(options.what.begin(), options.what.end());
  if (options.bundle.empty() && options.server.address.empty() &&
      chosen != std::set<std::string>{"limits"}) {
    return invalid_argument(
        "say what to measure: a bundle's directory, --server ADDRESS, or --what limits");
  }
  for (const auto& [name, needs, unasked] : kMeasurements) {
    const bool possible =
        needs == Needs::kNothing ||
        (needs == Needs::kBundle ? !options.bundle.empty() : !options.server.address.empty());
    if (chosen.contains(name) && !possible) {
      return invalid_argument(
          "--what " + std::string(name) + " needs " +
          (needs == Needs::kBundle ? "a bundle's directory" : "--server ADDRESS"));
    }
    if (options.what.empty() && possible && unasked != Unasked::kNotDone) chosen.insert(name);
  }
  return chosen;
}

std::string padded(const std::string& text, size_t width) {
  return std::string(width - std::min(width, text.size()), ' ') + text;
}

void print_table(const OrderedJson& figures, Console& console) {
  if (figures.contains("auto")) {
    console.out << "auto takes " << figures["auto"].get<std::string>() << '\n';
  }
  for (const OrderedJson& one : figures.value("isas", OrderedJson::array())) {
    console.out << one["isa"].get<std::string>() << " (" << one["numerics"].get<std::string>()
                << ")\n";
    print_table(one, console);
  }
  for (const OrderedJson& one : figures.value("throughput", OrderedJson::array())) {
    console.out << padded(one["what"], 10) << padded(with_commas(one["batch"]), 7)
                << padded(with_commas(std::llround(one["values_per_s"].get<double>())), 10)
                << " values/s";
    if (one.contains("cut_from")) {
      console.out << ", cut to " << with_commas(one["values"]) << " of "
                  << with_commas(one["cut_from"]) << " values: give --seconds more";
    }
    console.out << '\n';
  }
  if (figures.contains("prompts")) {
    console.out << "a prompt of " << with_commas(figures["prompts"]["values"])
                << padded(
                       with_commas(std::llround(figures["prompts"]["values_per_s"].get<double>())),
                       10)
                << " values/s\n";
  }
  for (const OrderedJson& one : figures.value("limits", OrderedJson::array()))
    console.out << one.dump() << '\n';
  for (const OrderedJson& one : figures.value("operations", OrderedJson::array())) {
    console.out << "a step of batch " << one["batch"] << ": " << one["step_us"] << " us\n";
    for (const OrderedJson& part : one["operations"]) {
      console.out << padded(part["name"], 10) << padded(fixed(part["us"], 1), 10) << " us\n";
    }
  }
  if (figures.contains("memory")) {
    console.out << "a session: " << with_commas(figures["memory"]["resident_bytes_per_session"])
                << " bytes of memory, of which its state is "
                << with_commas(figures["memory"]["state_bytes"]) << '\n';
  }
  if (!figures.contains("positions")) return;
  for (const OrderedJson& one : figures["positions"]["points"]) {
    console.out << padded(with_commas(one["position"]), 12)
                << padded(fixed(one["us_per_value"], 1), 10) << " us a value, "
                << fixed(one["ratio"], 3) << " of the first\n";
  }
}

int tell(const BenchOptions& options, const OrderedJson& figures, Console& console) {
  const std::string text = json_text(figures, 1) + "\n";
  if (!options.out.empty()) {
    if (Status written = replace_file(options.out, text); !written.ok()) {
      return fail(console, kExitFailed, written.message());
    }
  }
  if (options.json) {
    console.out << text;
  } else {
    print_table(figures, console);
  }
  console.out << std::flush;
  return kExitOk;
}

// Measures every instruction set of this machine, in the precision that the options ask for, or
// else in each precision in which its bits differ from those of the other sets. Also reports which
// set `auto` chooses, and why.
Result<OrderedJson> bench_every_isa(const BenchOptions& options, const std::set<std::string>& what,
                                    const ModelFactory& make_model, Console& console) {
  const cpu::IsaChoice& best = cpu::best_isa();
  OrderedJson all = {{"auto", isa_name(best.isa) + (", " + best.why)}};
  const auto asked = options.words.find("--precision");
  BenchOptions one = options;
  one.words["--backend"] = "cpu";
  for (const Isa isa : kIsas) {
    if (!isa_available(isa)) continue;
    one.words["--isa"] = isa_name(isa);
    // In fp32, the sets above AVX-512 are the same as AVX-512.
    std::vector<std::string> precisions = {"bf16"};
    if (isa <= Isa::kAvx512) precisions.emplace_back("fp32");
    if (asked != options.words.end()) precisions = {asked->second};
    for (const std::string& precision : precisions) {
      one.words["--precision"] = precision;
      Bench bench(one, make_model, console);
      if (Status s = bench.run(what); !s.ok()) return s;
      OrderedJson named = {{"isa", isa_name(isa)}};
      named.update(bench.figures());
      all["isas"].push_back(std::move(named));
    }
  }
  return all;
}

void add_flags(const Command& command, BenchOptions& options) {
  std::vector<std::string> names;
  for (const Measurement& one : kMeasurements) names.emplace_back(one.name);
  command.flag("bundle", options.bundle,
               "Directory of a bundle, or a GGUF file, to measure in this process");
  add_server(command, options.server);
  add_model(command, options.model);
  command
      .flag("--what", options.what,
            "Measurements to make, separated by commas: engine, prompts, memory, operations, "
            "positions (of the bundle), streams, samples (of the server), limits (of the machine). "
            "Default: engine, streams and samples, and on a CPU also memory and operations")
      .separated_by_commas()
      .one_of(names)
      .without_type();
  command.flag("--batch", options.batches, "Numbers of sequences in a batch, separated by commas")
      .separated_by_commas()
      .between(int64_t{1}, limits::kBatchRows.max)
      .shows_default()
      .without_type();
  command
      .flag("--values", options.values,
            "Values of each sequence (default: up to the model's last position, or 784)")
      .between(int64_t{2}, limits::kMaxValues.default_value);
  command.flag("--prompt", options.prompt, "Values of the prompt that 'prompts' reads")
      .between(int64_t{1}, limits::kPromptValues.default_value)
      .shows_default();
  command
      .flag("--from", options.from,
            "Position at which 'engine' and 'operations' begin; the random values before it are "
            "read first, and not counted (default: 0)")
      .between(int64_t{0}, int64_t{1} << 30);
  command
      .flag("--seconds", options.seconds,
            "Least seconds to measure each batch; the result is the median of whole runs, and a "
            "run that would take much longer is cut short")
      .between(0.0, 3600.0)
      .shows_default();
  command
      .flag("--positions", options.positions,
            "Positions at which to measure the time of a value, separated by commas; each is "
            "compared with the first")
      .separated_by_commas()
      .between(int64_t{1}, int64_t{1} << 30)
      .without_type();
  command.flag("--json", options.json, "Print one JSON object instead of text");
  command.flag("--out,-o", options.out, "File to write the JSON to");
}

}  // namespace

int run_bench(const BenchOptions& options, const ModelFactory& make_model, Console& console) {
  const Result<std::set<std::string>> what = choose(options);
  if (!what.ok()) return fail(console, kExitUsage, what.status().message());
  if (!options.out.empty()) {
    if (Status s = check_writable(options.out); !s.ok()) {
      return fail(console, kExitUsage, s.message());
    }
  }
  if (!options.server.address.empty()) {
    if (const auto access = read_access(options.server); !access.ok()) {
      return fail(console, kExitUsage, access.status().message());
    }
  }
  if (const auto isa = options.words.find("--isa");
      isa != options.words.end() && isa->second == "all") {
    if (options.bundle.empty() || !what->contains("engine")) {
      return fail(console, kExitUsage, "--isa all needs a bundle's directory and --what engine");
    }
    const auto figures = bench_every_isa(options, *what, make_model, console);
    if (!figures.ok()) return fail(console, kExitFailed, figures.status().message());
    return tell(options, *figures, console);
  }
  Bench bench(options, make_model, console);
  if (Status s = bench.run(*what); !s.ok()) return fail(console, kExitFailed, s.message());
  return tell(options, bench.figures(), console);
}

void add_bench(const Command& root, const ModelFactory& make_model) {
  const auto options = std::make_shared<BenchOptions>();
  const Command command =
      root.command("bench", "How fast an engine or a server samples, and where time goes");
  add_flags(command, *options);
  // The settings that put the model on the device, with the flags of serve.
  for (const Field& field : setting_fields()) {
    const std::set<std::string> of_the_device = {"--backend",   "--isa",     "--threads",
                                                 "--precision", "--context", "--cache"};
    if (field.for_gpu || of_the_device.contains(field.flag))
      add_setting(command, field, options->words);
  }
  command.footer(kExamples);
  command.runs([options, command, make_model](Console& console) {
    std::erase_if(options->words, [&](const auto& word) { return !command.given(word.first); });
    return run_bench(*options, make_model, console);
  });
}

}  // namespace runnel
