#include "server/openai/image_generation.h"

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/within_memory.h"
#include "server/calls/generate_call.h"
#include "server/http/call_start.h"
#include "server/http/event_stream.h"
#include "server/http/live_answer.h"
#include "server/http/request_fields.h"
#include "server/openai/drawing.h"
#include "server/openai/image_json.h"
#include "server/openai/image_request.h"
#include "server/openai/words.h"

namespace runnel {
namespace {

constexpr const char* kMethod = "openai.images";
constexpr int64_t kEncoderBytes = 512 << 10;  // used while a PNG file is made
// The memory of a picture's text on its way: as JSON, while it grows, and in the answer.
constexpr int64_t kAnswerFactor = 6;

// One request and its call. Once start() has started the call, only the thread that has its turn
// touches what the mutex does not protect.
class ImageGeneration final : public GenerateSink,
                              public std::enable_shared_from_this<ImageGeneration> {
 public:
  ImageGeneration(ServerContext& state, HttpReply reply)
      : state_(state), reply_(std::move(reply)) {}

  void start(const HttpRequest& request);

 private:
  Fault submit(const HttpRequest& request);
  Status prepare(const ImageShape& shape);

  void write(const GenerateEvent& event) override;
  void finish(const Status& status) override;
  void cut_off() override;

  void take(const Queued&) { go_on_later(); }
  void take(const Started&);
  void take(const SampledValues& values);
  void take(const Finished& finished);
  Result<std::string> news();
  Result<std::string> end_of(const Finished& finished);
  // Sends the events, if there are any, or ends the call.
  void deliver(const Result<std::string>& events);
  void go_on() { call_->written(true); }
  // Continues later, because the call may be in the middle of its turn.
  void go_on_later();
  void answer(const Fault& fault);

  ServerContext& state_;
  HttpReply reply_;
  std::shared_ptr<GenerateCall> call_;
  ImageRequest request_;
  std::optional<ImageFormat> format_;
  MemoryBudget::Hold room_;
  std::vector<Drawing> drawings_;      // by sample
  std::vector<std::string> pictures_;  // by sample, if they are not streamed
  ImageUsage usage_;
  bool begun_ = false;  // the head of a stream has been sent

  std::mutex mutex_;
  std::shared_ptr<ImageGeneration> self_;  // until the call has finished
  Fault fault_;                            // set if start() has refused the call
};

// --- The request ---

void ImageGeneration::start(const HttpRequest& request) {
  state_.metrics.received.add(std::ssize(request.body));
  call_ = GenerateCall::make(state_, call_start(kMethod, state_, request), *this);
  self_ = shared_from_this();
  call_->enter();
  Fault fault;
  const Status status = within_memory([&] {
    reply_.on_gone([weak = weak_from_this()] {
      if (const auto self = weak.lock()) self->call_->cancel();
    });
    fault = submit(request);
    return fault.status;
  });
  if (status.ok()) return;
  {
    std::lock_guard lock(mutex_);
    fault_ = fault.ok() ? fault_of(status, image_word) : std::move(fault);
  }
  call_->refuse(status);
}

// OK: the call will answer.
Fault ImageGeneration::submit(const HttpRequest& request) {
  if (Status s = call_->admit(); !s.ok()) return {s};
  const auto room = state_.memory.take(parsed_bytes(request.body));
  if (!room.ok()) return {room.status()};
  const Result<Json> body = parse_body(request.body);
  if (!body.ok()) return {body.status()};
  if (Fault fault = read_image_request(*body, request_); !fault.ok()) return fault;
  const auto model = call_->find_model(request_.model);
  if (!model.ok()) return fault_of(model.status(), image_word);
  const Spec& spec = (*model)->engine->spec();
  if (Fault fault = fit_to_model(name_for(request_.model, **model), spec, request_); !fault.ok())
    return fault;
  if (Status s = prepare(*spec.image); !s.ok()) return {s};
  request_.call.model = request_.model;
  request_.call.delivery = state_.delivery;
  request_.call.max_queue_time = request_.max_queue_time.value_or(state_.http_queue_time);
  call_->start(*model, std::move(request_.call));
  return {};
}

// Reserves memory for the whole answer before any of it exists. RESOURCE_EXHAUSTED.
Status ImageGeneration::prepare(const ImageShape& shape) {
  format_.emplace(shape, state_.clock.unix_time());
  const int samples = request_.call.samples;
  const int64_t text =
      request_.stream ? format_->stream_bytes(request_.rows) : format_->picture_bytes();
  const int64_t bytes = kEncoderBytes + samples * (shape.bytes() + kAnswerFactor * text);
  if (Status s = state_.memory.grow(room_, bytes); !s.ok()) return s;
  drawings_.reserve(static_cast<size_t>(samples));
  for (int i = 0; i < samples; ++i) drawings_.emplace_back(shape, request_.call.prompt);
  if (!request_.stream) pictures_.resize(static_cast<size_t>(samples));
  return {};
}

// --- The call ---

void ImageGeneration::write(const GenerateEvent& event) {
  std::visit([this](const auto& what) { take(what); }, event);
}

void ImageGeneration::take(const Started& /*started*/) {
  if (request_.stream) {
    begin_events(reply_);
    begun_ = true;
  }
  deliver(news());  // the bytes that the client has given
}

void ImageGeneration::take(const SampledValues& values) {
  for (const ValueRun& run : values.runs) drawings_[static_cast<size_t>(run.sample)].add(run);
  deliver(news());
}

void ImageGeneration::take(const Finished& finished) {
  usage_.given = finished.prompt_values;
  usage_.drawn += finished.sampled_values;
  deliver(end_of(finished));
}

// The unsent parts of the pictures, without their last events. Only one file is made per turn,
// because that takes the writer's time. The others come with the values that follow.
Result<std::string> ImageGeneration::news() {
  std::string events;
  const int samples = static_cast<int>(drawings_.size());
  for (int i = 0; request_.rows && i < samples; ++i) {
    while (const auto row = drawings_[i].take_row()) events += format_->row(i, *row);
  }
  for (int i = 0; i < samples; ++i) {
    const auto partial = drawings_[i].take_partial(request_.partial_images);
    if (!partial) continue;
    const auto png = drawings_[i].png();
    if (!png.ok()) return png.status();
    return events + format_->partial(i, *partial, *png);
  }
  return events;
}

// Keeps a whole picture, or makes its last event.
Result<std::string> ImageGeneration::end_of(const Finished& finished) {
  const auto sample = static_cast<size_t>(finished.sample);
  const auto png = drawings_[sample].png();
  if (!png.ok()) return png.status();
  if (request_.stream) {
    return format_->completed(finished.sample, *png,
                              {finished.prompt_values, finished.sampled_values});
  }
  pictures_[sample] = format_->picture(*png);
  return std::string();
}

void ImageGeneration::deliver(const Result<std::string>& events) {
  if (!events.ok()) call_->refuse(events.status());
  if (!events.ok() || events->empty()) return go_on_later();
  state_.metrics.sent.add(std::ssize(*events));
  reply_.write(*events, [self = shared_from_this()](bool taken) { self->call_->written(taken); });
}

void ImageGeneration::go_on_later() {
  state_.writer.post<&ImageGeneration::go_on>(shared_from_this());
}

void ImageGeneration::finish(const Status& status) {
  std::shared_ptr<ImageGeneration> self;  // may be the last reference to this
  Fault fault;
  {
    std::lock_guard lock(mutex_);
    self = std::exchange(self_, nullptr);
    fault = fault_.ok() ? fault_of(status, image_word) : fault_;
  }
  // Without memory for the answer the reply ends with 500, or cuts the stream off.
  static_cast<void>(within_memory([&] {
    answer(fault);
    return Status();
  }));
  call_->leave();
}

void ImageGeneration::cut_off() {
  static_cast<void>(within_memory([this] {
    reply_.abort();
    return Status();
  }));
}

void ImageGeneration::answer(const Fault& fault) {
  if (!fault.ok() && !begun_) return send_fault(fault, reply_);
  auto kept = live_answer(state_, shared_from_this());
  if (begun_) {
    const std::string last = fault.ok() ? "" : event_of(error_json(fault));
    state_.metrics.sent.add(std::ssize(last));
    if (!last.empty()) reply_.write(last, [kept = std::move(kept)](bool) {});
    return reply_.end();
  }
  std::string pictures;
  for (const std::string& picture : pictures_) {
    pictures += (pictures.empty() ? "" : ",") + picture;
  }
  std::string whole = format_->whole(pictures, usage_);
  state_.metrics.sent.add(std::ssize(whole));
  reply_.send({200, "application/json", std::move(whole)}, std::move(kept));
}

}  // namespace

void start_image_generation(ServerContext& state, const HttpRequest& request, HttpReply reply) {
  std::make_shared<ImageGeneration>(state, std::move(reply))->start(request);
}

}  // namespace runnel
