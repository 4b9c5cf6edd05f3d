#include "cli/transcript.h"

#include <algorithm>
#include <numbers>
#include <string>

namespace runnel {
namespace {

Status broken(const std::string& what) {
  return {Code::kInternal, "the server's stream is not what it should be (" + what +
                               "); is it another version of runnel?"};
}

}  // namespace

double seconds_of(const google::protobuf::Duration& duration) {
  return static_cast<double>(duration.seconds()) + duration.nanos() * 1e-9;
}

Transcript::Transcript(const ModelView& model, int samples)
    : vocabulary_(model.vocabulary),
      max_length_(model.max_length),
      has_begin_(model.has_begin),
      samples_(samples) {}

Status Transcript::add(const v1::GenerateResponse& event) {
  if (event.has_queued() && !has_started_) return {};  // it waits
  if (event.has_started()) {
    if (has_started_) return broken("it starts twice");
    has_started_ = true;
    started_ = event.started();
    return {};
  }
  if (!has_started_) return broken("it does not begin with Started");
  if (event.has_values()) {
    for (const v1::ValueRun& run : event.values().runs()) {
      if (Status status = add_run(run); !status.ok()) return status;
    }
    return {};
  }
  if (!event.has_finished()) return broken("an event of an unknown kind");
  const int64_t index = event.finished().sample();
  if (index < 0 || index >= static_cast<int64_t>(samples_.size()) || samples_[index].finished) {
    return broken("sample " + std::to_string(index) + " finishes, which does not run");
  }
  samples_[index].finished = event.finished();
  return {};
}

Status Transcript::add_run(const v1::ValueRun& run) {
  const int64_t index = run.sample();
  if (index < 0 || index >= static_cast<int64_t>(samples_.size()) || samples_[index].finished) {
    return broken("values of sample " + std::to_string(index) + ", which does not run");
  }
  SampleTranscript& sample = samples_[index];
  if (sample.values.empty()) sample.position = run.position();
  const int64_t next = sample.position + static_cast<int64_t>(sample.values.size());
  if (run.position() != next || run.position() < started_.position()) {
    return broken("values at position " + std::to_string(run.position()) + ", expected " +
                  std::to_string(next));
  }
  if (run.log_probs_size() != run.values_size()) return broken("values without log-probabilities");
  if (max_length_ > 0 && run.position() > max_length_ - run.values_size()) {
    return broken("values after the model's last position");
  }
  const bool in_range = std::all_of(run.values().begin(), run.values().end(), [&](int32_t value) {
    return value >= 0 && value < vocabulary_;
  });
  if (!in_range) return broken("a value that the model does not have");
  sample.values.insert(sample.values.end(), run.values().begin(), run.values().end());
  sample.log_probs.insert(sample.log_probs.end(), run.log_probs().begin(), run.log_probs().end());
  sample.top.insert(sample.top.end(), run.top_log_probs().begin(), run.top_log_probs().end());
  sample.text += run.text();
  values_ += run.values_size();
  return {};
}

Status Transcript::complete() const {
  if (!has_started_) return broken("it ended without an event");
  for (size_t index = 0; index < samples_.size(); ++index) {
    if (!samples_[index].finished) {
      return broken("it ended while sample " + std::to_string(index) + " ran");
    }
  }
  return {};
}

std::optional<double> Transcript::bits_per_dim() const {
  double nats = 0;
  int64_t values = 0;
  for (const SampleTranscript& sample : samples_) {
    const size_t first = has_begin_ && sample.position == 0 ? 1 : 0;
    for (size_t i = first; i < sample.log_probs.size(); ++i) nats -= sample.log_probs[i];
    values += drawn(sample);
  }
  if (values == 0) return std::nullopt;
  return nats / (static_cast<double>(values) * std::numbers::ln2);
}

TranscriptPace Transcript::pace() const {
  TranscriptPace pace;
  int64_t prompt = 0, after_first = 0;
  for (const SampleTranscript& sample : samples_) {
    if (!sample.finished) continue;
    const v1::Usage& usage = sample.finished->usage();
    pace.seconds = std::max(pace.seconds, seconds_of(usage.elapsed()));
    pace.cached_values = usage.cached_values();
    prompt = usage.prompt_values() - usage.cached_values();
    after_first += std::max<int64_t>(drawn(sample) - 1, 0);
    if (!usage.has_first_value()) continue;
    const double first = seconds_of(usage.first_value());
    pace.first_value = std::min(pace.first_value.value_or(first), first);
  }
  if (!pace.first_value) return pace;
  if (prompt > 0 && *pace.first_value > 0) {
    pace.prompt_rate = static_cast<double>(prompt) / *pace.first_value;
  }
  const double sampling = pace.seconds - *pace.first_value;
  if (after_first > 0 && sampling > 0) {
    pace.sampling_rate = static_cast<double>(after_first) / sampling;
  }
  return pace;
}

int64_t Transcript::drawn(const SampleTranscript& sample) const {
  const int64_t given = has_begin_ && sample.position == 0 ? 1 : 0;
  return std::max<int64_t>(static_cast<int64_t>(sample.values.size()) - given, 0);
}

}  // namespace runnel
