#include <algorithm>
#include <cctype>
#include <cmath>
#include <filesystem>
#include <optional>
#include <span>
#include <string_view>

#include "base/file.h"
#include "base/json.h"
#include "base/limits.h"
#include "base/text.h"
#include "cli/commands.h"
#include "cli/field_flags.h"
#include "cli/image_sheet.h"
#include "cli/input.h"
#include "cli/interrupt.h"
#include "cli/png_file.h"
#include "cli/progress_bar.h"
#include "cli/prompt.h"
#include "cli/reach_model.h"
#include "cli/reading_line.h"
#include "cli/transcript.h"
#include "cli/values_text.h"
#include "client/client.h"
#include "client/model_choice.h"

namespace runnel {
namespace {

constexpr uint8_t kNotDrawn = 0x80;  // a pixel that was neither given to this call nor drawn by it

// Everything that is known before the call.
struct Plan {
  ModelView model;
  v1::GenerateRequest request;
  std::vector<int32_t> prompt;
  std::string text;    // the prompt, if it is text
  SheetLayout layout;  // of images
  std::string out;     // of images: the file to write
};

// Makes a model's name the name of a file in the current directory.
std::string default_file(const std::string& model) {
  std::string name;
  for (const char c : model) {
    const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                       c == '-' || c == '_' || (c == '.' && !name.empty());
    name += plain ? c : '_';
  }
  return (name.empty() ? "images" : name) + ".png";
}

// The picture is always a PNG: a name that promises another format is refused.
Status check_out(const std::string& out) {
  std::string extension = std::filesystem::path(out).extension().string();
  std::ranges::transform(extension, extension.begin(),
                         [](unsigned char c) { return std::tolower(c); });
  constexpr std::string_view kOthers[] = {".jpg", ".jpeg", ".gif", ".bmp",  ".webp",
                                          ".tif", ".tiff", ".svg", ".avif", ".pdf"};
  if (std::ranges::find(kOthers, extension) == std::end(kOthers)) return {};
  const std::string stem = out.substr(0, out.size() - extension.size());
  return invalid_argument("--out " + quote(out, 400) + " is to be a " + extension.substr(1) +
                          " file; runnel writes PNG: name it " + quote(stem + ".png", 400));
}

Status check_flags(const GenerateOptions& options, const ModelView& model) {
  const std::string name = "model " + quote(model.name);
  if (!model.image && !options.prompt_image.empty()) {
    return invalid_argument("--prompt-image is for models of images; " + name +
                            " has symbols: give a prompt with --values");
  }
  if (!model.has_text &&
      (options.prompt || !options.prompt_file.empty() || !options.stop.empty())) {
    return invalid_argument("--prompt, --prompt-file and --stop are for models of text; " + name +
                            " has no tokenizer: give a prompt with --values");
  }
  if (options.no_begin && !options.prompt && options.prompt_file.empty()) {
    return invalid_argument(
        "--no-begin is for a prompt of text: give one with --prompt, or leave out --no-begin");
  }
  if (!model.image && !options.out.empty()) {
    return invalid_argument("--out is for models of images; " + name +
                            " prints text: send it to a file with > FILE");
  }
  if (Status s = check_out(options.out); !s.ok()) return s;
  if (options.keep && options.count != 1) {
    return invalid_argument("--keep with --count " + std::to_string(options.count) +
                            ": only one sequence can go on as a session; leave one of them out");
  }
  if (options.top_log_probs > 0 && !options.json) {
    return invalid_argument("--top-log-probs is shown in JSON alone: add --json");
  }
  return {};
}

void fill_request(const GenerateOptions& options, const Plan& plan, v1::GenerateRequest& request) {
  request.set_model(plan.model.name);
  if (!options.session.empty()) request.mutable_origin()->set_session(options.session);
  if (!options.from.empty()) request.mutable_origin()->set_state(options.from);
  if (plan.text.empty()) {
    request.mutable_values()->mutable_values()->Add(plan.prompt.begin(), plan.prompt.end());
  } else {
    request.set_text(plan.text);
  }
  if (options.no_begin) request.set_begin(false);
  for (const std::string& text : options.stop) request.add_stop_text(text);
  request.set_ignore_eos(options.ignore_eos);
  request.set_samples(options.count);
  if (options.max_values) request.set_max_values(*options.max_values);
  fill_sampling(options.sampling, *request.mutable_sampling());
  if (options.top_log_probs > 0) request.set_top_log_probs(options.top_log_probs);
  if (options.keep) request.set_keep(true);
  if (options.max_queue_time) {
    *request.mutable_max_queue_time() = wire_duration(*options.max_queue_time);
  }
  if (plan.model.image) {
    // Nobody reads pixel by pixel. Fewer messages leave more of the machine to the model.
    request.mutable_delivery()->set_max_values(1024);
    request.mutable_delivery()->mutable_max_delay()->set_nanos(100'000'000);
  }
}

// The prompt if it is text, otherwise "".
Result<std::string> text_prompt(const GenerateOptions& options) {
  for (const std::string& stop : options.stop) {
    if (Status s = check_utf8(stop, "--stop"); !s.ok()) return s;
  }
  if (!options.prompt_file.empty()) return read_text(options.prompt_file, limits::kTextBytes.max);
  const std::string text = options.prompt.value_or("");
  if (Status s = check_utf8(text, "--prompt"); !s.ok()) return s;
  return text;
}

Result<Plan> make_plan(const GenerateOptions& options, ModelView model) {
  Plan plan;
  if (Status status = check_flags(options, model); !status.ok()) return status;
  if (!options.prompt_image.empty()) {
    auto prompt = image_prompt(options.prompt_image, *model.image, options.rows.value_or(0));
    if (!prompt.ok()) return prompt.status();
    plan.prompt = std::move(*prompt);
  } else if (!options.values.empty()) {
    auto prompt = parse_values(options.values, model.vocabulary, "--values");
    if (!prompt.ok()) return prompt.status();
    plan.prompt = std::move(*prompt);
  }
  auto text = text_prompt(options);
  if (!text.ok()) return text.status();
  plan.text = std::move(*text);
  if (model.image) {
    plan.out = options.out.empty() ? default_file(model.name) : options.out;
    if (Status status = check_writable(plan.out); !status.ok()) return status;
    auto layout = layout_sheet(options.count, *model.image);
    if (!layout.ok()) return layout.status();
    plan.layout = *layout;
  }
  plan.model = std::move(model);
  fill_request(options, plan, plan.request);
  return plan;
}

// The number of values that the call will bring in all samples together; 0 if that is not known.
int64_t expected_values(const Plan& plan, int64_t position) {
  const int64_t samples = plan.request.samples();
  const bool may_stop = plan.request.stop_text_size() > 0;
  if (may_stop || (!plan.text.empty() && !plan.request.has_max_values())) return 0;
  const int64_t start = position + static_cast<int64_t>(plan.prompt.size());
  const int64_t most =
      plan.model.max_length == 0 ? INT64_MAX : std::max<int64_t>(plan.model.max_length - start, 0);
  const int64_t each =
      plan.request.has_max_values() ? std::min<int64_t>(most, plan.request.max_values()) : most;
  return each > INT64_MAX / samples ? 0 : each * samples;
}

// The printed form of values; `text` if the model has text.
std::string written(std::span<const int32_t> values, const std::string& text,
                    const ModelView& model) {
  return model.has_text ? tame(text) : values_to_text(values, model.symbols);
}

// Shows a call's values as they arrive.
class Display {
 public:
  Display(const GenerateOptions& options, const Plan& plan, Console& console)
      : plan_(plan),
        console_(console),
        // A single text can be printed as it arrives. A progress bar would be drawn over it.
        streams_text_(!plan.model.image && options.count == 1 && !options.json),
        shows_progress_(!(streams_text_ && console.out_terminal)),
        progress_(progress_line(console, "values")) {}

  void show(const v1::GenerateResponse& event, const Transcript& transcript) {
    if (event.has_queued()) return show_place(event.queued());
    reading_.reset();
    if (event.has_started() && !prompt_text().empty()) {
      reading_.emplace(console_, prompt_text());
      return;
    }
    if (streams_text_ && event.has_values()) print(event.values());
    if (!shows_progress_) return;
    const int64_t position = transcript.started().position();
    progress_.update(transcript.values(), expected_values(plan_, position));
  }

  // Call before anything else is written.
  void end() {
    reading_.reset();
    progress_.clear();
    if (streams_text_ && printed_ && !line_ended_) console_.out << std::endl;
    printed_ = false;
  }

  bool streams_text() const { return streams_text_; }

 private:
  // "a prompt of 1,200 values"; "" where there is none.
  std::string prompt_text() const {
    if (!plan_.text.empty()) {
      return "a prompt of " + with_commas(std::ssize(plan_.text)) + " bytes";
    }
    if (plan_.prompt.empty()) return "";
    return "a prompt of " + with_commas(std::ssize(plan_.prompt)) + " values";
  }

  void print(const v1::Values& values) {
    for (const v1::ValueRun& run : values.runs()) {
      const std::string text = written(
          {run.values().data(), static_cast<size_t>(run.values_size())}, run.text(), plan_.model);
      if (text.empty()) continue;
      console_.out << text;
      line_ended_ = text.back() == '\n';
      printed_ = true;
    }
    console_.out.flush();
  }

  void show_place(const v1::Queued& queued) {
    console_.err << "waiting for a slot: place " << queued.place();
    if (queued.has_expected_wait()) {
      const double seconds = seconds_of(queued.expected_wait());
      console_.err << ", about " << with_commas(std::max(1L, std::lround(seconds))) << " s";
    }
    console_.err << std::endl;
  }

  const Plan& plan_;
  Console& console_;
  const bool streams_text_, shows_progress_;
  ProgressLine progress_;
  std::optional<ReadingLine> reading_;
  bool printed_ = false, line_ended_ = false;
};

// The pixels of each sample: the prompt, the drawn pixels, and grey for unknown pixels.
std::vector<std::vector<uint8_t>> images_of(const Plan& plan, const Transcript& transcript) {
  const int64_t size = plan.model.image->bytes();
  std::vector<std::vector<uint8_t>> images;
  for (const SampleTranscript& sample : transcript.samples()) {
    std::vector<uint8_t>& image = images.emplace_back(size, kNotDrawn);
    const auto put = [&](int64_t position, const std::vector<int32_t>& values) {
      for (const int32_t value : values) {
        if (position >= 0 && position < size) image[position] = static_cast<uint8_t>(value);
        ++position;
      }
    };
    put(transcript.started().position(), plan.prompt);
    put(sample.position, sample.values);
  }
  return images;
}

Status write_images(const Plan& plan, const Transcript& transcript) {
  const Picture sheet = draw_sheet(plan.layout, *plan.model.image, images_of(plan, transcript));
  const Result<std::vector<uint8_t>> bytes = encode_png(sheet);
  if (!bytes.ok()) return bytes.status();
  return replace_file(plan.out, as_text(*bytes));
}

OrderedJson sample_json(const SampleTranscript& sample, const ModelView& model) {
  OrderedJson values = {
      {"position", sample.position}, {"values", sample.values}, {"log_probs", sample.log_probs}};
  if (!model.image) {
    values["text"] = model.has_text ? sample.text : values_to_text(sample.values, model.symbols);
  }
  if (sample.finished) {
    values["reason"] = v1::Finished::Reason_Name(sample.finished->reason());
    values["end_position"] = sample.finished->usage().position();
  }
  for (const v1::TopLogProbs& position : sample.top) {
    OrderedJson top = OrderedJson::array();
    for (const v1::TopLogProb& one : position.top()) {
      top.push_back({{"value", one.value()}, {"log_prob", one.log_prob()}});
    }
    values["top_log_probs"].push_back(std::move(top));
  }
  return values;
}

void print_json(const Plan& plan, const Transcript& transcript, Console& console) {
  const TranscriptPace pace = transcript.pace();
  const v1::Started& started = transcript.started();
  OrderedJson out = {{"model", plan.model.name}, {"numerics", started.numerics()},
                     {"seed", started.seed()},   {"values", transcript.values()},
                     {"seconds", pace.seconds},  {"samples", OrderedJson::array()}};
  if (pace.first_value) out["seconds_to_first_value"] = *pace.first_value;
  if (pace.prompt_rate) out["prompt_values_per_second"] = *pace.prompt_rate;
  if (pace.sampling_rate) out["sampled_values_per_second"] = *pace.sampling_rate;
  if (pace.cached_values > 0) out["cached_prompt_values"] = pace.cached_values;
  if (const auto bits = transcript.bits_per_dim()) out["bits_per_dim"] = *bits;
  if (!started.session().empty()) out["session"] = started.session();
  if (plan.model.image) {
    out["file"] = plan.out;
    if (pace.seconds > 0) out["images_per_second"] = transcript.samples().size() / pace.seconds;
  }
  for (const SampleTranscript& sample : transcript.samples()) {
    out["samples"].push_back(sample_json(sample, plan.model));
  }
  console.out << json_text(out) << std::endl;
}

std::string rate_text(double rate, const char* of) {
  return ", " + with_commas(std::llround(rate)) + " " + of + "/s";
}

// "in 3.42 s: first value after 12.0 ms, 4,100 prompt values/s, 3,662 sampled values/s, 4.7
// images/s, 1.06 bits per dimension".
std::string figures(const Plan& plan, const Transcript& transcript) {
  const TranscriptPace pace = transcript.pace();
  std::string line = "in " + fixed(pace.seconds, 2) + " s";
  if (pace.first_value) line += ", first value after " + fixed(*pace.first_value * 1e3, 1) + " ms";
  if (pace.prompt_rate) line += rate_text(*pace.prompt_rate, "prompt values");
  if (pace.cached_values > 0) line += ", " + with_commas(pace.cached_values) + " cached";
  if (pace.sampling_rate) line += rate_text(*pace.sampling_rate, "sampled values");
  if (plan.model.image && pace.seconds > 0) {
    line += ", " + fixed(transcript.samples().size() / pace.seconds, 1) + " images/s";
  }
  if (const auto bits = transcript.bits_per_dim()) {
    line += ", " + fixed(*bits, 3) + " bits per " + (plan.model.image ? "dimension" : "value");
  }
  return line;
}

// Why a text ended, unless it reached its length; "" otherwise.
std::string end_text(const SampleTranscript& sample) {
  switch (sample.finished->reason()) {
    case v1::Finished::STOP:
      return "ended by --stop";
    case v1::Finished::END:
      return "ended at the model's last position";
    case v1::Finished::TIME:
      return "ended by the time limit";
    case v1::Finished::EOS:
      return "ended by the model";
    default:
      return "";
  }
}

void print_summary(const Plan& plan, const Transcript& transcript, const Display& display,
                   Console& console) {
  const v1::Started& started = transcript.started();
  if (plan.model.image) {
    const ImageShape& shape = *plan.model.image;
    console.out << tame(plan.out) << ": " << transcript.samples().size() << " image"
                << (transcript.samples().size() == 1 ? "" : "s") << " of " << shape.height << " x "
                << shape.width << ", seed " << started.seed() << ", " << figures(plan, transcript)
                << std::endl;
  } else {
    for (size_t i = 0; !display.streams_text() && i < transcript.samples().size(); ++i) {
      const SampleTranscript& sample = transcript.samples()[i];
      const std::string end = end_text(sample);
      console.out << "--- sample " << i << (end.empty() ? "" : ", " + end) << '\n'
                  << written(sample.values, sample.text, plan.model) << std::endl;
    }
    const std::string end = display.streams_text() ? end_text(transcript.samples()[0]) : "";
    console.err << with_commas(transcript.values()) << " values, seed " << started.seed() << ", "
                << figures(plan, transcript) << (end.empty() ? "" : ", " + end) << std::endl;
  }
  if (!started.session().empty()) {
    console.err << "session: " << tame(started.session()) << std::endl;
  }
}

int draw(const GenerateOptions& options, const Plan& plan, Client& client,
         const Interrupt& interrupt, Console& console) {
  Transcript transcript(plan.model, options.count);
  Display display(options, plan, console);
  const auto on_event = [&](const v1::GenerateResponse& event) {
    Status taken = transcript.add(event);
    if (taken.ok()) display.show(event, transcript);
    // Nobody can read the values that are still to come.
    if (taken.ok() && !console.out) return Status(Code::kCancelled, "");
    return taken;
  };
  Status status = client.generate(plan.request, on_event);
  if (status.code() == Code::kNotFound && options.keep && !options.session.empty()) {
    v1::Session made;
    status = client.create_session(plan.model.name, options.session, made);
    if (status.ok()) status = client.generate(plan.request, on_event);
  }
  display.end();
  if (interrupt.fired()) {
    return fail(console, kExitInterrupted,
                plan.model.image ? "interrupted; no image was written" : "interrupted");
  }
  if (!console.out) return delivered(console, kExitOk);
  if (!status.ok()) return fail(console, kExitFailed, call_error(in_flags(status, generate_flag)));
  if (Status whole = transcript.complete(); !whole.ok()) {
    return fail(console, kExitFailed, whole.to_string());
  }
  if (plan.model.image) {
    if (Status written = write_images(plan, transcript); !written.ok()) {
      return fail(console, kExitFailed, written.message());
    }
  }
  if (options.json) {
    print_json(plan, transcript, console);
  } else {
    print_summary(plan, transcript, display, console);
  }
  return kExitOk;
}

}  // namespace

int run_generate(const GenerateOptions& options, Console& console) {
  Client client(options.server, Seconds(options.timeout));
  Interrupt interrupt([&] { client.cancel(); });
  auto reached = reach_model(client, options.model, interrupt, console);
  if (const int* exit_code = std::get_if<int>(&reached)) return *exit_code;
  auto& model = std::get<ModelView>(reached);
  interrupt.end_at_once(true);
  const Result<Plan> plan = make_plan(options, std::move(model));
  interrupt.end_at_once(false);
  if (!plan.ok()) return fail(console, kExitUsage, plan.status().message());
  return draw(options, *plan, client, interrupt, console);
}

}  // namespace runnel
