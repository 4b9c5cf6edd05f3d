#include <algorithm>
#include <string>
#include <thread>
#include <vector>

#include "base/text.h"
#include "cli/commands.h"
#include "cli/field_flags.h"
#include "cli/interrupt.h"
#include "cli/prompt.h"
#include "cli/reach_model.h"
#include "cli/terminal_picture.h"
#include "cli/transcript.h"
#include "client/client.h"
#include "client/model_choice.h"

namespace runnel {
namespace {

constexpr std::chrono::milliseconds kFrame{40};  // no terminal shows frames faster
constexpr std::chrono::milliseconds kNap{5};     // between checks for an interrupt

// Ends colours and shows the cursor.
constexpr const char* kAsBefore = "\x1b[0m\x1b[?25h";

// An area of the terminal where a picture grows. The cursor is hidden while this object exists.
class Easel {
 public:
  // All references must outlive the object.
  Easel(const Picture& picture, const TerminalStyle& style, Console& console)
      : picture_(picture),
        style_(style),
        console_(console),
        rows_(size_on_terminal(picture.shape, style).rows) {
    console_.out << "\x1b[?25l" << std::string(rows_, '\n') << std::flush;
  }
  ~Easel() { console_.out << kAsBefore << std::flush; }
  Easel(const Easel&) = delete;
  Easel& operator=(const Easel&) = delete;

  // Shows the first `known` bytes of the picture, unless the last frame is too recent.
  void update(int64_t known) {
    const TimePoint now = console_.clock.now();
    if (now - drawn_at_ < kFrame && known < picture_.shape.bytes()) return;
    drawn_at_ = now;
    show(known);
  }

  // Draws the rows that have changed.
  void show(int64_t known) {
    if (known <= shown_) return;
    const int first = row_of_byte(picture_.shape, shown_, style_);
    const int last = row_of_byte(picture_.shape, known - 1, style_);
    std::string text = "\x1b[" + std::to_string(rows_ - first) + "A\r";
    for (int row = first; row <= last; ++row) {
      text += render_row(picture_, known, row, style_) + "\r\n";
    }
    if (last + 1 < rows_) text += "\x1b[" + std::to_string(rows_ - last - 1) + "B";
    console_.out << text << std::flush;
    shown_ = known;
  }

 private:
  const Picture& picture_;
  const TerminalStyle style_;
  Console& console_;
  const int rows_;
  int64_t shown_ = 0;  // bytes
  TimePoint drawn_at_;
};

// The settings of the call.
struct DrawPlan {
  ModelView model;
  TerminalStyle style;
  v1::GenerateRequest request;
};

Status check_fits(const ImageShape& shape, const TerminalStyle& style, const TerminalSize& has) {
  const TerminalSize needs = size_on_terminal(shape, style);
  if (needs.columns <= has.columns && needs.rows < has.rows) return {};
  return invalid_argument("the picture takes " + std::to_string(needs.columns) + " columns and " +
                          std::to_string(needs.rows + 1) + " rows, and the terminal has " +
                          std::to_string(has.columns) + " and " + std::to_string(has.rows) +
                          ": make it larger, or write a file with runnel generate --out");
}

Result<DrawPlan> make_plan(const DrawOptions& options, ModelView model, const Console& console) {
  DrawPlan plan;
  if (!model.image) {
    return invalid_argument("model " + quote(model.name) +
                            " has symbols, not pictures; runnel generate prints them");
  }
  plan.style = {.true_colour = console.true_colour, .utf8 = console.utf8};
  if (Status s = check_fits(*model.image, plan.style, console.canvas()); !s.ok()) return s;
  if (!options.prompt_image.empty()) {
    const auto prompt = image_prompt(options.prompt_image, *model.image, options.rows.value_or(0));
    if (!prompt.ok()) return prompt.status();
    plan.request.mutable_values()->mutable_values()->Add(prompt->begin(), prompt->end());
  }
  plan.request.set_model(model.name);
  plan.request.set_samples(1);
  fill_sampling(options.sampling, *plan.request.mutable_sampling());
  plan.model = std::move(model);
  return plan;
}

// Puts a picture's bytes together from a call's values, and shows them at the set pace.
class Drawing {
 public:
  Drawing(const DrawPlan& plan, double seconds, const Interrupt& interrupt, Console& console)
      : picture_{.shape = *plan.model.image,
                 .bytes = std::vector<uint8_t>(plan.model.image->bytes())},
        easel_(picture_, plan.style, console),
        seconds_(seconds),
        interrupt_(interrupt),
        console_(console),
        start_(console.clock.now()) {
    put(plan.request.values().values());
    given_ = known_;
    easel_.show(known_);
  }

  void add(const v1::GenerateResponse& event) {
    for (const v1::ValueRun& run : event.values().runs()) {
      put(run.values());
      wait();
      easel_.update(known_);
    }
  }

  double seconds() const { return Seconds(console_.clock.now() - start_).count(); }

 private:
  void put(const google::protobuf::RepeatedField<int32_t>& values) {
    for (const int32_t value : values) {
      if (known_ == picture_.shape.bytes()) return;
      picture_.bytes[known_++] = static_cast<uint8_t>(value);
    }
  }

  // Waits until the known part of the picture is due.
  void wait() const {
    const double part =
        static_cast<double>(known_ - given_) / static_cast<double>(picture_.shape.bytes() - given_);
    while (seconds() < seconds_ * part && !interrupt_.fired()) std::this_thread::sleep_for(kNap);
  }

  Picture picture_;
  int64_t known_ = 0, given_ = 0;  // bytes
  Easel easel_;
  const double seconds_;
  const Interrupt& interrupt_;
  Console& console_;
  const TimePoint start_;
};

int draw(const DrawOptions& options, const DrawPlan& plan, Client& client,
         const Interrupt& interrupt, Console& console) {
  Transcript transcript(plan.model, 1);
  Status status;
  double seconds = 0;
  {
    Drawing drawing(plan, options.seconds, interrupt, console);
    status = client.generate(plan.request, [&](const v1::GenerateResponse& event) {
      Status taken = transcript.add(event);
      if (taken.ok()) drawing.add(event);
      // Nobody would see the values that are still to come.
      if (taken.ok() && !console.out) return Status(Code::kCancelled, "");
      return taken;
    });
    seconds = drawing.seconds();
  }
  if (interrupt.fired()) return fail(console, kExitInterrupted, "interrupted");
  if (!console.out) return delivered(console, kExitOk);
  if (!status.ok()) return fail(console, kExitFailed, call_error(in_flags(status, draw_flag)));
  if (Status whole = transcript.complete(); !whole.ok()) {
    return fail(console, kExitFailed, whole.to_string());
  }
  console.out << tame(plan.model.name) << ", seed " << transcript.started().seed() << ", in "
              << fixed(seconds, 2) << " s";
  if (const auto bits = transcript.bits_per_dim()) {
    console.out << ", " << fixed(*bits, 3) << " bits per dimension";
  }
  console.out << std::endl;
  return delivered(console, kExitOk);
}

}  // namespace

int run_draw(const DrawOptions& options, Console& console) {
  if (!console.canvas) {
    return fail(console, kExitUsage,
                "runnel draw needs a terminal that takes colours as standard output; runnel "
                "generate --out FILE.png writes a picture");
  }
  Client client(options.server, Seconds(options.timeout));
  Interrupt interrupt([&] { client.cancel(); });
  auto reached = reach_model(client, options.model, interrupt, console);
  if (const int* exit_code = std::get_if<int>(&reached)) return *exit_code;
  auto& model = std::get<ModelView>(reached);
  const Result<DrawPlan> plan = make_plan(options, std::move(model), console);
  if (!plan.ok()) return fail(console, kExitUsage, plan.status().message());
  interrupt.restores(kAsBefore);
  return draw(options, *plan, client, interrupt, console);
}

}  // namespace runnel
